"""The names of the Redis keys of a column of records, packed into a command without an object for each."""

from functools import lru_cache
from typing import Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ...core import Key, LazySequence, text_of

NamedKey: TypeAlias = tuple[str, Key]
"""The name of a record's Redis key, and the record's key."""

_SIDE_START, _SIDE_END = "_ts:{", "}"
"""What precedes and follows a name in the usual name of its side key. `keys.side_key` has the rules."""


class NameColumn(LazySequence[str]):
    """Names that consist of a table's prefix and the texts in a column."""

    def __init__(self, prefix: str, texts: pa.Array) -> None:
        self._prefix = prefix
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def have_usual_side_keys(self) -> bool:
        """Whether `packed_with_side_keys` knows the names of all side keys."""
        return _SIDE_END not in self._prefix and _SIDE_END.encode() not in text_of(self._texts)

    def packed(self) -> bytes:
        """Return the names as they are sent, each after its length."""
        return packed_column(self._texts.cast(pa.binary()), self._prefix)

    def packed_with_side_keys(self) -> bytes:
        """Return the names as they are sent, each followed by the name of its side key."""
        texts, side = self._texts.cast(pa.binary()), f"{_SIDE_START}{self._prefix}"
        before, between = _starts_of(texts, self._prefix), _starts_of(texts, side, len(_SIDE_END))
        return _sent(pc.binary_join_element_wise(before, texts, between, texts, _SIDE_END.encode(), b""))

    def _make(self) -> list[str]:
        return [f"{self._prefix}{text}" for text in self._texts.to_pylist()]

    def _part(self, part: slice) -> Self:
        return type(self)(self._prefix, self._texts[part])


class NamedKeyColumn(LazySequence[NamedKey]):
    """The names of records' Redis keys, and the column of the records' keys."""

    def __init__(self, names: NameColumn, keys: pa.Array) -> None:
        self.names = names
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)

    def _make(self) -> list[NamedKey]:
        return list(zip(self.names, self.keys.to_pylist(), strict=True))

    def _part(self, part: slice) -> Self:
        return type(self)(self.names[part], self.keys[part])


def packed_column(texts: pa.Array, prefix: str = "") -> bytes:
    """Return texts of type `binary` with a prefix as they are sent, each after its length."""
    return _sent(pc.binary_join_element_wise(_starts_of(texts, prefix), texts, b""))


def _sent(words: pa.Array) -> bytes:
    """Return words that each begin with a line end, as they are sent: each ends with it."""
    return b"%b\r\n" % text_of(words)[2:]


def _starts_of(texts: pa.Array, prefix: str, more: int = 0) -> pa.Array | pa.Scalar:
    """Return what precedes each text: a line end, the length of the word, the prefix. `more` bytes follow the text."""
    lengths = pc.binary_length(texts)
    bounds = pc.min_max(lengths).as_py()
    longest: int = bounds["max"]
    starts = _starts(prefix, more, longest.bit_length())
    return starts[longest] if bounds["min"] == longest else starts.take(lengths)


@lru_cache(maxsize=256)
def _starts(prefix: str, more: int, bits: int) -> pa.Array:
    """Return what precedes a text, by its length of so many bits."""
    start = prefix.encode()
    lengths = range(len(start) + more, len(start) + more + (1 << bits))
    return pa.array([b"\r\n$%d\r\n%b" % (length, start) for length in lengths], pa.binary())
