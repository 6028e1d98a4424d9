"""Conversion of outcomes into answers, which JSON, Arrow and single responses have in common."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from ...core import (
    Batch,
    DeadlineExceeded,
    Get,
    Operation,
    Outcome,
    PartitionOutcome,
    Record,
    Results,
    TableError,
    TableSpec,
    Written,
    chunks_of,
)
from ...core.budget import NOT_READ
from ...core.concurrency import PIECE_OPERATIONS, Pieces
from ...core.errors import RecordNotFound
from .members import Given, given_by
from .problems import status
from .projections import Fields, project_value


class Answer(msgspec.Struct, frozen=True):
    """The answer to one operation: the status of the equivalent single request, with its value or error.

    For a write to a partitioned table, `partitions` contains the answer of each partition by index. If it is empty, the
    write was dropped. `members` are the other members of the outcome of a write.
    """

    status: int
    value: bytes | None = None
    etag: str | None = None
    expires_ms: int = 0
    members: Given = ()
    error: TableError | None = None
    partitions: "tuple[tuple[int, Answer], ...] | None" = None

    @property
    def dropped(self) -> bool:
        """Whether the operation was a write to no partition."""
        return self.partitions == ()

    @property
    def size_bytes(self) -> int:
        """The size of its values, including those of its partitions."""
        own = 0 if self.value is None else len(self.value)
        return own + sum(part.size_bytes for _, part in self.partitions or ())


RECORD_NOT_FOUND = RecordNotFound("there is no such record")


def answer(outcome: Outcome, fields: Fields = None) -> Answer:
    """Return the answer to one operation."""
    match outcome:
        case Record():
            value = outcome.value if fields is None else project_value(outcome.value, fields)
            return Answer(200, value, outcome.etag, outcome.expires_ms)
        case None:
            return Answer(404, error=RECORD_NOT_FOUND)
        case Written():
            return _written(outcome, fields)
        case TableError():
            parts = None if outcome.partitions is None else _partition_answers(outcome.partitions, fields)
            return Answer(status(outcome), error=outcome, partitions=parts)


def answers(outcomes: Sequence[Outcome], *, bytes_max: int) -> Pieces[list[Answer]]:
    """Return the answers to a batch. Once the values together exceed `bytes_max`, later answers have none."""
    found: list[Answer] = []
    for some in chunks_of(outcomes, PIECE_OPERATIONS):
        found += map(answer, some)
        yield
    total = sum([len(one.value) for one in found if one.value is not None])
    if any(one.partitions for one in found):
        total = sum(one.size_bytes for one in found)
    if total > bytes_max:
        return _limit_values(found, outcomes, bytes_max)
    return found


def rfc3339(expires_ms: int) -> str:
    """Format Unix milliseconds as an RFC 3339 time in UTC."""
    seconds, milliseconds = divmod(expires_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03}Z"


def _written(written: Written, fields: Fields) -> Answer:
    if written.value is None and written.partitions is None:
        return Answer(201 if written.created else 204, None, written.etag, 0, given_by(written))
    value = written.value if written.value is None or fields is None else project_value(written.value, fields)
    parts = None if written.partitions is None else _partition_answers(written.partitions, fields)
    returned = value is not None or any(part.value is not None for _, part in parts or ())
    code = 201 if written.created else 200 if returned else 204
    expires_ms = written.expires_ms if value is not None else 0
    return Answer(code, value, written.etag, expires_ms, given_by(written), partitions=parts)


def _partition_answers(placed: Iterable[PartitionOutcome], fields: Fields) -> tuple[tuple[int, Answer], ...]:
    return tuple((one.partition, answer(one.outcome, fields)) for one in placed)


def _limit_values(found: list[Answer], outcomes: Sequence[Outcome], bytes_max: int) -> list[Answer]:
    total, bounded = 0, []
    for one, outcome in zip(found, outcomes, strict=True):
        size_bytes = one.size_bytes
        total += size_bytes
        if not size_bytes or total <= bytes_max:
            bounded.append(one)
        elif isinstance(outcome, Record):
            bounded.append(Answer(413, error=NOT_READ))
        else:
            bounded.append(_without_values(one))
    return bounded


def _without_values(one: Answer) -> Answer:
    """Remove the value from the answer to a successful write, as if the client had not requested it."""
    parts = None if one.partitions is None else tuple((index, _without_values(part)) for index, part in one.partitions)
    return replace(one, status=204 if one.status == 200 else one.status, value=None, expires_ms=0, partitions=parts)


def never() -> bool:
    """Return False: there is no deadline."""
    return False


def not_decoded(spec: TableSpec) -> DeadlineExceeded:
    """Return the error of an operation that was not decoded before the deadline."""
    return DeadlineExceeded(f"table {spec.name!r}: the deadline was over", applied="no")


def with_max_age(max_age_s: float | None, operations: Sequence[Operation]) -> Sequence[Operation]:
    """Limit the age of cached records in the outcomes of gets. None sets no limit."""
    if max_age_s is None:
        return operations
    if isinstance(operations, Batch):
        is_get = operations.kind is Get
        return operations.with_column("max_age_s", [max_age_s] * len(operations)) if is_get else operations
    return [Get(one.key, max_age_s, one.partitions) if isinstance(one, Get) else one for one in operations]


def with_errors(outcomes: Sequence[Outcome], errors: Mapping[int, TableError]) -> Sequence[Outcome]:
    """Return outcomes with errors inserted, by their positions in the result."""
    if not errors:
        return outcomes
    if isinstance(outcomes, Results):
        return outcomes.with_errors(errors)
    following = iter(outcomes)
    return [errors[at] if at in errors else next(following) for at in range(len(outcomes) + len(errors))]
