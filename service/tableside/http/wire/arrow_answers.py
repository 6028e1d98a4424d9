"""Answers to a batch as an Arrow IPC stream, with one row per operation."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...core import Record, RecordColumns, TableError, Written, WrittenColumn, chunks_of
from ...core.concurrency import Pieces
from .answers import PIECE_OPERATIONS, RECORD_NOT_FOUND, Answer, rfc3339
from .arrow_parts import binary_column, encode_stream
from .body_parts import Encoded

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

_FOUND, _NO_CONTENT, _ABSENT = (pa.scalar(status, pa.uint16()) for status in (200, 204, 404))
_NOT_FOUND = (RECORD_NOT_FOUND.code, RECORD_NOT_FOUND.detail, RECORD_NOT_FOUND.retriable, RECORD_NOT_FOUND.applied)
"""The columns of an absent record's error."""

EXPIRES_AT = pa.field("expires_at", pa.utf8())
"""The column after the others, if any record has an expiry."""

_PARTITION_FIELDS = [pa.field("partition", pa.int32()), *_COLUMNS]
_PARTITIONS = pa.list_(pa.struct(_PARTITION_FIELDS))
_DROPPED = pa.field("dropped", pa.bool_())
"""The last column of a partitioned table, after `partitions`."""

_SCHEMA = pa.schema(_COLUMNS)
_PARTITIONED_SCHEMA = pa.schema([*_COLUMNS, pa.field("partitions", _PARTITIONS), _DROPPED])


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


def encode_records(records: Sequence[Record], *, partitioned: bool = False) -> Pieces[Encoded]:
    """Encode the answers to gets that all found a record, column by column. `encode` returns the same."""
    statuses = _alike(len(records)).found
    values = yield from binary_column([record.value for record in records])
    etags = pa.array([record.etag for record in records], pa.utf8())
    yield
    return _encode_successes(statuses, values, etags, partitioned=partitioned)


def encode_columns(records: RecordColumns, *, partitioned: bool = False) -> Pieces[Encoded]:
    """Encode the answers to gets, some of which may have found no record. `encode` returns the same."""
    if not records.absent_count:
        statuses = _alike(len(records)).found
        return _encode_successes(statuses, records.values, records.etags, partitioned=partitioned)
    absent = records.values.is_null()
    statuses = pc.if_else(absent, _ABSENT, _FOUND)
    yield
    return _encode_successes(statuses, records.values, records.etags, absent, partitioned=partitioned)


def encode_writes(writes: Sequence[Written]) -> Pieces[Encoded]:
    """Encode the answers to writes that were applied now and have only an etag. `encode` returns the same."""
    statuses = pa.array([201 if write.created else 204 for write in writes], pa.uint16())
    etags = pa.array([write.etag for write in writes], pa.utf8())
    yield
    return _encode_successes(statuses, pa.nulls(len(writes), pa.binary()), etags)


def encode_write_column(writes: WrittenColumn) -> Encoded:
    """Encode the answers to puts. `encode` returns the same."""
    alike = _alike(len(writes))
    return _encode_successes(alike.no_content, alike.no_value, writes.etags)


def _encode_successes(
    statuses: pa.Array, values: pa.Array, etags: pa.Array, absent: pa.Array | None = None, *, partitioned: bool = False
) -> Encoded:
    """Encode answers without errors, except the one for `absent` records."""
    count = len(etags)
    alike = _alike(count)
    errors = [alike.no_text, alike.no_text, alike.no_flag, alike.no_text]
    if absent is not None:
        errors = [pc.if_else(absent, member, none) for member, none in zip(_NOT_FOUND, errors, strict=True)]
    columns, schema = [statuses, values, etags, *errors, alike.false], _SCHEMA
    if partitioned:
        columns += [pa.nulls(count, _PARTITIONS), alike.false]
        schema = _PARTITIONED_SCHEMA
    return encode_stream(pa.record_batch(columns, schema=schema))


class _Alike(NamedTuple):
    """Columns whose cells are all the same."""

    found: pa.Array
    no_content: pa.Array
    no_value: pa.Array
    no_text: pa.Array
    no_flag: pa.Array
    false: pa.Array


@lru_cache(maxsize=8)
def _alike(count: int) -> _Alike:
    return _Alike(
        pa.repeat(_FOUND, count),
        pa.repeat(_NO_CONTENT, count),
        pa.nulls(count, pa.binary()),
        pa.nulls(count, pa.utf8()),
        pa.nulls(count, pa.bool_()),
        pa.repeat(pa.scalar(False), count),
    )


def expiry_column(expires_ms: Sequence[int]) -> pa.Array:
    """Return a column of RFC 3339 times, null for 0."""
    return pa.array([rfc3339(time) if time else None for time in expires_ms], pa.utf8())


def _columns(answers: Sequence[Answer]) -> Pieces[list[pa.Array]]:
    pieces = []
    for some in chunks_of(answers, 4 * PIECE_OPERATIONS):  # a row takes less time than decoding an operation
        pieces.append(_short_columns(some))
        yield
    [first, *others] = pieces or [_short_columns(answers)]
    columns = [pa.concat_arrays(column) for column in zip(first, *others, strict=True)] if others else first
    columns.insert(1, (yield from binary_column([answer.value for answer in answers])))
    yield
    return columns


def _short_columns(answers: Sequence[Answer]) -> list[pa.Array]:
    """Return the columns without `value`."""
    errors = [answer.error for answer in answers]
    some = any(error is not None for error in errors)
    return [
        pa.array([answer.status for answer in answers], pa.uint16()),
        pa.array([answer.etag for answer in answers], pa.utf8()),
        _error_column(errors, some, pa.utf8(), lambda error: error.code),
        _error_column(errors, some, pa.utf8(), lambda error: error.detail),
        _error_column(errors, some, pa.bool_(), lambda error: error.retriable),
        _error_column(errors, some, pa.utf8(), lambda error: error.applied),
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


def _error_column(
    errors: Sequence[TableError | None], some: bool, kind: pa.DataType, member: Callable[[TableError], object]
) -> pa.Array:
    if not some:
        return pa.nulls(len(errors), kind)
    return pa.array([None if error is None else member(error) for error in errors], kind)
