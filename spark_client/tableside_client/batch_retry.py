"""Retry the operations of a batch in Arrow by position, and merge the outcomes of all attempts.

The functions that send a batch and that wait are arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.calls import Call
from tableside_client.errors import TableError

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


Send: TypeAlias = Callable[[pa.Table], Call[BatchResponse]]
"""Sends operations once."""

Wait: TypeAlias = Callable[[float | None, str], Call[bool]]
"""Waits before a retry, as `CallLimits.pause` does."""


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


def send_with_retries(operations: pa.Table, send: Send, repeatable: pa.Array, wait: Wait) -> Call[pa.Table]:
    """Send operations, and retry the ones that may still succeed until none is left or the attempts are used up.

    Args:
        operations: One row per operation, with a column `key`.
        send: Sends a batch once.
        repeatable: For each operation, whether it is safe to repeat although it may have been applied.
        wait: Waits before a retry. It is not called for rows that were only `too_large`.

    Returns:
        The columns of `OUTCOMES` and `retries`, the number of retries of each operation. Retried operations keep
        their order, and so do operations on one key.
    """
    response = yield from send(operations)
    again = _may_retry(response.rows, repeatable)
    if not _any(again):
        return response.rows.append_column(_RETRIES, pa.repeat(pa.scalar(0, pa.uint16()), len(operations)))
    positions = pa.array(range(len(operations)), pa.int64())
    return (yield from _retry(operations, positions, response, send, repeatable, wait))


def _retry(
    operations: pa.Table,
    positions: pa.Array,
    response: BatchResponse,
    send: Send,
    repeatable: pa.Array,
    wait: Wait,
) -> Call[pa.Table]:
    finished: list[pa.Table] = []
    retries = 0
    while True:
        again = _without_unknown_keys(operations, _may_retry(response.rows, repeatable), response.rows)
        too_large = _all_too_large(response.rows, again)
        is_stuck = too_large and pc.all(again).as_py()  # the same request would have the same response
        if not _any(again) or is_stuck or not (too_large or (yield from _pause(wait, response, again))):
            finished.append(_finished(response.rows, positions, retries))
            break
        finished.append(_finished(response.rows.filter(pc.invert(again)), positions.filter(pc.invert(again)), retries))
        operations, positions = operations.filter(again), positions.filter(again)
        repeatable = repeatable.filter(again)
        response = yield from send(operations)
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


def _pause(wait: Wait, response: BatchResponse, again: pa.ChunkedArray) -> Call[bool]:
    first = response.rows.select(["code", "detail"]).filter(again).slice(0, 1).to_pylist()[0]
    return (yield from wait(response.retry_after_s, f"{first['code']}: {first['detail']}"))


def _finished(rows: pa.Table, positions: pa.Array, retries: int) -> pa.Table:
    counted = rows.append_column(_RETRIES, pa.repeat(pa.scalar(retries, pa.uint16()), len(rows)))
    return counted.append_column("position", positions)


def _any(mask: pa.ChunkedArray) -> bool:
    return bool(pc.any(mask, min_count=0).as_py())
