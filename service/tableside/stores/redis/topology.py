"""Routing of commands to one server or to the nodes of a cluster (see `cluster`), and sets of hash slots."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Protocol

import msgspec

from ...core import Connections, MalformedRequest, ReadBudget
from .connection import Node
from .driver import Reply
from .keys import SLOT_COUNT
from .scripts import Command

COMMAND_KEYS_MAX = 1000
"""How many keys one command may name."""


class KeyGroup(msgspec.Struct, frozen=True):
    """Names that one command may contain, by their positions. In a cluster all are in one slot."""

    positions: Sequence[int]
    slot: int = 0


class Servers(Protocol):
    """A single server or a cluster."""

    is_cluster: bool

    async def run(
        self, commands: Sequence[Command], until: float, *, writes: bool = False, budget: ReadBudget | None = None
    ) -> list[Reply]:
        """Send commands and return the reply to each. See `Node.run`."""
        ...

    async def read(self, commands: Sequence[Command], until: float, budget: ReadBudget) -> list[Reply]:
        """Send commands that read values and return the reply to each. See `Node.read`."""
        ...

    def groups(self, names: Sequence[str]) -> list[KeyGroup]:
        """Group names into commands."""
        ...

    async def nodes(self, until: float) -> list[tuple[Node, frozenset[int]]]:
        """Return the primary nodes and their slots. Raise StoreUnavailable if the slots cannot be fetched."""
        ...

    def connections(self) -> Connections:
        """Return the current number of connections."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class SingleServer:
    """A single server."""

    is_cluster = False

    def __init__(self, node: Node) -> None:
        self._node = node

    async def run(
        self, commands: Sequence[Command], until: float, *, writes: bool = False, budget: ReadBudget | None = None
    ) -> list[Reply]:
        """Send commands and return the reply to each."""
        return await self._node.run(commands, until, writes=writes, budget=budget)

    async def read(self, commands: Sequence[Command], until: float, budget: ReadBudget) -> list[Reply]:
        """Send commands that read values and return the reply to each."""
        return await self._node.read(commands, until, budget=budget)

    def groups(self, names: Sequence[str]) -> list[KeyGroup]:
        """Group names by their number only."""
        return groups_by_number(names)

    async def nodes(self, until: float) -> list[tuple[Node, frozenset[int]]]:
        """Return the server, which serves all slots."""
        return [(self._node, ALL_SLOTS)]

    def connections(self) -> Connections:
        """Return the current number of connections."""
        return self._node.connections()

    def close(self) -> None:
        """Close all connections."""
        self._node.close()


def groups_by_number(names: Sequence[str]) -> list[KeyGroup]:
    """Group names that are all on one server."""
    return [
        KeyGroup(range(start, min(start + COMMAND_KEYS_MAX, len(names))))
        for start in range(0, len(names), COMMAND_KEYS_MAX)
    ]


ALL_SLOTS = frozenset(range(SLOT_COUNT))
_ALL_SLOTS_TEXT = f"0-{SLOT_COUNT - 1}"

SPLITS_PER_NODE_MAX = 8
"""Each split of a node scans all names of the node, so more splits would cost more than they gain."""


def format_slots(slots: Iterable[int]) -> str:
    """Return slots as text in ranges: `0-5460,5470`."""
    ranges: list[list[int]] = []
    for slot in sorted(slots):
        if ranges and ranges[-1][1] == slot - 1:
            ranges[-1][1] = slot
        else:
            ranges.append([slot, slot])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in ranges)


def parse_slots(text: str) -> frozenset[int]:
    """Return slots from the text of `format_slots`. Raise ValueError for other text."""
    if text == _ALL_SLOTS_TEXT:
        return ALL_SLOTS
    slots: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.partition("-")
        first, last = int(low), int(high if dash else low)
        if not 0 <= first <= last < SLOT_COUNT:
            raise ValueError("not a range of slots")
        slots.update(range(first, last + 1))
    return ALL_SLOTS if len(slots) == SLOT_COUNT else frozenset(slots)


def slots_of_split(split: bytes | None) -> frozenset[int]:
    """Return the slots of a split. None is the whole table. Raise MalformedRequest if the bytes are not a split."""
    try:
        return ALL_SLOTS if split is None else parse_slots(split.decode())
    except ValueError:
        raise MalformedRequest("the split does not belong to this table") from None


def slot_splits(nodes: Sequence[frozenset[int]], count_max: int) -> list[bytes]:
    """Divide all slots into at most `count_max` splits. With enough splits, none has slots of two nodes."""
    if not nodes:
        return [format_slots(ALL_SLOTS).encode()]
    each = min(max(1, count_max // len(nodes)), SPLITS_PER_NODE_MAX)
    pieces = [_piece(slots, at, each) for slots in nodes for at in range(each)]
    parts = [set(chain.from_iterable(pieces[at::count_max])) for at in range(min(count_max, len(pieces)))]
    parts[0] |= ALL_SLOTS.difference(*nodes)
    return [format_slots(part).encode() for part in parts if part]


def _piece(slots: frozenset[int], at: int, count: int) -> list[int]:
    ordered = sorted(slots)
    return ordered[len(ordered) * at // count : len(ordered) * (at + 1) // count]
