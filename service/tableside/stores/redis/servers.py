"""Where commands go, and how names are grouped into them: to the one server, or (see `redis_cluster`) to several."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ...core import Connections
from .connection import Node, Reply
from .scripts import Command
from .slots import EVERY_SLOT

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
