"""Retry the operations of a batch by position, and merge the outcomes of all attempts.

The function that sends a batch is an argument.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.errors import TableError
from tableside_client.retries import RetryBudget

OUTCOMES = pa.schema(
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
"""The columns of a response: one row per operation, in the order of the operations."""

_RETRIES = pa.field("retries", pa.uint16())


@dataclass(frozen=True, slots=True)
class BatchResponse:
    """The response to one request: rows of `OUTCOMES`, and the time to wait before a retry, if the service sent one."""

    rows: pa.Table
    retry_after_s: float | None = None


def failed_response(error: TableError, count: int) -> BatchResponse:
    """The response for a request that failed as a whole: the same outcome for each of its `count` operations."""
    outcome = {
        "status": error.status,
        "code": error.code,
        "detail": error.detail,
        "retriable": error.retriable,
        "applied": error.applied,
        "replayed": False,
    }
    columns = [pa.repeat(pa.scalar(outcome.get(field.name), field.type), count) for field in OUTCOMES]
    return BatchResponse(pa.Table.from_arrays(columns, schema=OUTCOMES), error.retry_after_s)


def send_with_retries(
    operations: pa.Table, send: Callable[[pa.Table], BatchResponse], repeatable: pa.Array, budget: RetryBudget
) -> pa.Table:
    """Send operations, and retry those that may still succeed until none is left or the budget is spent.

    Args:
        operations: One row per operation, with a column `key`.
        send: Sends a batch once.
        repeatable: For each operation, whether it is safe to repeat although it may have been applied.
        budget: The limits on retries. Its attempts are not counted for rows that were only `too_large`.

    Returns:
        The columns of `OUTCOMES` and `retries`, the number of retries of each operation. Retried operations keep
        their order, and so do operations on one key.
    """
    response = send(operations)
    again = _may_retry(response.rows, repeatable)
    if not _any(again):
        return response.rows.append_column(_RETRIES, pa.repeat(pa.scalar(0, pa.uint16()), len(operations)))
    positions = pa.array(range(len(operations)), pa.int64())
    return _retry(operations, positions, response, send, repeatable, budget)


def _retry(
    operations: pa.Table,
    positions: pa.Array,
    response: BatchResponse,
    send: Callable[[pa.Table], BatchResponse],
    repeatable: pa.Array,
    budget: RetryBudget,
) -> pa.Table:
    finished: list[pa.Table] = []
    retries = 0
    while True:
        again = _without_unknown_keys(operations, _may_retry(response.rows, repeatable), response.rows)
        too_large = _all_too_large(response.rows, again)
        is_stuck = too_large and pc.all(again).as_py()  # the same request would have the same response
        if not _any(again) or is_stuck or not (too_large or _wait(budget, response, again)):
            finished.append(_finished(response.rows, positions, retries))
            break
        finished.append(_finished(response.rows.filter(pc.invert(again)), positions.filter(pc.invert(again)), retries))
        operations, positions = operations.filter(again), positions.filter(again)
        repeatable = repeatable.filter(again)
        response = send(operations)
        retries += 1
    return pa.concat_tables(finished).sort_by("position").drop_columns("position")


def first_retriable_code(rows: pa.Table) -> str | None:
    """The code of the first retriable failure, or None if there is none."""
    position = pc.index(rows["retriable"], True).as_py()
    return None if position < 0 else rows["code"][position].as_py()


def _may_retry(rows: pa.Table, repeatable: pa.Array) -> pa.ChunkedArray:
    retriable = pc.fill_null(rows["retriable"], False)
    not_applied = pc.fill_null(pc.equal(rows["applied"], "no"), False)
    return pc.and_(retriable, pc.or_(not_applied, repeatable))


def _without_unknown_keys(operations: pa.Table, again: pa.ChunkedArray, rows: pa.Table) -> pa.ChunkedArray:
    """Exclude operations that follow one on the same key with unknown outcome: a retry would change their order."""
    unknown = pc.and_(pc.fill_null(pc.equal(rows["applied"], "unknown"), False), pc.invert(again))
    if not _any(unknown) or not _any(again):
        return again
    keys = [repr(key) for key in operations["key"].to_pylist()]
    blocked: set[str] = set()
    retried: list[bool] = []
    for key, is_unknown, is_retried in zip(keys, unknown.to_pylist(), again.to_pylist(), strict=True):
        if is_unknown:
            blocked.add(key)
        retried.append(is_retried and key not in blocked)
    return pa.chunked_array([pa.array(retried, pa.bool_())])


def _all_too_large(rows: pa.Table, again: pa.ChunkedArray) -> bool:
    """Whether these operations failed only because the response was full: the next response has room for some."""
    return bool(pc.all(pc.fill_null(pc.equal(rows["code"].filter(again), "too_large"), False)).as_py())


def _wait(budget: RetryBudget, response: BatchResponse, again: pa.ChunkedArray) -> bool:
    first = response.rows.select(["code", "detail"]).filter(again).slice(0, 1).to_pylist()[0]
    return budget.wait(response.retry_after_s, f"{first['code']}: {first['detail']}")


def _finished(rows: pa.Table, positions: pa.Array, retries: int) -> pa.Table:
    counted = rows.append_column(_RETRIES, pa.repeat(pa.scalar(retries, pa.uint16()), len(rows)))
    return counted.append_column("position", positions)


def _any(mask: pa.ChunkedArray) -> bool:
    return bool(pc.any(mask, min_count=0).as_py())
