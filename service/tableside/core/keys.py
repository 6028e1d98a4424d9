"""Keys: their validation, their representation in paths and JSON, and an order-preserving encoding.

A string part is encoded as UTF-8. An integer part is encoded as eight bytes, big-endian with the sign bit flipped. A
string part that another part follows ends with a zero byte, which strings cannot contain. Encoded keys therefore
compare, byte by byte, in the order of the keys, and the records of one partition are adjacent.
"""

import binascii
import re
from collections.abc import Sequence
from typing import Literal, cast
from urllib.parse import unquote_to_bytes

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from .batch import ARROW_RECORDS_MIN, joined_cells
from .errors import InvalidOperation, MalformedRequest
from .operations import Key, Part
from .values import INTEGER_MAX, INTEGER_MIN, JsonObject, kind_of

PartType = Literal["string", "integer"]

STRING_BYTES_MAX = 1024

_INTEGER = re.compile(rb"-?(0|[1-9][0-9]{0,18})")
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_DECODED = ". A / in a key is %2F in a path. If the client sent %2F, a proxy has decoded it: send the key in a batch"
_SIGN_OFFSET = 1 << 63
_TERMINATOR = b"\0"


class KeyField(msgspec.Struct, frozen=True):
    """One part of a table's keys. The name is None if the configuration does not name it."""

    name: str | None = None
    type: PartType = "string"


