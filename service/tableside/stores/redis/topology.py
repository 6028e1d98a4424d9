"""Where commands go, and how names are grouped into them: to the one server, or (see `redis_cluster`) to several."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Protocol

import msgspec

from ...core import Connections, MalformedRequest
from .connection import Node, Reply
from .keys import SLOTS
from .scripts import Command

GROUP_MAX = 1000
"""How many keys one command names."""


class Group(msgspec.Struct, frozen=True):
    """Names that may stand in one command, by their positions; all of them in one slot where that matters."""

    positions: Sequence[int]
    slot: int = 0


class Servers(Protocol):
    """One server or several."""

    several: bool

    async def run(self, commands: Sequence[Command], until: float, *, writes: bool = False) -> list[Reply]:
        """Send commands and return the reply to each; see `Node.run`."""
        ...

    async def read(self, commands: Sequence[Command], until: float) -> list[Reply]:
        """Send commands that read values and return the reply to each; see `Node.read`."""
        ...

    def groups(self, names: Sequence[str]) -> list[Group]:
        """Divide names into groups."""
        ...

    async def nodes(self, until: float) -> list[tuple[Node, frozenset[int]]]:
        """Return the servers that take writes, and their slots. Raise StoreUnavailable if they cannot be asked."""
        ...

    def connections(self) -> Connections:
        """Return how many connections there are now."""
        ...

    def close(self) -> None:
        """Let go of all connections."""
        ...


class SingleServer:
    """The one server."""

    several = False

    def __init__(self, node: Node) -> None:
        self._node = node

    async def run(self, commands: Sequence[Command], until: float, *, writes: bool = False) -> list[Reply]:
        """Send commands and return the reply to each."""
        return await self._node.run(commands, until, writes=writes)

    async def read(self, commands: Sequence[Command], until: float) -> list[Reply]:
        """Send commands that read values and return the reply to each."""
        return await self._node.read(commands, until)

    def groups(self, names: Sequence[str]) -> list[Group]:
        """Divide names by their number only."""
        return [Group(range(start, min(start + GROUP_MAX, len(names)))) for start in range(0, len(names), GROUP_MAX)]

    async def nodes(self, until: float) -> list[tuple[Node, frozenset[int]]]:
        """Return the server."""
        return [(self._node, EVERY_SLOT)]

    def connections(self) -> Connections:
        """Return how many connections there are now."""
        return self._node.connections()

    def close(self) -> None:
        """Let go of all connections."""
        self._node.close()


EVERY_SLOT = frozenset(range(SLOTS))

PARTS_PER_NODE_MAX = 8
"""A part of a node's slots is found by going through all of its names: more parts would cost more than they gain."""


def to_text(slots: Iterable[int]) -> str:
    """Return slots as ranges: `0-5460,5470`."""
    ranges: list[list[int]] = []
    for slot in sorted(slots):
        if ranges and ranges[-1][1] == slot - 1:
            ranges[-1][1] = slot
        else:
            ranges.append([slot, slot])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in ranges)


def from_text(text: str) -> frozenset[int]:
    """Return the slots that `to_text` wrote. Raise ValueError for anything else."""
    slots: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.partition("-")
        first, last = int(low), int(high if dash else low)
        if not 0 <= first <= last < SLOTS:
            raise ValueError("no range of slots")
        slots.update(range(first, last + 1))
    return EVERY_SLOT if len(slots) == SLOTS else frozenset(slots)


def of_split(split: bytes | None) -> frozenset[int]:
    """Return the slots of a split; None is the whole table. Raise MalformedRequest if it is none."""
    try:
        return EVERY_SLOT if split is None else from_text(split.decode())
    except ValueError:
        raise MalformedRequest("no split of this table") from None


def splits(nodes: Sequence[frozenset[int]], count_max: int) -> list[bytes]:
    """Return at most `count_max` parts of all slots, none with slots of two nodes if there may be so many."""
    if not nodes:
        return [to_text(EVERY_SLOT).encode()]
    each = min(max(1, count_max // len(nodes)), PARTS_PER_NODE_MAX)
    pieces = [_piece(slots, at, each) for slots in nodes for at in range(each)]
    parts = [set(chain.from_iterable(pieces[at::count_max])) for at in range(min(count_max, len(pieces)))]
    parts[0] |= EVERY_SLOT.difference(*nodes)
    return [to_text(part).encode() for part in parts if part]


def _piece(slots: frozenset[int], at: int, count: int) -> list[int]:
    ordered = sorted(slots)
    return ordered[len(ordered) * at // count : len(ordered) * (at + 1) // count]
