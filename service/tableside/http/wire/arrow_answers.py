"""Answers to a batch as an Arrow IPC stream, a row for each operation."""

from collections.abc import Callable, Sequence
from itertools import accumulate

import pyarrow as pa

from ...core import Record, TableError
from .answers import Answer, rfc3339

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
"""Stands after the others where a record in the answer has an expiry."""

_PART = [pa.field("partition", pa.int32()), *_COLUMNS]
_PARTS = pa.list_(pa.struct(_PART))
_DROPPED = pa.field("dropped", pa.bool_())
"""Stands last in the answers of a partitioned table, after `partitions`."""


def encode(answers: Sequence[Answer], *, partitioned: bool = False) -> bytes:
    """Write the answers, one row each."""
    columns, fields = _columns(answers), [*_COLUMNS]
    if any(answer.expires_ms for answer in answers):
        columns.append(expiries([answer.expires_ms for answer in answers]))
        fields.append(EXPIRES_AT)
    if partitioned:
        parts = _parts(answers)
        columns += [parts, pa.array([answer.dropped for answer in answers], pa.bool_())]
        fields += [pa.field("partitions", parts.type), _DROPPED]
    return write(pa.record_batch(columns, schema=pa.schema(fields)))


def encode_records(records: Sequence[Record], *, partitioned: bool = False) -> bytes:
    """Write the answers to gets that all found their record: what `encode` writes, made of whole columns."""
    count = len(records)
    nothing, no_flag = pa.nulls(count, pa.utf8()), pa.nulls(count, pa.bool_())
    false = pa.repeat(pa.scalar(False), count)
    columns = [
        pa.repeat(pa.scalar(200, pa.uint16()), count),
        pa.array([record.value for record in records], pa.binary()),
        pa.array([record.etag for record in records], pa.utf8()),
        nothing,
        nothing,
        no_flag,
        nothing,
        false,
    ]
    if not partitioned:
        return write(pa.record_batch(columns, schema=pa.schema(_COLUMNS)))
    columns += [pa.nulls(count, _PARTS), false]
    return write(pa.record_batch(columns, schema=pa.schema([*_COLUMNS, pa.field("partitions", _PARTS), _DROPPED])))


def expiries(expires_ms: Sequence[int]) -> pa.Array:
    """Return a column of times in RFC 3339, null for never."""
    return pa.array([rfc3339(time) if time else None for time in expires_ms], pa.utf8())


def write(batch: pa.RecordBatch) -> bytes:
    """Return one batch as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def _columns(answers: Sequence[Answer]) -> list[pa.Array]:
    errors = [answer.error for answer in answers]
    some = any(error is not None for error in errors)
    return [
        pa.array([answer.status for answer in answers], pa.uint16()),
        pa.array([answer.value for answer in answers], pa.binary()),
        pa.array([answer.etag for answer in answers], pa.utf8()),
        _of_errors(errors, some, pa.utf8(), lambda error: error.code),
        _of_errors(errors, some, pa.utf8(), lambda error: error.detail),
        _of_errors(errors, some, pa.bool_(), lambda error: error.retriable),
        _of_errors(errors, some, pa.utf8(), lambda error: error.applied),
        pa.array([answer.replayed for answer in answers], pa.bool_()),
    ]


def _parts(answers: Sequence[Answer]) -> pa.Array:
    """Return a list for each answer, of what became of it in each partition; null where it says nothing of them."""
    lists = [answer.partitions for answer in answers]
    flat = [part for one in lists if one is not None for part in one]
    parts, fields = [part for _, part in flat], [*_PART]
    columns = [pa.array([index for index, _ in flat], pa.int32()), *_columns(parts)]
    if any(part.expires_ms for part in parts):
        columns.append(expiries([part.expires_ms for part in parts]))
        fields.append(EXPIRES_AT)
    each = pa.StructArray.from_arrays(columns, fields=fields)
    ends = list(accumulate((len(one or ()) for one in lists), initial=0))
    starts = [None if one is None else start for one, start in zip(lists, ends, strict=False)]
    return pa.ListArray.from_arrays(pa.array([*starts, ends[-1]], pa.int32()), each)


def _of_errors(
    errors: Sequence[TableError | None], some: bool, kind: pa.DataType, member: Callable[[TableError], object]
) -> pa.Array:
    if not some:
        return pa.nulls(len(errors), kind)
    return pa.array([None if error is None else member(error) for error in errors], kind)
