"""What JSON, Arrow and single responses have in common: the answer to an operation, from its outcome."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from ...core import (
    Batch,
    Get,
    Operation,
    Outcome,
    PartitionOutcome,
    Record,
    Results,
    TableError,
    Written,
    chunks_of,
)
from ...core.budget import NOT_READ, value_bytes
from ...core.concurrency import PIECE_OPERATIONS, Pieces
from ...core.errors import RecordNotFound
from . import problems
from .projections import with_values

RECORD_NOT_FOUND = RecordNotFound("there is no such record")


def failure(outcome: Outcome) -> TableError | None:
    """Return the error in the answer to an operation. An absent record has one, too."""
    return RECORD_NOT_FOUND if outcome is None else outcome if isinstance(outcome, TableError) else None


def status(outcome: Outcome) -> int:
    """Return the status of the single request that has this outcome."""
    if isinstance(outcome, Record):
        return 200
    if isinstance(outcome, Written):
        returned = outcome.value is not None or (outcome.partitions and value_bytes([outcome]))
        return 201 if outcome.created else 200 if returned else 204
    return problems.status(RECORD_NOT_FOUND if outcome is None else outcome)


def shown_expiry_ms(outcome: Outcome) -> int:
    """Return when the record of an answer expires, 0 if it does not, or the answer has no value."""
    return 0 if isinstance(outcome, TableError) or outcome is None or outcome.value is None else outcome.expires_ms


def partitions_of(outcome: Outcome) -> tuple[PartitionOutcome, ...] | None:
    """Return the outcomes of a write in its partitions, None for others. It is empty if the write was dropped."""
    return getattr(outcome, "partitions", None)


def bounded(outcomes: Sequence[Outcome], bytes_max: int) -> Pieces[list[Outcome]]:
    """Return outcomes whose values together have at most `bytes_max`.

    Later gets are NOT_READ, and later writes have no value, as if the client had not requested it.
    """
    if value_bytes(outcomes) <= bytes_max:
        return [*outcomes]
    total_bytes, found = 0, list[Outcome]()
    for some in chunks_of(outcomes, PIECE_OPERATIONS):
        for outcome in some:
            total_bytes += (size_bytes := value_bytes([outcome]))
            if not size_bytes or total_bytes <= bytes_max:
                found.append(outcome)
            elif isinstance(outcome, Written | TableError):
                found.append(with_values(outcome, lambda value: None))
            else:
                found.append(NOT_READ)
        yield
    return found


def rfc3339(expires_ms: int) -> str:
    """Format Unix milliseconds as an RFC 3339 time in UTC."""
    seconds, milliseconds = divmod(expires_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{milliseconds:03}Z"


def expiry_column(expires_ms: Sequence[int]) -> pa.Array:
    """Return a column of RFC 3339 times, null for 0."""
    times = pa.array([time or None for time in expires_ms], pa.timestamp("ms")).cast(pa.utf8())
    return pc.binary_join_element_wise(pc.utf8_replace_slice(times, 10, 11, "T"), "Z", "")


def expiry_members(expires_ms: Sequence[int]) -> list[bytes]:
    """Return the member `expires_at` of answers in JSON, after a comma. It is empty for 0."""
    if not any(expires_ms):
        return [b""] * len(expires_ms)
    times = expiry_column(expires_ms).to_pylist()
    return [b"" if time is None else b',"expires_at":"%b"' % time.encode() for time in times]


def never() -> bool:
    """Return False: there is no deadline."""
    return False


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
