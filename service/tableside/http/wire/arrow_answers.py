"""Answers to a batch as an Arrow IPC stream, with one row per operation."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core import Record, Results, TableError, chunks_of
from ...core.concurrency import PIECE_OPERATIONS, Pieces
from .answers import RECORD_NOT_FOUND, Answer
from .body_parts import Encoded, binary_column, encode_stream
from .problems import status

_COLUMNS = [
    pa.field("status", pa.uint16()),
    pa.field("value", pa.binary()),
    pa.field("etag", pa.utf8()),
    pa.field("code", pa.utf8()),
    pa.field("detail", pa.utf8()),
    pa.field("retriable", pa.bool_()),
    pa.field("applied", pa.utf8()),
    pa.field("replayed", pa.bool_()),
]

EXPIRES_AT = pa.field("expires_at", pa.utf8())
"""The column after the others, if any record has an expiry."""

_PARTITION_FIELDS = [pa.field("partition", pa.int32()), *_COLUMNS]
_PARTITIONS = pa.list_(pa.struct(_PARTITION_FIELDS))
_DROPPED = pa.field("dropped", pa.bool_())
"""The last column of a partitioned table, after `partitions`."""


def encode(answers: Sequence[Answer], *, partitioned: bool = False) -> Pieces[Encoded]:
    """Encode the answers, one row each."""
    columns, fields = (yield from _columns(answers)), [*_COLUMNS]
    if any(answer.expires_ms for answer in answers):
        columns.append(expiry_column([answer.expires_ms for answer in answers]))
        fields.append(EXPIRES_AT)
    if partitioned:
        parts = yield from _partitions(answers)
        columns += [parts, pa.array([answer.dropped for answer in answers], pa.bool_())]
        fields += [pa.field("partitions", parts.type), _DROPPED]
    return encode_stream(pa.record_batch(columns, schema=pa.schema(fields)))


def encode_results(results: Results, *, partitioned: bool = False) -> Pieces[Encoded]:
    """Encode outcomes in columns. `encode` returns the same."""
    values = yield from _value_column(results)
    etags = _etag_column(results)
    yield
    errors = _errors(results)
    columns = [_statuses(results), values, etags, *_error_columns(errors, len(results))]
    columns.append(_flags(results.cells("replayed") if "replayed" in results.columns else None, len(results)))
    fields, expires_ms = [*_COLUMNS], _shown_expiries(results)
    if expires_ms is not None:
        columns.append(expiry_column(expires_ms))
        fields.append(EXPIRES_AT)
    if partitioned:
        columns += [pa.nulls(len(results), _PARTITIONS), _flags(None, len(results))]
        fields += [pa.field("partitions", _PARTITIONS), _DROPPED]
    return encode_stream(pa.record_batch(columns, schema=pa.schema(fields)))


def _value_column(results: Results) -> Pieces[pa.Array]:
    values = results.columns.get("value")
    if isinstance(values, pa.Array) and not results.failed:
        return values
    if values is None:
        return _nulls(len(results), pa.binary())
    return (yield from binary_column(_of_successes(results, "value")))


def _etag_column(results: Results) -> pa.Array:
    etags = results.columns["etag"]
    if isinstance(etags, pa.Array) and not results.failed:
        return etags
    return pa.array(_of_successes(results, "etag"), pa.utf8())


def _of_successes(results: Results, name: str) -> Sequence[Any]:
    """Return a column with null for each error."""
    column = results.cells(name)
    return [None if at in results.failed else cell for at, cell in enumerate(column)] if results.failed else column


def _statuses(results: Results) -> pa.Array:
    if results.kind is Record:
        if not results.absent_count and not results.failed:
            return _same(200, len(results))
        statuses = [404 if value is None else 200 for value in results.cells("value")]
    else:
        if results.has_only("etag", "expires_ms") and not results.failed:
            return _same(204, len(results))
        both = zip(results.cells("created"), results.cells("value"), strict=True)
        statuses = [201 if created else 204 if value is None else 200 for created, value in both]
    for at, error in results.failed.items():
        statuses[at] = status(error)
    return pa.array(statuses, pa.uint16())


def _errors(results: Results) -> dict[int, TableError]:
    """Return the errors by position. An absent record is one, but not a failure."""
    absent: dict[int, TableError] = {}
    if results.kind is Record and results.absent_count:
        absent = {at: RECORD_NOT_FOUND for at, value in enumerate(results.cells("value")) if value is None}
    return absent | {**results.failed}


def _error_columns(errors: Mapping[int, TableError], count: int) -> list[pa.Array]:
    columns = []
    for name, kind in (("code", pa.utf8()), ("detail", pa.utf8()), ("retriable", pa.bool_()), ("applied", pa.utf8())):
        cells: list[object] = [None] * count
        for at, error in errors.items():
            cells[at] = getattr(error, name)
        columns.append(pa.array(cells, kind) if errors else _nulls(count, kind))
    return columns


def _flags(flags: Sequence[bool] | None, count: int) -> pa.Array:
    return (
        pa.repeat(pa.scalar(False), count) if flags is None else pa.array([flag is True for flag in flags], pa.bool_())
    )


def _shown_expiries(results: Results) -> Sequence[int] | None:
    """Return the expiries of the records whose values are shown, None if none expires."""
    if not {"expires_ms", "value"} <= results.columns.keys():
        return None
    shown = [
        0 if value is None or at in results.failed else time
        for at, (value, time) in enumerate(zip(results.cells("value"), results.cells("expires_ms"), strict=True))
    ]
    return shown if any(shown) else None


@lru_cache(maxsize=32)
def _same(status: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(status, pa.uint16()), count)


@lru_cache(maxsize=32)
def _nulls(count: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(count, kind)


def expiry_column(expires_ms: Sequence[int]) -> pa.Array:
    """Return a column of RFC 3339 times, null for 0."""
    times = pa.array([time or None for time in expires_ms], pa.timestamp("ms")).cast(pa.utf8())
    return pc.binary_join_element_wise(pc.utf8_replace_slice(times, 10, 11, "T"), "Z", "")


def _columns(answers: Sequence[Answer]) -> Pieces[list[pa.Array]]:
    pieces = []
    for some in chunks_of(answers, PIECE_OPERATIONS):
        pieces.append(_short_columns(some))
        yield
    [first, *others] = pieces or [_short_columns(answers)]
    columns = [pa.concat_arrays(column) for column in zip(first, *others, strict=True)] if others else first
    columns.insert(1, (yield from binary_column([answer.value for answer in answers])))
    yield
    return columns


def _short_columns(answers: Sequence[Answer]) -> list[pa.Array]:
    """Return the columns without `value`."""
    errors = {at: answer.error for at, answer in enumerate(answers) if answer.error is not None}
    return [
        pa.array([answer.status for answer in answers], pa.uint16()),
        pa.array([answer.etag for answer in answers], pa.utf8()),
        *_error_columns(errors, len(answers)),
        pa.array([answer.replayed for answer in answers], pa.bool_()),
    ]


def _partitions(answers: Sequence[Answer]) -> Pieces[pa.Array]:
    """Return a column with a list per answer: its answers by partition, or null if it has none."""
    lists = [answer.partitions for answer in answers]
    flat = [part for one in lists if one is not None for part in one]
    parts, fields = [part for _, part in flat], [*_PARTITION_FIELDS]
    columns = [pa.array([index for index, _ in flat], pa.int32()), *(yield from _columns(parts))]
    if any(part.expires_ms for part in parts):
        columns.append(expiry_column([part.expires_ms for part in parts]))
        fields.append(EXPIRES_AT)
    each = pa.StructArray.from_arrays(columns, fields=fields)
    ends = list(accumulate((len(one or ()) for one in lists), initial=0))
    starts = [None if one is None else start for one, start in zip(lists, ends, strict=False)]
    return pa.ListArray.from_arrays(pa.array([*starts, ends[-1]], pa.int32()), each)
