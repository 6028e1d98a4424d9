"""Gets and their outcomes in columns, so that a batch needs no objects for each record.

Both classes are sequences of the usual objects. These are made when the first one is requested, so a policy or a store
without special code for columns works unchanged.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import overload

import pyarrow as pa
import pyarrow.compute as pc

from .keys import STRING_BYTES_MAX, KeySchema
from .operations import Get, Record

KEYS_MIN = 128
"""Shorter columns are not faster than objects: each call of PyArrow takes as long as making ten objects."""

KEY_BYTES_MAX = 2**20
"""The maximum size of a column of keys, or of operations. It is checked in one step."""

COLUMN_BYTES_MAX = 2**21
"""The maximum size of the records of a call in columns. They are copied in one step."""


class GetColumn(Sequence[Get]):
    """Gets of valid keys: a column of strings or 64-bit integers without nulls."""

    def __init__(self, keys: pa.Array) -> None:
        self.keys = keys
        self._gets: list[Get] = []

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> Get: ...
    @overload
    def __getitem__(self, index: slice) -> "GetColumn": ...
    def __getitem__(self, index: int | slice) -> "Get | GetColumn":
        return GetColumn(self.keys[index]) if isinstance(index, slice) else self._objects()[index]

    def __iter__(self) -> Iterator[Get]:
        return iter(self._objects())

    @property
    def keys_differ(self) -> bool:
        """Whether no key occurs twice."""
        return len(pc.unique(self.keys)) == len(self)

    def _objects(self) -> list[Get]:
        if len(self._gets) != len(self):
            self._gets = list(map(Get, self.keys.to_pylist()))
        return self._gets


class RecordColumns(Sequence[Record | None]):
    """The outcomes of gets whose records do not expire: columns of values and etags, null for absent records."""

    def __init__(self, values: pa.Array, etags: pa.Array) -> None:
        self.values = values
        self.etags = etags
        self._outcomes: list[Record | None] = []

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Record | None: ...
    @overload
    def __getitem__(self, index: slice) -> "RecordColumns": ...
    def __getitem__(self, index: int | slice) -> "Record | RecordColumns | None":
        if isinstance(index, slice):
            return RecordColumns(self.values[index], self.etags[index])
        return self._objects()[index]

    def __iter__(self) -> Iterator[Record | None]:
        return iter(self._objects())

    @property
    def absent_count(self) -> int:
        """The number of absent records."""
        count: int = self.values.null_count
        return count

    @property
    def value_bytes(self) -> int:
        """The size of all values."""
        start, end = _bounds(self.values)
        return end - start

    def _objects(self) -> list[Record | None]:
        if len(self._outcomes) != len(self):
            columns = zip(self.values.to_pylist(), self.etags.to_pylist(), strict=True)
            self._outcomes = [None if value is None else Record(value, etag) for value, etag in columns]
        return self._outcomes


def get_column(keys: pa.ChunkedArray, schema: KeySchema) -> GetColumn | None:
    """Return gets of the keys, or None if one may be invalid or objects are faster. Then each must be checked."""
    if schema.composite or len(keys) < KEYS_MIN or keys.nbytes > KEY_BYTES_MAX:
        return None
    is_text = schema.fields[0].type == "string"
    if not (_is_text(keys.type) if is_text else pa.types.is_integer(keys.type)):
        return None
    try:
        column = keys.cast(pa.utf8() if is_text else pa.int64()).combine_chunks()
    except pa.ArrowInvalid:  # an unsigned integer beyond 63 bits
        return None
    if column.null_count or (is_text and not _are_valid(column)):
        return None
    return GetColumn(column)


def text_of(column: pa.Array) -> bytes:
    """Return all texts of a column of type `binary` or `utf8`, one after another."""
    start, end = _bounds(column)
    return memoryview(column.buffers()[2])[start:end].tobytes() if start < end else b""


def etag_column(etags: str, like: pa.Array) -> pa.Array:
    """Return a column of etags of one length, which are given one after another, with the nulls of another column."""
    count = len(like)
    places = _multiples(len(etags) // max(count, 1), count.bit_length())
    column = pa.Array.from_buffers(pa.utf8(), count, [None, places, pa.py_buffer(etags.encode())])
    return pc.if_else(like.is_valid(), column, None) if like.null_count else column


@lru_cache(maxsize=32)
def _multiples(number: int, bits: int) -> pa.Buffer:
    """Return the first multiples of a number as 32-bit integers: more than a number of so many bits."""
    return pa.array(range(0, (number << bits) + 1, max(number, 1)), pa.int32()).buffers()[1]


def _bounds(column: pa.Array) -> tuple[int, int]:
    """Return where the texts of a column begin and end in their buffer."""
    if not len(column):
        return 0, 0  # An empty column may lack the buffers.
    places = memoryview(column.buffers()[1]).cast("i")
    return places[column.offset], places[column.offset + len(column)]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _are_valid(keys: pa.Array) -> bool:
    """Return whether texts that are UTF-8 are keys. `KeySchema` has the rules."""
    lengths = pc.min_max(pc.binary_length(keys)).as_py()
    return lengths["min"] >= 1 and lengths["max"] <= STRING_BYTES_MAX and b"\0" not in text_of(keys)
