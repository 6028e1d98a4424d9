"""Positions, pages and splits of a table of several partitions: which of them, and where in it.

A split is some partitions as a whole, or a part of one.
"""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from ...core import Key, MalformedRequest, Page, Record, Scan


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a scan goes on: in which partition, and after which position there; None is from its start."""

    partition: int
    inner: bytes | None = None


class Filled:
    """What a page holds so far, of what a scan asks for."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._size_bytes = 0
        self.records: list[tuple[Key, Record]] = []
        self._partitions: list[int] = []

    @property
    def full(self) -> bool:
        """Whether nothing more fits."""
        return len(self.records) >= self._scan.limit or self._size_bytes > self._scan.bytes_max

    def rest(self, inner_split: bytes | None, inner_position: bytes | None) -> Scan:
        """Return what is still to be read, of one partition."""
        return msgspec.structs.replace(
            self._scan,
            limit=self._scan.limit - len(self.records),
            bytes_max=self._scan.bytes_max - self._size_bytes,
            split=inner_split,
            position=inner_position,
            partitions=None,
        )

    def add(self, page: Page, partition: int) -> None:
        """Add what was read of one partition."""
        self.records += page.records
        self._partitions += [partition] * len(page.records)
        self._size_bytes += sum(len(record.value) for _, record in page.records)

    def page(self, then: Position | None) -> Page:
        """Return the page, and where to go on."""
        return Page(self.records, None if then is None else encoded(then), self._partitions or None)


class Split(msgspec.Struct, frozen=True, array_like=True):
    """The partitions from one to another, both included; of a single one perhaps only a part."""

    first: int
    last: int
    inner: bytes | None = None


def encoded(found: Position | Split) -> bytes:
    """Return it as bytes."""
    return msgspec.msgpack.encode(found)


def position(raw: bytes) -> Position:
    """Return a position that was encoded here. Raise MalformedRequest if it is none."""
    try:
        return msgspec.msgpack.decode(raw, type=Position)
    except msgspec.MsgspecError:
        raise MalformedRequest("no cursor of this scan") from None


def split(raw: bytes) -> Split:
    """Return a split that was encoded here. Raise MalformedRequest if it is none."""
    try:
        return msgspec.msgpack.decode(raw, type=Split)
    except msgspec.MsgspecError:
        raise MalformedRequest("no split of this table") from None


def shares(count_max: int, partitions: int) -> Sequence[int]:
    """Share out so many splits: at least one to each partition."""
    each, more = divmod(count_max, partitions)
    return [each + (index < more) for index in range(partitions)]


def runs(count_max: int, partitions: int) -> list[Split]:
    """Return splits of whole partitions, where there are fewer splits than partitions."""
    bounds = [partitions * index // count_max for index in range(count_max + 1)]
    return [Split(low, high - 1) for low, high in pairwise(bounds)]
