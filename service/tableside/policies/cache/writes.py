"""Which writes are under way, and what is in a record for sure when one has ended. Knows nothing of what is kept."""

from collections.abc import Iterable, KeysView, Sequence

from msgspec.structs import replace

from ...core import Delete, Get, Key, Operation, Outcome, Record, TableError, Written


class Writes:
    """The keys that are being written, and those of them that somebody else may have written meanwhile."""

    def __init__(self) -> None:
        self._under_way: dict[Key, int] = {}
        self._disturbed: set[Key] = set()

    def keys(self) -> KeysView[Key]:
        """Return the keys that are being written."""
        return self._under_way.keys()

    def begin(self, keys: Iterable[Key]) -> None:
        """Take note of writes that begin; each disturbs another of the same key, and is disturbed by it."""
        for key in keys:
            count = self._under_way.get(key, 0)
            self._under_way[key] = count + 1
            if count:
                self._disturbed.add(key)

    def end(self, keys: Iterable[Key]) -> set[Key]:
        """Take note of writes that have ended, and return the keys of those that nothing disturbed."""
        alone = set()
        for key in keys:
            count = self._under_way.pop(key) - 1
            if count:
                self._under_way[key] = count
            elif key in self._disturbed:
                self._disturbed.discard(key)
            else:
                alone.add(key)
        return alone

    def disturb(self, keys: Iterable[Key] | None = None) -> None:
        """Take note that somebody else may have written these keys, or any."""
        self._disturbed |= self._under_way.keys() if keys is None else self._under_way.keys() & keys


def with_values(operations: Sequence[Operation]) -> Sequence[Operation]:
    """Return the same operations, the puts and updates of which show the value that they leave."""
    return [
        operation if isinstance(operation, Get | Delete) or operation.returning else replace(operation, returning=True)
        for operation in operations
    ]


def without_values(operations: Sequence[Operation], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes without the values that nobody but the cache has asked for."""
    return [
        replace(outcome, value=None)
        if isinstance(outcome, Written)
        and outcome.value is not None
        and not (isinstance(operation, Get | Delete) or operation.returning)
        else outcome
        for operation, outcome in zip(operations, outcomes, strict=True)
    ]


def written_records(outcomes: Iterable[tuple[Key, Outcome]]) -> list[tuple[Key, Record | None]]:
    """Return the records, and absences, that writes have left, where the outcome tells."""
    return [
        (key, None if outcome.etag is None else Record(outcome.value or b"", outcome.etag, outcome.expires_ms))
        for key, outcome in outcomes
        if isinstance(outcome, Written) and (outcome.etag is None or outcome.value is not None)
    ]


def may_have_written(outcome: Outcome) -> bool:
    """Whether a write with this outcome may have changed the record."""
    return not isinstance(outcome, TableError) or outcome.applied == "unknown"
