"""Answers to a batch as an Arrow IPC stream, with one row per operation."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import pyarrow as pa

from ...core import Outcome, PartitionOutcome, Record, Results, TableError, Written
from ...core.concurrency import Pieces
from .answers import RECORD_NOT_FOUND, Encoded, binary_column, encode_stream, expiry_column, status

_ERRORS = {"code": pa.utf8(), "detail": pa.utf8(), "retriable": pa.bool_(), "applied": pa.utf8()}
"""The columns that are null for a success, and their types."""


def encode(outcomes: Sequence[Outcome], flags: Collection[str], *, partitioned: bool) -> Pieces[Encoded]:
    """Encode the outcomes, one row each.

    The `flags` of outcomes follow the other columns, then `expires_at` if any record has an expiry. For a partitioned
    table, `partitions` and `dropped` are the last ones.
    """
    columns = yield from _columns(outcomes, flags)
    if partitioned:
        partitions: list[Sequence[PartitionOutcome] | None] = [None] * len(outcomes)
        if not isinstance(outcomes, Results):
            partitions = [getattr(outcome, "partitions", None) for outcome in outcomes]
        columns["partitions"] = yield from _partitions(partitions, flags)
        columns["dropped"] = pa.array([each == () for each in partitions], pa.bool_())
    return encode_stream(pa.record_batch(columns))


def _columns(outcomes: Sequence[Outcome], flags: Collection[str]) -> Pieces[dict[str, pa.Array]]:
    """Return the columns that each answer has."""
    values = _of_successes(outcomes, "value", pa.binary())
    value_column = values if isinstance(values, pa.Array) else (yield from binary_column(values))
    yield
    columns = {"status": _column(_statuses(outcomes), pa.uint16()), "value": value_column}
    columns["etag"] = _column(_of_successes(outcomes, "etag", pa.utf8()), pa.utf8())
    yield
    errors = _errors(outcomes)
    for name, kind in _ERRORS.items():
        columns[name] = _repeated(None, kind, len(outcomes))
        if errors:
            cells = [None] * len(outcomes)
            columns[name] = _column(_replaced(cells, {at: getattr(each, name) for at, each in errors.items()}), kind)
    for name in flags:
        columns[name] = _column(_of_successes(outcomes, name, pa.bool_(), absent=False), pa.bool_())
    if any(expires_ms := _shown_expiries(outcomes)):
        columns["expires_at"] = expiry_column(expires_ms)
    return columns


def _column(cells: Sequence[Any] | pa.Array, kind: pa.DataType) -> pa.Array:
    return cells if isinstance(cells, pa.Array) else pa.array(cells, kind)


@lru_cache(maxsize=64)
def _repeated(cell: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(cell, kind), count)


def _of_successes(
    outcomes: Sequence[Outcome], name: str, kind: pa.DataType, *, absent: object = None
) -> Sequence[Any] | pa.Array:
    """Return a column, in which an error is `absent`."""
    if not isinstance(outcomes, Results):
        return [getattr(outcome, name, absent) for outcome in outcomes]
    if name not in outcomes.columns:
        return _repeated(absent, kind, len(outcomes))
    return _replaced(outcomes.cells(name), dict.fromkeys(outcomes.failed, absent))


def _replaced(cells: Sequence[Any], others: Mapping[int, Any]) -> Sequence[Any]:
    """Return the cells, with others at some positions."""
    if not others:
        return cells
    replaced = [*cells]
    for at, cell in others.items():
        replaced[at] = cell
    return replaced


def _statuses(outcomes: Sequence[Outcome]) -> Sequence[int] | pa.Array:
    if not isinstance(outcomes, Results):
        return list(map(status, outcomes))
    if outcomes.kind is Record:
        if not outcomes.absent_count and not outcomes.failed:
            return _repeated(200, pa.uint16(), len(outcomes))
        statuses = [404 if value is None else 200 for value in outcomes.cells("value")]
    elif outcomes.has_only("etag", "expires_ms"):
        if not outcomes.failed:
            return _repeated(204, pa.uint16(), len(outcomes))
        statuses = [204] * len(outcomes)
    else:
        return list(map(status, outcomes))
    return _replaced(statuses, {at: status(error) for at, error in outcomes.failed.items()})


def _errors(outcomes: Sequence[Outcome]) -> Mapping[int, TableError]:
    """Return the errors by position. An absent record is one."""
    if not isinstance(outcomes, Results):
        errors = [RECORD_NOT_FOUND if outcome is None else outcome for outcome in outcomes]
        return {at: error for at, error in enumerate(errors) if isinstance(error, TableError)}
    if outcomes.kind is Written or not outcomes.absent_count:
        return outcomes.failed
    absent = {at: RECORD_NOT_FOUND for at, value in enumerate(outcomes.cells("value")) if value is None}
    return {**absent, **outcomes.failed}


def _shown_expiries(outcomes: Sequence[Outcome]) -> Sequence[int]:
    if not isinstance(outcomes, Results):
        successes = [outcome if isinstance(outcome, Record | Written) else None for outcome in outcomes]
        return [0 if success is None or success.value is None else success.expires_ms for success in successes]
    if "expires_ms" not in outcomes.columns:
        return []
    both = zip(outcomes.cells("value"), outcomes.cells("expires_ms"), strict=True)
    shown = [0 if value is None else expires_ms for value, expires_ms in both]
    return _replaced(shown, dict.fromkeys(outcomes.failed, 0))


def _partitions(lists: Sequence[Sequence[PartitionOutcome] | None], flags: Collection[str]) -> Pieces[pa.Array]:
    """Return a column with a list per answer: its answers by partition, or null if it has none."""
    flat = [part for one in lists if one is not None for part in one]
    columns = {
        "partition": pa.array([part.partition for part in flat], pa.int32()),
        **(yield from _columns([part.outcome for part in flat], flags)),
    }
    each = pa.StructArray.from_arrays([*columns.values()], names=[*columns])
    ends = list(accumulate((len(one or ()) for one in lists), initial=0))
    starts = [None if one is None else start for one, start in zip(lists, ends, strict=False)]
    return pa.ListArray.from_arrays(pa.array([*starts, ends[-1]], pa.int32()), each)
