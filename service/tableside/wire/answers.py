"""What an operation is answered with, whichever way it was sent."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from ..errors import RecordNotFound, TableError, TooLarge
from ..operations import Delete, Get, Operation, Outcome, Put, Record, Update, Written
from ..values import project
from .problems import status

Fields = frozenset[str] | None


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The status that the single request would have had, and what goes with it."""

    status: int
    value: bytes | None = None
    etag: str | None = None
    expires_ms: int = 0
    replayed: bool = False
    error: TableError | None = None


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
            return Answer(status(outcome), error=outcome)


def answers(
    outcomes: Sequence[Outcome], fields: Iterable[Fields] | None, *, bytes_max: int, operations: Sequence[object]
) -> list[Answer]:
    """Return the answers to a batch. Values stop where they would exceed `bytes_max` together."""
    if fields is None:
        found = [answer(outcome) for outcome in outcomes]
    else:
        found = [answer(outcome, only) for outcome, only in zip(outcomes, fields, strict=True)]
    if sum(len(one.value) for one in found if one.value is not None) > bytes_max:
        return _bounded(found, operations, bytes_max)
    return found


def rfc3339(expires_ms: int) -> str:
    """Return Unix milliseconds as RFC 3339 in UTC."""
    text = datetime.fromtimestamp(expires_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _written(written: Written, fields: Fields) -> Answer:
    value = written.value if written.value is None or fields is None else project(written.value, fields)
    code = 201 if written.created else 204 if value is None else 200
    return Answer(code, value, written.etag, written.expires_ms if value is not None else 0, written.replayed)


def _bounded(found: list[Answer], operations: Sequence[object], bytes_max: int) -> list[Answer]:
    total, bounded = 0, []
    for one, operation in zip(found, operations, strict=True):
        total += len(one.value or b"")
        if one.value is None or total <= bytes_max:
            bounded.append(one)
        elif isinstance(operation, Get):
            bounded.append(Answer(413, error=_BEYOND))
        else:  # The write was done: its value is left out, as if it had not been asked for.
            bounded.append(Answer(204 if one.status == 200 else one.status, None, one.etag, 0, one.replayed))
    return bounded


def valid(operations: Sequence[Operation | TableError]) -> Sequence[Operation]:
    """Return those that could be read as operations."""
    if set(map(type, operations)) <= _OPERATIONS:
        return operations  # type: ignore[return-value]  # just seen
    return [operation for operation in operations if not isinstance(operation, TableError)]


def limited_to(max_age_s: float | None, operations: Sequence[Operation]) -> Sequence[Operation]:
    """Let the gets among operations take no older answers from a cache than that; None sets no limit."""
    if max_age_s is None:
        return operations
    return [Get(asked.key, max_age_s) if isinstance(asked, Get) else asked for asked in operations]


def with_refused(operations: Sequence[Operation | TableError], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Put the outcomes of the valid operations back among those that were refused."""
    following = iter(outcomes)
    return [operation if isinstance(operation, TableError) else next(following) for operation in operations]
