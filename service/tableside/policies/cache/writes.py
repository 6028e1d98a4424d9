"""Tracks writes in flight, and derives from their outcomes the records that they certainly left."""

from collections.abc import Iterable, KeysView, Sequence

from msgspec.structs import replace

from ...core import Delete, Get, Key, Operation, Outcome, Record, TableError, Written


class Writes:
    """The keys with writes in flight. A key is contested if another write may have changed it at the same time."""

    def __init__(self) -> None:
        self._in_flight: dict[Key, int] = {}
        self._contested: set[Key] = set()

    def keys(self) -> KeysView[Key]:
        """Return the keys with writes in flight."""
        return self._in_flight.keys()

    def begin(self, keys: Iterable[Key]) -> None:
        """Register writes that begin. Two concurrent writes of a key make it contested."""
        for key in keys:
            count = self._in_flight.get(key, 0)
            self._in_flight[key] = count + 1
            if count:
                self._contested.add(key)

    def end(self, keys: Iterable[Key]) -> set[Key]:
        """Unregister writes that have ended, and return those of their keys that are not contested."""
        alone = set()
        for key in keys:
            count = self._in_flight.pop(key) - 1
            if count:
                self._in_flight[key] = count
            elif key in self._contested:
                self._contested.discard(key)
            else:
                alone.add(key)
        return alone

    def mark_contested(self, keys: Iterable[Key] | None = None) -> None:
        """Mark those of these keys, or of all, that have writes in flight: another writer may have changed them."""
        self._contested |= self._in_flight.keys() if keys is None else self._in_flight.keys() & keys


def with_values(operations: Sequence[Operation]) -> Sequence[Operation]:
    """Return the operations, with puts and updates changed to return the value that they leave."""
    return [
        operation if isinstance(operation, Get | Delete) or operation.returning else replace(operation, returning=True)
        for operation in operations
    ]


def without_values(operations: Sequence[Operation], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes without the values that only the cache requested."""
    return [
        replace(outcome, value=None)
        if isinstance(outcome, Written)
        and outcome.value is not None
        and not (isinstance(operation, Get | Delete) or operation.returning)
        else outcome
        for operation, outcome in zip(operations, outcomes, strict=True)
    ]


def written_records(outcomes: Iterable[tuple[Key, Outcome]]) -> list[tuple[Key, Record | None]]:
    """Return the records and absences that writes have left, as far as their outcomes have them."""
    return [
        (key, None if outcome.etag is None else Record(outcome.value or b"", outcome.etag, outcome.expires_ms))
        for key, outcome in outcomes
        if isinstance(outcome, Written) and (outcome.etag is None or outcome.value is not None)
    ]


def may_have_written(outcome: Outcome) -> bool:
    """Return whether a write with this outcome may have changed the record."""
    return not isinstance(outcome, TableError) or outcome.applied == "unknown"
