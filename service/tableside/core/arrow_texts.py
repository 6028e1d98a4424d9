"""Arrow columns of records, for stores that read many small ones: their texts are cut and compared together."""

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

COLUMN_RECORDS_MIN = 128
"""Fewer records are not read faster in columns: each call of PyArrow takes as long as ten Python objects."""

COLUMN_BYTES_MAX = 2**21
"""The maximum size of records that are read in columns. They are copied in one step."""


def may_be_column(raws: Sequence[bytes | None]) -> bool:
    """Return whether the bytes of these records are read faster in columns."""
    return len(raws) >= COLUMN_RECORDS_MIN and sum(map(len, filter(None, raws))) <= COLUMN_BYTES_MAX


def have_text(column: pa.Array, start: int, stop: int, text: bytes) -> bool:
    """Return whether all texts of a column that are not null have the same text between two positions."""
    return text_of(pc.binary_slice(column, start, stop)) == text * int(len(column) - column.null_count)


def text_of(column: pa.Array) -> bytes:
    """Return all texts of a column, which has at least one cell, one after another."""
    places = memoryview(column.buffers()[1]).cast("i")
    first, last = places[column.offset], places[column.offset + len(column)]
    return memoryview(column.buffers()[2])[first:last].tobytes() if first < last else b""


def etag_column(etags: bytes, like: pa.Array) -> pa.Array:
    """Return a column of etags of one length, which are given one after another, with the nulls of another column."""
    count = len(like)
    places = _multiples(len(etags) // max(count, 1), count.bit_length())
    column = pa.Array.from_buffers(pa.utf8(), count, [None, places, pa.py_buffer(etags)])
    return pc.if_else(like.is_valid(), column, None) if like.null_count else column


@lru_cache(maxsize=32)
def _multiples(number: int, bits: int) -> pa.Buffer:
    """Return the first multiples of a number as 32-bit integers: more than a number of so many bits."""
    return pa.array(range(0, (number << bits) + 1, max(number, 1)), pa.int32()).buffers()[1]
