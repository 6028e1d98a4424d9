"""The names of the Redis keys of a column of records, packed into a command without an object for each."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import overload

import pyarrow as pa
import pyarrow.compute as pc

from ...core import text_of


class NameColumn(Sequence[str]):
    """Names that consist of a table's prefix and the texts in a column."""

    def __init__(self, prefix: str, texts: pa.Array) -> None:
        self._prefix = prefix
        self._texts = texts
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "NameColumn": ...
    def __getitem__(self, index: int | slice) -> "str | NameColumn":
        return NameColumn(self._prefix, self._texts[index]) if isinstance(index, slice) else self._objects()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._objects())

    def packed(self) -> bytes:
        """Return the names as they are sent, each after its length."""
        lengths = pc.binary_length(self._texts)
        bounds = pc.min_max(lengths).as_py()
        longest: int = bounds["max"]
        starts = _starts(self._prefix, longest.bit_length())
        before = starts[longest] if bounds["min"] == longest else starts.take(lengths)
        names = pc.binary_join_element_wise(before, self._texts.cast(pa.binary()), b"")
        return b"%b\r\n" % text_of(names)[2:]

    def _objects(self) -> list[str]:
        if len(self._names) != len(self):
            self._names = [f"{self._prefix}{text}" for text in self._texts.to_pylist()]
        return self._names


@lru_cache(maxsize=256)
def _starts(prefix: str, bits: int) -> pa.Array:
    """Return what precedes a text, by its length of so many bits: a line end, the length of the name, the prefix."""
    start = prefix.encode()
    return pa.array([b"\r\n$%d\r\n%b" % (len(start) + length, start) for length in range(1 << bits)], pa.binary())
