"""Positions, pages and splits of a partitioned table.

A position consists of a partition and a position within it. A split is several whole partitions, or a part of one.
"""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from ...core import Key, MalformedRequest, Page, Record, Scan


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a scan continues: the partition, and the position within it. None is the partition's start."""

    partition: int
    inner: bytes | None = None


class Split(msgspec.Struct, frozen=True, array_like=True):
    """The partitions from `first` to `last`, both included. `inner` is a split of a single partition."""

    first: int
    last: int
    inner: bytes | None = None


class PageBuilder:
    """Collects records from several partitions into one page of a scan."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._size_bytes = 0
        self.records: list[tuple[Key, Record]] = []
        self._partitions: list[int] = []

    @property
    def full(self) -> bool:
        """Whether the page has reached a limit of the scan."""
        return len(self.records) >= self._scan.limit or self._size_bytes > self._scan.bytes_max

    def remaining_scan(self, inner_split: bytes | None, inner_position: bytes | None) -> Scan:
        """Return a scan of one partition for the rest of the page."""
        return msgspec.structs.replace(
            self._scan,
            limit=self._scan.limit - len(self.records),
            bytes_max=self._scan.bytes_max - self._size_bytes,
            split=inner_split,
            position=inner_position,
            partitions=None,
        )

    def add(self, page: Page, partition: int) -> None:
        """Add the records of one partition's page."""
        self.records += page.records
        self._partitions += [partition] * len(page.records)
        self._size_bytes += page.size_bytes

    def build(self, next_position: Position | None) -> Page:
        """Return the page. A next position of None ends the scan."""
        encoded = None if next_position is None else to_bytes(next_position)
        return Page(self.records, encoded, self._partitions or None)


def to_bytes(value: Position | Split) -> bytes:
    """Return a position or split in its serialized form."""
    return msgspec.msgpack.encode(value)


def parse_position(raw: bytes) -> Position:
    """Return a position from its serialized form. Raise MalformedRequest if the bytes are not a position."""
    try:
        return msgspec.msgpack.decode(raw, type=Position)
    except msgspec.MsgspecError:
        raise MalformedRequest("the cursor does not belong to this scan") from None


def parse_split(raw: bytes) -> Split:
    """Return a split from its serialized form. Raise MalformedRequest if the bytes are not a split."""
    try:
        return msgspec.msgpack.decode(raw, type=Split)
    except msgspec.MsgspecError:
        raise MalformedRequest("the split does not belong to this table") from None


def split_counts(count_max: int, partitions: int) -> Sequence[int]:
    """Distribute `count_max` splits, at least as many as there are partitions, evenly over the partitions."""
    each, more = divmod(count_max, partitions)
    return [each + (index < more) for index in range(partitions)]


def merged_splits(count_max: int, partitions: int) -> list[Split]:
    """Return `count_max` splits of whole consecutive partitions, for fewer splits than partitions."""
    bounds = [partitions * index // count_max for index in range(count_max + 1)]
    return [Split(low, high - 1) for low, high in pairwise(bounds)]