class KeySchema(msgspec.Struct, frozen=True):
    """The parts of a table's keys, in order. The first is the partition. The others sort records within it."""

    fields: tuple[KeyField, ...] = (KeyField(),)

    @property
    def composite(self) -> bool:
        """Whether a key is a tuple of parts."""
        return len(self.fields) > 1

    def from_json(self, raw: object) -> Key:
        """Return the key from a value of JSON or Arrow. Raise InvalidOperation if it is not valid."""
        if not self.composite:
            return checked_part(raw, self.fields[0].type)
        if not isinstance(raw, (list, tuple)) or len(raw) != len(self.fields):
            raise InvalidOperation(f"a key of this table is an array of {len(self.fields)} parts")
        return tuple(checked_part(part, field.type) for part, field in zip(raw, self.fields, strict=True))

    def checked_all(self, raws: Sequence[object]) -> Sequence[Key] | None:
        """Return the keys if a fast check shows that all are valid. None means that each must be checked."""
        if isinstance(raws, pa.Array):
            return cast("Sequence[Key]", raws)  # from `checked_strings`
        if not self.composite:
            return cast("Sequence[Key]", raws) if _all_valid(raws, self.fields[0].type) else None
        keys = cast("Sequence[Sequence[Part]]", raws)
        if not set(map(type, keys)) <= {tuple, list} or set(map(len, keys)) != {len(self.fields)}:
            return None
        parts = zip(zip(*keys, strict=True), self.fields, strict=True)
        return list(map(tuple, keys)) if all(_all_valid(column, field.type) for column, field in parts) else None

    def checked_strings(self, keys: pa.ChunkedArray) -> pa.Array | None:
        """Return many keys as one array of strings if all are valid. None means that each must be checked."""
        if self.composite or self.fields[0].type != "string" or len(keys) < ARROW_RECORDS_MIN or keys.null_count:
            return None
        if pa.types.is_large_string(keys.type):
            keys = keys.cast(pa.utf8())
        if not pa.types.is_string(keys.type):
            return None
        lengths, texts = pc.min_max(pc.binary_length(keys)).as_py(), keys.combine_chunks()
        if not 0 < lengths["min"] <= lengths["max"] <= STRING_BYTES_MAX:
            return None
        return None if _TERMINATOR in bytes(joined_cells(texts)) else texts

    def from_path(self, segments: Sequence[bytes]) -> Key:
        """Return the key with these percent-encoded path segments as its parts."""
        if len(segments) != len(self.fields):
            expected = f"{len(self.fields)} part{'s' if self.composite else ''}, one path segment each"
            more = len(segments) > len(self.fields)
            raise InvalidOperation(f"a key of this table has {expected}{_DECODED if more else ''}")
        if not self.composite:
            return part_from_text(segments[0], self.fields[0].type)
        return tuple(part_from_text(text, field.type) for text, field in zip(segments, self.fields, strict=True))

    def encode(self, key: Key) -> bytes:
        """Return the encoded key. Encoded keys sort in the order of the keys."""
        if type(key) is str:
            return key.encode()
        if type(key) is tuple:
            return b"".join([_encode_part(part, last=False) for part in key[:-1]]) + _encode_part(key[-1], last=True)
        assert isinstance(key, int)
        return (key + _SIGN_OFFSET).to_bytes(8, "big")

    def encode_all(self, keys: Sequence[Key], prefix: bytes) -> list[bytes]:
        """Return the encoded keys, each after the prefix."""
        if isinstance(keys, pa.Array):
            return cast("list[bytes]", pc.binary_replace_slice(keys.view(pa.binary()), 0, 0, prefix).to_pylist())
        if not keys or self.composite or self.fields[0].type == "integer":
            return [prefix + self.encode(key) for key in keys]
        # No key contains U+0000, and no UTF-8 the byte 255. A loop takes twice as long.
        texts = "\0".join(cast("Sequence[str]", keys)).encode()
        return (prefix + texts.replace(b"\0", b"\xff" + prefix)).split(b"\xff")

    def decode(self, text: bytes) -> Key:
        """Return the key from its encoding."""
        parts: list[Part] = []
        last = len(self.fields) - 1
        for index, field in enumerate(self.fields):
            if field.type == "integer":
                parts.append(int.from_bytes(text[:8], "big") - _SIGN_OFFSET)
                text = text[8:]
            else:
                part, _, text = (text, b"", b"") if index == last else text.partition(_TERMINATOR)
                parts.append(part.decode())
        return tuple(parts) if self.composite else parts[0]

    def decode_all(self, texts: Sequence[bytes]) -> list[Key]:
        """Return the keys from their encodings. Strings take no call of `decode`."""
        if len(self.fields) == 1 and self.fields[0].type == "string":
            return [text.decode() for text in texts]
        return list(map(self.decode, texts))

    def bounds(self, partition: Part | None, prefix: str | None) -> tuple[bytes, bytes | None]:
        """Return the bounds of a scan's encoded keys: low (inclusive) and high (exclusive, None means unbounded).

        The prefix applies to the first part of the key, or to the second if a partition is given.
        """
        start = b"" if partition is None else _encode_part(partition, last=not self.composite)
        field = self.fields[0 if partition is None else min(1, len(self.fields) - 1)]
        if prefix:
            if field.type != "string":
                raise InvalidOperation("a prefix needs a key part that is a string")
            if "\0" in prefix:
                raise InvalidOperation("a prefix contains U+0000")
            start += prefix.encode()
        return start, prefix_end(start)

    def without_key(self, value: JsonObject, key: Key) -> JsonObject:
        """Remove the members that repeat the key from a value. Raise InvalidOperation if one differs from the key."""
        parts = key if isinstance(key, tuple) else (key,)
        for field, part in zip(self.fields, parts, strict=True):
            if field.name is not None and field.name in value:
                member = value.pop(field.name)
                if isinstance(member, bool) or member != part:
                    raise InvalidOperation(f"member {field.name!r} of the value differs from the key")
        return value

    @property
    def has_names(self) -> bool:
        """Whether the key's parts have names, so that members of a value may repeat the key."""
        return self.fields[0].name is not None

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the named parts."""
        return frozenset(field.name for field in self.fields if field.name is not None)


def _all_valid(raws: Sequence[object], kind: PartType) -> bool:
    """Return whether all are strings that are certainly short enough, or integers of 64 bits."""
    if kind == "integer":
        integers = cast("Sequence[int]", raws)
        return set(map(type, raws)) == {int} and min(integers) >= INTEGER_MIN and max(integers) <= INTEGER_MAX
    try:
        texts = "\0".join(["", *cast("Sequence[str]", raws), ""]).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    if not all(raws) or texts.count(_TERMINATOR) != len(raws) + 1:
        return False  # One is empty or contains U+0000.
    at, last = 0, len(texts) - 1
    while 0 <= at < last:  # To the last terminator that is near enough: faster than the length of each string.
        at = texts.rfind(_TERMINATOR, at + 1, at + STRING_BYTES_MAX + 2)
    return at == last


def checked_part(raw: object, kind: PartType) -> Part:
    """Validate one part of a key and return it. Raise InvalidOperation if it is not valid."""
    if kind == "string":
        if type(raw) is not str:
            raise InvalidOperation(f"a key of this table is a string, not {kind_of(raw)}")
        if raw.isascii() and 0 < len(raw) <= STRING_BYTES_MAX and "\0" not in raw:
            return raw
        try:
            size_bytes = len(raw.encode())
        except UnicodeEncodeError:
            raise InvalidOperation("a key contains a lone surrogate") from None
        if not 1 <= size_bytes <= STRING_BYTES_MAX:
            raise InvalidOperation(f"a string in a key must have 1 to {STRING_BYTES_MAX} bytes of UTF-8")
        if "\0" in raw:
            raise InvalidOperation("a key contains U+0000")
        return raw
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    if not isinstance(raw, int) or isinstance(raw, bool):
        found = "a number with a fraction" if isinstance(raw, float) else kind_of(raw)
        raise InvalidOperation(f"a key of this table is an integer, not {found}")
    if not INTEGER_MIN <= raw <= INTEGER_MAX:
        raise InvalidOperation("an integer key is beyond 64 bits")
    return raw


def part_from_text(segment: bytes, kind: PartType) -> Part:
    """Parse one part of a key from percent-encoded text. Integers are decimal."""
    text = segment
    if b"%" in segment:
        if _BROKEN_ESCAPE.search(segment):
            raise MalformedRequest("a key in a path or query is not percent-encoded")
        text = unquote_to_bytes(segment)
    if kind == "integer":
        if not _INTEGER.fullmatch(text):
            raise InvalidOperation("a key of this table is a decimal integer")
        return checked_part(int(text), kind)
    try:
        return checked_part(text.decode(), kind)
    except UnicodeDecodeError:
        raise InvalidOperation("a key is not UTF-8") from None


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the smallest bytes greater than all that start with the prefix, or None if there are none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _encode_part(part: Part, *, last: bool) -> bytes:
    if isinstance(part, int):
        return (part + _SIGN_OFFSET).to_bytes(8, "big")
    return part.encode() if last else part.encode() + _TERMINATOR


# Ranges of encoded keys, for the scans and splits of sorted stores


class Range(msgspec.Struct, frozen=True):
    """The encoded keys from `low` (inclusive) to `high` (exclusive, None means unbounded)."""

    low: bytes = b""
    high: bytes | None = None

    def intersection(self, other: "Range") -> "Range":
        """Return the range of keys that are in both ranges."""
        ends = [end for end in (self.high, other.high) if end is not None]
        return Range(max(self.low, other.low), min(ends) if ends else None)

    @property
    def empty(self) -> bool:
        """Whether the range contains no keys."""
        return self.high is not None and self.low >= self.high

    def to_split(self) -> bytes:
        """Return the text that identifies this range as a split of a table."""
        return self.low.hex().encode() + b"-" + (b"" if self.high is None else b"." + self.high.hex().encode())

    @staticmethod
    def from_split(split: bytes) -> "Range":
        """Parse the text that `to_split` returned. Raise MalformedRequest for any other text."""
        low, dash, high = split.partition(b"-")
        try:
            if not dash or high[:1] not in (b"", b"."):
                raise ValueError
            return Range(binascii.unhexlify(low), binascii.unhexlify(high[1:]) if high else None)
        except ValueError:
            raise MalformedRequest("not a split of this table") from None


def even_splits(keys: Sequence[bytes], count_max: int) -> list[bytes]:
    """Return at most `count_max` splits that divide these sorted keys into equal parts."""
    count = max(1, min(count_max, len(keys)))
    boundaries = [keys[len(keys) * index // count] for index in range(1, count)]
    bounds = zip([b"", *boundaries], [*boundaries, None], strict=True)
    return [Range(low, high).to_split() for low, high in bounds]
