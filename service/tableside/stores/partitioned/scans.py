"""Positions and splits of a table of several partitions: which of them, and where in it. Pure.

A split is some partitions as a whole, or a part of one.
"""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from ...errors import MalformedRequest


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a scan goes on: in which partition, and after which position there; None is from its start."""

    partition: int
    inner: bytes | None = None


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
