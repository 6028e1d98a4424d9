"""A batch asked until it is settled: which positions to ask again, and how answers come together.

Knows Arrow and the batch's columns, not HTTP: what sends is an argument.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.errors import TableError
from tableside_client.retries import Budget

ANSWER = pa.schema(
    {
        "status": pa.uint16(),
        "value": pa.binary(),
        "etag": pa.string(),
        "code": pa.string(),
        "detail": pa.string(),
        "retriable": pa.bool_(),
        "applied": pa.string(),
        "replayed": pa.bool_(),
    }
)
"""The columns of an answer, one row per operation, in the operations' order."""

_RETRIES = pa.field("retries", pa.uint16())


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one request: rows of `ANSWER`, and how long the service asks to be left alone."""

    rows: pa.Table
    retry_after_s: float | None = None


def failed(error: TableError, count: int) -> Answer:
    """The answer of a request that failed as a whole: the same outcome for each of its operations."""
    outcome = {
        "status": error.status,
        "code": error.code,
        "detail": error.detail,
        "retriable": error.retriable,
        "applied": error.applied,
        "replayed": False,
    }
    columns = [pa.repeat(pa.scalar(outcome.get(field.name), field.type), count) for field in ANSWER]
    return Answer(pa.Table.from_arrays(columns, schema=ANSWER), error.retry_after_s)


def settle(operations: pa.Table, send: Callable[[pa.Table], Answer], repeatable: pa.Array, budget: Budget) -> pa.Table:
    """Ask, and ask again for the positions that may yet succeed, until none is left or the budget is spent.

    `repeatable` says of each operation whether it may be sent again although it may have been applied. The
    result has the columns of `ANSWER` and `retries`: how many times the operation was asked again. Operations
    asked again keep their order, and so do those on one key.
    """
    answer = send(operations)
    again = _again(answer.rows, repeatable)
    if not _any(again):
        return answer.rows.append_column(_RETRIES, pa.repeat(pa.scalar(0, pa.uint16()), len(operations)))
    positions = pa.array(range(len(operations)), pa.int64())
    return _ask_again(operations, positions, answer, send, repeatable, budget)


def _ask_again(
    operations: pa.Table,
    positions: pa.Array,
    answer: Answer,
    send: Callable[[pa.Table], Answer],
    repeatable: pa.Array,
    budget: Budget,
) -> pa.Table:
    settled: list[pa.Table] = []
    retries = 0
    while True:
        again = _without_doubtful_keys(operations, _again(answer.rows, repeatable), answer.rows)
        too_large = _only_too_large(answer.rows, again)
        shrinks = too_large and not pc.all(again).as_py()
        if not _any(again) or not (shrinks or budget.wait(answer.retry_after_s)):
            settled.append(_settled(answer.rows, positions, retries))
            break
        settled.append(_settled(answer.rows.filter(pc.invert(again)), positions.filter(pc.invert(again)), retries))
        operations, positions = operations.filter(again), positions.filter(again)
        repeatable = repeatable.filter(again)
        answer = send(operations)
        retries += 1
    return pa.concat_tables(settled).sort_by("position").drop_columns("position")


def _again(rows: pa.Table, repeatable: pa.Array) -> pa.ChunkedArray:
    retriable = pc.fill_null(rows["retriable"], False)
    surely_not_applied = pc.fill_null(pc.equal(rows["applied"], "no"), False)
    return pc.and_(retriable, pc.or_(surely_not_applied, repeatable))


def _without_doubtful_keys(operations: pa.Table, again: pa.ChunkedArray, rows: pa.Table) -> pa.ChunkedArray:
    """After an operation that stays in doubt, later ones on its key are not sent either: order would be lost."""
    doubtful = pc.and_(pc.fill_null(pc.equal(rows["applied"], "unknown"), False), pc.invert(again))
    if not _any(doubtful) or not _any(again):
        return again
    keys = [repr(key) for key in operations["key"].to_pylist()]
    lost: set[str] = set()
    kept: list[bool] = []
    for key, is_doubtful, is_again in zip(keys, doubtful.to_pylist(), again.to_pylist(), strict=True):
        if is_doubtful:
            lost.add(key)
        kept.append(is_again and key not in lost)
    return pa.chunked_array([pa.array(kept, pa.bool_())])


def _only_too_large(rows: pa.Table, again: pa.ChunkedArray) -> bool:
    """Whether what is left was merely beyond the size of one answer: the next one will hold more of it."""
    return bool(pc.all(pc.fill_null(pc.equal(rows["code"].filter(again), "too_large"), False)).as_py())


def _settled(rows: pa.Table, positions: pa.Array, retries: int) -> pa.Table:
    counted = rows.append_column(_RETRIES, pa.repeat(pa.scalar(retries, pa.uint16()), len(rows)))
    return counted.append_column("position", positions)


def _any(mask: pa.ChunkedArray) -> bool:
    return bool(pc.any(mask, min_count=0).as_py())
