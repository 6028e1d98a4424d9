"""The names of the Redis keys of a column of records, packed into a command without an object for each."""

from functools import lru_cache
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from ...core import LazySequence, text_of


class NameColumn(LazySequence[str]):
    """Names that consist of a table's prefix and the texts in a column."""

    def __init__(self, prefix: str, texts: pa.Array) -> None:
        self._prefix = prefix
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def packed(self) -> bytes:
        """Return the names as they are sent, each after its length."""
        lengths = pc.binary_length(self._texts)
        bounds = pc.min_max(lengths).as_py()
        longest: int = bounds["max"]
        starts = _starts(self._prefix, longest.bit_length())
        before = starts[longest] if bounds["min"] == longest else starts.take(lengths)
        names = pc.binary_join_element_wise(before, self._texts.cast(pa.binary()), b"")
        return b"%b\r\n" % text_of(names)[2:]

    def _make(self) -> list[str]:
        return [f"{self._prefix}{text}" for text in self._texts.to_pylist()]

    def _part(self, part: slice) -> Self:
        return type(self)(self._prefix, self._texts[part])


@lru_cache(maxsize=256)
def _starts(prefix: str, bits: int) -> pa.Array:
    """Return what precedes a text, by its length of so many bits: a line end, the length of the name, the prefix."""
    start = prefix.encode()
    return pa.array([b"\r\n$%d\r\n%b" % (len(start) + length, start) for length in range(1 << bits)], pa.binary())
