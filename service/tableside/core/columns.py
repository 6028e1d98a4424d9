"""Gets, puts and their outcomes in columns, so that a batch needs no objects for each record.

The classes are sequences of the usual objects. These are made when the first one is requested, so a policy or a store
without special code for columns works unchanged.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Self, TypeVar, overload

import pyarrow as pa
import pyarrow.compute as pc

from .keys import STRING_BYTES_MAX, KeySchema
from .operations import Get, Key, Put, Record, Written

Item = TypeVar("Item")

KEYS_MIN = 128
"""Shorter columns are not faster than objects: each call of PyArrow takes as long as making ten objects."""

KEY_BYTES_MAX = 2**20
"""The maximum size of a column of keys, or of operations. It is checked in one step."""

COLUMN_BYTES_MAX = 2**21
"""The maximum size of the values of a call in columns. They are copied in one step."""


class LazySequence(Sequence[Item], ABC):
    """A sequence that makes its items when the first one is requested."""

    _items: list[Item] | None = None

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Item | Self:
        return self._part(index) if isinstance(index, slice) else self._made()[index]

    def __iter__(self) -> Iterator[Item]:
        return iter(self._made())

    def _made(self) -> list[Item]:
        if self._items is None:
            self._items = self._make()
        return self._items

    @abstractmethod
    def _make(self) -> list[Item]:
        """Return all items."""

    @abstractmethod
    def _part(self, part: slice) -> Self:
        """Return some of the items, without making them."""


class KeyColumn(LazySequence[Item], ABC):
    """Operations on valid keys: a column of strings or 64-bit integers without nulls."""

    def __init__(self, keys: pa.Array) -> None:
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def keys_differ(self) -> bool:
        """Whether no key occurs twice."""
        return len(pc.unique(self.keys)) == len(self)


class GetColumn(KeyColumn[Get]):
    """Gets without options."""

    def _make(self) -> list[Get]:
        return list(map(Get, self.keys.to_pylist()))

    def _part(self, part: slice) -> Self:
        return type(self)(self.keys[part])


class PutColumn(KeyColumn[Put]):
    """Puts without options: `are_plain_puts` is true. `values` are canonical texts of at most `COLUMN_BYTES_MAX`."""

    def __init__(self, keys: pa.Array, values: pa.Array) -> None:
        super().__init__(keys)
        self.values = values

    def _make(self) -> list[Put]:
        return list(map(Put, self.keys.to_pylist(), self.values.to_pylist()))

    def _part(self, part: slice) -> Self:
        return type(self)(self.keys[part], self.values[part])


class WrittenColumn(LazySequence[Written]):
    """The outcomes of puts that replaced or created a record: a column of etags."""

    def __init__(self, etags: pa.Array) -> None:
        self.etags = etags

    def __len__(self) -> int:
        return len(self.etags)

    def _make(self) -> list[Written]:
        return list(map(Written, self.etags.to_pylist()))

    def _part(self, part: slice) -> Self:
        return type(self)(self.etags[part])


class RecordColumns(LazySequence[Record | None]):
    """The outcomes of gets whose records do not expire: columns of values and etags, null for absent records."""

    def __init__(self, values: pa.Array, etags: pa.Array) -> None:
        self.values = values
        self.etags = etags

    def __len__(self) -> int:
        return len(self.values)

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

    def _make(self) -> list[Record | None]:
        columns = zip(self.values.to_pylist(), self.etags.to_pylist(), strict=True)
        return [None if value is None else Record(value, etag) for value, etag in columns]

    def _part(self, part: slice) -> Self:
        return type(self)(self.values[part], self.etags[part])


class KeyedRecords(LazySequence[tuple[Key, Record]]):
    """The records of a page, none of which is absent: a column of keys, and the columns of the records."""

    def __init__(self, keys: pa.Array, records: RecordColumns) -> None:
        self.keys = keys
        self.records = records

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def of(cls, keys: Sequence[Key], records: Sequence[Record], key_type: pa.DataType) -> Self:
        """Return records that do not expire, in columns."""
        values = pa.array([record.value for record in records], pa.binary())
        etags = pa.array([record.etag for record in records], pa.utf8())
        return cls(pa.array(keys, key_type), RecordColumns(values, etags))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the records of several parts."""
        values, etags = ([getattr(part.records, name) for part in parts] for name in ("values", "etags"))
        records = RecordColumns(pa.concat_arrays(values), pa.concat_arrays(etags))
        return cls(pa.concat_arrays([part.keys for part in parts]), records)

    def _make(self) -> list[tuple[Key, Record]]:
        return [(key, record) for key, record in zip(self.keys.to_pylist(), self.records, strict=True) if record]

    def _part(self, part: slice) -> Self:
        return type(self)(self.keys[part], self.records[part])


def key_column(keys: pa.ChunkedArray, schema: KeySchema) -> pa.Array | None:
    """Return the keys, or None if one may be invalid or objects are faster. Then each must be checked."""
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
    return column


def text_of(column: pa.Array) -> bytes:
    """Return all texts of a column of type `binary` or `utf8`, one after another."""
    start, end = _bounds(column)
    return memoryview(column.buffers()[2])[start:end].tobytes() if start < end else b""


def etag_column(etags: str, like: pa.Array) -> pa.Array:
    """Return a column of etags of one length, which are given one after another, with the nulls of another column."""
    column = column_of_equal_lengths(etags.encode(), len(like), pa.utf8())
    return pc.if_else(like.is_valid(), column, None) if like.null_count else column


def column_of_equal_lengths(texts: bytes, count: int, kind: pa.DataType) -> pa.Array:
    """Return a column of type `binary` or `utf8` of texts of one length, which are given one after another."""
    places = _multiples(len(texts) // max(count, 1), count.bit_length())
    return pa.Array.from_buffers(kind, count, [None, places, pa.py_buffer(texts)])


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
