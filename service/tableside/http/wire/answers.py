"""What an operation is answered with, whichever way it was sent."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from ...core import (
    Delete,
    Get,
    Operation,
    Outcome,
    PartitionOutcome,
    Put,
    Record,
    TableError,
    TooLarge,
    Update,
    Written,
)
from ...core.errors import RecordNotFound
from ...core.values import project
from .problems import status

Fields = frozenset[str] | None


class Answer(msgspec.Struct, frozen=True):
    """The status that the single request would have had, and what goes with it.

    `partitions` says the same of a write to a partitioned table for each that it went to; of none, it was dropped.
    """

    status: int
    value: bytes | None = None
    etag: str | None = None
    expires_ms: int = 0
    replayed: bool = False
    error: TableError | None = None
    partitions: "tuple[tuple[int, Answer], ...] | None" = None

    @property
    def dropped(self) -> bool:
        """Whether it was a write for no partition."""
        return self.partitions == ()

    @property
    def size_bytes(self) -> int:
        """Return how many bytes its values have, those of its partitions included."""
        own = 0 if self.value is None else len(self.value)
        return own + sum(part.size_bytes for _, part in self.partitions or ())


ABSENT = RecordNotFound("there is no such record")

_OPERATIONS = frozenset({Get, Put, Update, Delete})

_BEYOND = TooLarge("the answer is beyond the limit of bytes: ask for this record again", retriable=True)


def answer(outcome: Outcome, fields: Fields = None) -> Answer:
    """Return the answer to one operation."""
    match outcome:
        case Record(value, etag, expires_ms):
            return Answer(200, value if fields is None else project(value, fields), etag, expires_ms)
        case None:
            return Answer(404, error=ABSENT)
        case Written():
            return _written(outcome, fields)
        case TableError():
            parts = None if outcome.partitions is None else _parts(outcome.partitions, fields)
            return Answer(status(outcome), error=outcome, partitions=parts)


def answers(
    outcomes: Sequence[Outcome], fields: Iterable[Fields] | None, *, bytes_max: int, operations: Sequence[object]
) -> list[Answer]:
    """Return the answers to a batch. Values stop where they would exceed `bytes_max` together."""
    if fields is None:
        found = [answer(outcome) for outcome in outcomes]
    else:
        found = [answer(outcome, only) for outcome, only in zip(outcomes, fields, strict=True)]
    total = sum(len(one.value) for one in found if one.value is not None)
    if any(one.partitions for one in found):
        total = sum(one.size_bytes for one in found)
    if total > bytes_max:
        return _bounded(found, operations, bytes_max)
    return found


def rfc3339(expires_ms: int) -> str:
    """Return Unix milliseconds as RFC 3339 in UTC."""
    text = datetime.fromtimestamp(expires_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _written(written: Written, fields: Fields) -> Answer:
    value = written.value if written.value is None or fields is None else project(written.value, fields)
    parts = None if written.partitions is None else _parts(written.partitions, fields)
    returned = value is not None or any(part.value is not None for _, part in parts or ())
    code = 201 if written.created else 200 if returned else 204
    expires_ms = written.expires_ms if value is not None else 0
    return Answer(code, value, written.etag, expires_ms, written.replayed, partitions=parts)


def _parts(placed: Iterable[PartitionOutcome], fields: Fields) -> tuple[tuple[int, Answer], ...]:
    return tuple((one.partition, answer(one.outcome, fields)) for one in placed)


def _bounded(found: list[Answer], operations: Sequence[object], bytes_max: int) -> list[Answer]:
    total, bounded = 0, []
    for one, operation in zip(found, operations, strict=True):
        size_bytes = one.size_bytes
        total += size_bytes
        if not size_bytes or total <= bytes_max:
            bounded.append(one)
        elif isinstance(operation, Get):
            bounded.append(Answer(413, error=_BEYOND))
        else:
            bounded.append(_without_values(one))
    return bounded


def _without_values(one: Answer) -> Answer:
    """Leave the value of a write out that was done, as if it had not been asked for."""
    parts = None if one.partitions is None else tuple((index, _without_values(part)) for index, part in one.partitions)
    return replace(one, status=204 if one.status == 200 else one.status, value=None, expires_ms=0, partitions=parts)


def valid(operations: Sequence[Operation | TableError]) -> Sequence[Operation]:
    """Return those that could be read as operations."""
    if set(map(type, operations)) <= _OPERATIONS:
        return operations  # type: ignore[return-value]  # just seen
    return [operation for operation in operations if not isinstance(operation, TableError)]


def limited_to(max_age_s: float | None, operations: Sequence[Operation]) -> Sequence[Operation]:
    """Let the gets among operations take no older answers from a cache than that; None sets no limit."""
    if max_age_s is None:
        return operations
    return [Get(asked.key, max_age_s, asked.partitions) if isinstance(asked, Get) else asked for asked in operations]


def with_refused(operations: Sequence[Operation | TableError], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Put the outcomes of the valid operations back among those that were refused."""
    following = iter(outcomes)
    return [operation if isinstance(operation, TableError) else next(following) for operation in operations]
