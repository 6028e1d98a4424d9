"""What JSON, Arrow and single responses have in common: the answer to an operation, and bodies in parts.

A large value in a body is a part of its own, so that it is not copied.
"""

import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate, groupby
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ...core import Batch, Get, Operation, Outcome, Record, Results, TableError, Written
from ...core.budget import NOT_READ, value_bytes
from ...core.concurrency import PIECE_BYTES, PIECE_OPERATIONS, Pieces
from ...core.errors import RecordNotFound
from . import problems
from .projections import with_values

JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
"""The media types of answers."""

RECORD_NOT_FOUND = RecordNotFound("there is no such record")


def status(outcome: Outcome) -> int:
    """Return the status of the single request that has this outcome."""
    if isinstance(outcome, Record):
        return 200
    if isinstance(outcome, Written):
        returned = outcome.value is not None or (outcome.partitions and value_bytes([outcome]))
        return 201 if outcome.created else 200 if returned else 204
    return problems.status(RECORD_NOT_FOUND if outcome is None else outcome)


def bounded(outcomes: Sequence[Outcome], bytes_max: int) -> Pieces[list[Outcome]]:
    """Return outcomes whose values together have at most `bytes_max`.

    Later gets are NOT_READ, and later writes have no value, as if the client had not requested it.
    """
    if value_bytes(outcomes) <= bytes_max:
        return [*outcomes]
    total_bytes, found = 0, list[Outcome]()
    for outcome in outcomes:
        total_bytes += (size_bytes := value_bytes([outcome]))
        if not size_bytes or total_bytes <= bytes_max:
            found.append(outcome)
        elif isinstance(outcome, Written | TableError):
            found.append(with_values(outcome, lambda value: None))
        else:
            found.append(NOT_READ)
        if len(found) % PIECE_OPERATIONS == 0:
            yield
    return found


def rfc3339(expires_ms: int) -> str:
    """Format Unix milliseconds as an RFC 3339 time in UTC."""
    seconds, milliseconds = divmod(expires_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{milliseconds:03}Z"


def to_array(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return a column as an array of Arrow."""
    return cells if isinstance(cells, pa.Array) else pa.array(cells, kind)


def expiry_column(expires_ms: Sequence[int]) -> pa.Array:
    """Return a column of RFC 3339 times, null for 0."""
    times = to_array(expires_ms, pa.int64())
    times = pc.if_else(pc.equal(times, 0), None, times).cast(pa.timestamp("ms")).cast(pa.utf8())
    return pc.binary_join_element_wise(pc.utf8_replace_slice(times, 10, 11, "T"), "Z", "")


def expiry_members(expires_ms: Sequence[int]) -> list[bytes]:
    """Return the member `expires_at` of answers in JSON, after a comma. It is empty for 0."""
    if not any(expires_ms):
        return [b""] * len(expires_ms)
    times = expiry_column(expires_ms).to_pylist()
    return [b"" if time is None else b',"expires_at":"%b"' % time.encode() for time in times]


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


Encoded: TypeAlias = bytes | Sequence[bytes | memoryview]
"""A body: as one text, or as its parts."""

PART_BYTES_MIN = 2**16
"""Shorter parts are joined with those before them."""


def join_short(parts: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return the same bytes in as few parts as possible. Parts of `PART_BYTES_MIN` and more are not copied."""
    if max(map(len, parts)) < PART_BYTES_MIN:
        return [b"".join(parts)]
    found: list[bytes | memoryview] = []
    for is_short, group in groupby(parts, lambda part: len(part) < PART_BYTES_MIN):
        some = [*group]
        found += [b"".join(some)] if is_short else some
    return [part for part in found if part]


def joined(parts: Sequence[bytes | memoryview]) -> Encoded:
    """Return the body that has these parts: as one text if all are short."""
    [first, *others] = found = join_short(parts)
    return first if isinstance(first, bytes) and not others else found


JOINED_BYTES_MAX = 2**18
"""Longer streams go out as parts of PyArrow's memory."""

COLUMN_BYTES_MAX = 2**20
"""Longer columns are built in memory of their size."""

_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"

_OPTIONS = pa.ipc.IpcWriteOptions()  # Without options, PyArrow reads environment variables for each stream.


def binary_column(values: Sequence[bytes | None]) -> Pieces[pa.Array]:
    """Return a column of values. PyArrow would grow a large one in steps to twice its size, and copy it at once."""
    if isinstance(values, pa.Array):
        return values
    size_bytes = sum(map(len, filter(None, values)))
    if size_bytes <= COLUMN_BYTES_MAX:
        return pa.array(values, pa.binary())
    ends = list(accumulate((len(value or b"") for value in values), initial=0))
    text = pa.allocate_buffer(size_bytes)
    view, copied_to = memoryview(text).cast("B"), 0
    for value, start, end in zip(values, ends, ends[1:], strict=False):
        if value:
            view[start:end] = value
        if end - copied_to >= PIECE_BYTES:
            copied_to = end
            yield
    present = pa.array([value is not None for value in values], pa.bool_())
    return pa.Array.from_buffers(
        pa.binary(), len(values), [present.buffers()[1], pa.array(ends, pa.int32()).buffers()[1], text]
    )


def encode_stream(batch: pa.RecordBatch) -> Encoded:
    """Encode one record batch as an Arrow stream."""
    if batch.get_total_buffer_size() <= JOINED_BYTES_MAX:
        return b"".join((batch.schema.serialize(), batch.serialize(), _STREAM_END))
    sink = _Parts()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), batch.schema, options=_OPTIONS) as stream:
        stream.write_batch(batch)
    return joined(sink.parts)


class _Parts(io.RawIOBase):
    """A file that keeps the buffers that are written to it. PyArrow passes those of a column without a copy."""

    def __init__(self) -> None:
        self.parts: list[memoryview] = []

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any, /) -> int:
        """Add a part."""
        part = memoryview(data).cast("B")
        self.parts.append(part)
        return len(part)
