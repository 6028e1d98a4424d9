"""Searches for keys without their values."""

from typing import cast

from rocksdict import Rdict, RdictIter


class KeySearch:
    """Finds the keys next to other keys. A search sees the records that existed when it was created.

    Its two cursors are reused, because each new one reads a block of every file that has keys behind its position. A
    large record is a block of its own.
    """

    def __init__(self, database: Rdict) -> None:
        # One for each direction: a cursor that turns reads these blocks again.
        self._forward, self._backward = database.iter(), database.iter()

    def first(self, low: bytes) -> bytes | None:
        """Return the first key that is not before `low`, or None if there is none."""
        self._forward.seek(low)
        return _key_at(self._forward)

    def last(self, high: bytes | None) -> bytes | None:
        """Return the last key before `high`, or of all keys if it is None. Return None if there is no such key."""
        if high is None:
            self._backward.seek_to_last()
            return _key_at(self._backward)
        self._backward.seek_for_prev(high)
        if _key_at(self._backward) == high:
            self._backward.prev()
        return _key_at(self._backward)


def _key_at(cursor: RdictIter) -> bytes | None:
    return cast("bytes", cursor.key()) if cursor.valid() else None
