"""Ranges of encoded keys: what a scan of a sorted store goes through, and how such a store is split."""

import binascii
from collections.abc import Sequence

import msgspec

from .errors import MalformedRequest
from .store import Scan, TableSpec


class Range(msgspec.Struct, frozen=True):
    """Encoded keys from `low` (included) to `high` (excluded; None is the end)."""

    low: bytes = b""
    high: bytes | None = None

    def intersection(self, other: "Range") -> "Range":
        """Return what both hold."""
        ends = [end for end in (self.high, other.high) if end is not None]
        return Range(max(self.low, other.low), min(ends) if ends else None)

    @property
    def empty(self) -> bool:
        """Whether no key can be inside."""
        return self.high is not None and self.low >= self.high

    def to_split(self) -> bytes:
        """Return the text by which a caller names this part of a table."""
        return self.low.hex().encode() + b"-" + (b"" if self.high is None else b"." + self.high.hex().encode())

    @staticmethod
    def from_split(split: bytes) -> "Range":
        """Return the range that `to_split` wrote. Raise MalformedRequest for anything else."""
        low, dash, high = split.partition(b"-")
        try:
            if not dash or high[:1] not in (b"", b"."):
                raise ValueError
            return Range(binascii.unhexlify(low), binascii.unhexlify(high[1:]) if high else None)
        except ValueError:
            raise MalformedRequest("no split of this table") from None


def scan_range(spec: TableSpec, scan: Scan) -> Range:
    """Return the range of encoded keys that is still to read."""
    wanted = Range(*spec.key.bounds(scan.partition, scan.prefix))
    if scan.split is not None:
        wanted = wanted.intersection(Range.from_split(scan.split))
    if scan.position is not None:
        wanted = wanted.intersection(Range(scan.position + b"\0"))
    return wanted


def ranges_between(boundaries: Sequence[bytes]) -> list[Range]:
    """Return the ranges that strictly rising boundaries divide all keys into."""
    lows = [b"", *boundaries]
    highs: list[bytes | None] = [*boundaries, None]
    return [Range(low, high) for low, high in zip(lows, highs, strict=True)]
