"""Ranges of encoded keys, for the scans and splits of sorted stores."""

import binascii
from collections.abc import Sequence

import msgspec

from .errors import MalformedRequest
from .store import Scan, TableSpec


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


def scan_range(spec: TableSpec, scan: Scan) -> Range:
    """Return the range of encoded keys that a scan has still to read."""
    wanted = Range(*spec.key.bounds(scan.partition, scan.prefix))
    if scan.split is not None:
        wanted = wanted.intersection(Range.from_split(scan.split))
    if scan.position is not None:
        wanted = wanted.intersection(Range(scan.position + b"\0"))
    return wanted


def ranges_between(boundaries: Sequence[bytes]) -> list[Range]:
    """Divide the range of all keys at boundaries, which must be strictly increasing."""
    lows = [b"", *boundaries]
    highs: list[bytes | None] = [*boundaries, None]
    return [Range(low, high) for low, high in zip(lows, highs, strict=True)]
