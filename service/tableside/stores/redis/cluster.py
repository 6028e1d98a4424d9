"""The nodes of a Redis Cluster: each command goes to the node that serves the slot of its keys.

A cluster says by MOVED and ASK that a slot is elsewhere and by TRYAGAIN that it is on its way. None of these commands
was done, so they are sent again, until the deadline at most. Knows nothing of records.
"""

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeAlias

from redis import exceptions

from ...core import (
    Connections,
    DeadlineExceeded,
    InvalidOperation,
    StoreUnavailable,
    TableError,
    exponential_backoff_s,
    gather_bounded,
)
from .connection import Node, Reply
from .errors import refused
from .keys import SLOTS, slot_of
from .scripts import Command
from .topology import GROUP_MAX, Group

Address: TypeAlias = tuple[str, int]
Send: TypeAlias = Callable[[Node, Sequence[Command], bool], Coroutine[Any, Any, list[Reply]]]

TRIES_MAX = 64
PAUSE_S = 0.005
PAUSE_MAX_S = 0.25
NODES_AT_ONCE = 64
ANSWER_MAX_S = 0.8
"""How long one node is waited for to say who serves which slots, before another is asked."""

_SLOTS = b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n"
_ELSEWHERE = (exceptions.AskError, exceptions.TryAgainError)  # MovedError is an AskError to the driver


class Cluster:
    """The nodes of a Redis Cluster, of which `seed` is one."""

    several = True

    def __init__(self, seed: Address, make_node: Callable[[Address], Node]) -> None:
        self._seed = seed
        self._make_node = make_node
        self._nodes: dict[Address, Node] = {}
        self._owners: list[Address | None] = [None] * SLOTS
        self._stale = True
        self._looking = asyncio.Lock()
        self._turn = 0

    async def run(self, commands: Sequence[Command], until: float, *, writes: bool = False) -> list[Reply]:
        """Send commands to the nodes of their slots and return the reply to each."""

        async def send(node: Node, some: Sequence[Command], asking: bool) -> list[Reply]:
            return await node.run(some, until, writes=writes, asking=asking)

        return await self._routed(commands, until, send)

    async def read(self, commands: Sequence[Command], until: float) -> list[Reply]:
        """Send commands that read values to the nodes of their slots and return the reply to each."""

        async def send(node: Node, some: Sequence[Command], asking: bool) -> list[Reply]:
            return await node.read(some, until, asking=asking)

        return await self._routed(commands, until, send)

    def groups(self, names: Sequence[str]) -> list[Group]:
        """Divide names by their slots."""
        by_slot: dict[int, list[int]] = {}
        for position, name in enumerate(names):
            by_slot.setdefault(slot_of(name), []).append(position)
        return [
            Group(positions[start : start + GROUP_MAX], slot)
            for slot, positions in by_slot.items()
            for start in range(0, len(positions), GROUP_MAX)
        ]

    async def nodes(self, until: float) -> list[tuple[Node, frozenset[int]]]:
        """Return the masters and their slots, asked now."""
        self._stale = True
        await self._look(until)
        owned: dict[Address, set[int]] = {}
        for slot, address in enumerate(self._owners):
            if address is not None:
                owned.setdefault(address, set()).add(slot)
        return [(self._node(address), frozenset(slots)) for address, slots in sorted(owned.items())]

    def connections(self) -> Connections:
        """Return how many connections there are to all the nodes that are known now."""
        nodes = [node.connections() for node in self._nodes.values()]
        return Connections(
            sum(node.in_use for node in nodes), sum(node.open for node in nodes), sum(node.most for node in nodes)
        )

    def close(self) -> None:
        """Let go of all connections."""
        for node in self._nodes.values():
            node.close()

    # Where commands go

    async def _routed(self, commands: Sequence[Command], until: float, send: Send) -> list[Reply]:
        call = _Call(commands)
        time = asyncio.get_running_loop().time
        for attempt in range(TRIES_MAX):
            try:
                await self._look(until)
            except TableError as error:
                call.settle(call.waiting, [error] * len(call.waiting))
                break
            await self._once(call, send)
            pause_s = exponential_backoff_s(attempt, PAUSE_S, PAUSE_MAX_S, random.random)
            if not call.waiting or time() + pause_s >= until:
                break
            if attempt or call.in_transit:
                await asyncio.sleep(pause_s)
        return call.replies

    async def _once(self, call: "_Call", send: Send) -> None:
        """Send what is still to be done to where it belongs, and learn from the replies."""
        targets: dict[tuple[Address, bool], list[int]] = {}
        nowhere = []
        for index in call.waiting:
            address = call.asked.get(index) or self._owners[call.commands[index].slot]
            if address is None:
                nowhere.append(index)
            else:
                targets.setdefault((address, index in call.asked), []).append(index)
        works = [
            send(self._node(address), [call.commands[index] for index in indexes], asking)
            for (address, asking), indexes in targets.items()
        ]
        answers = await gather_bounded(works, NODES_AT_ONCE) if works else []
        call.settle(nowhere, [exceptions.ClusterDownError("nobody serves the slot")] * len(nowhere))
        self._stale = self._stale or bool(nowhere)
        for ((host, _), _), indexes, replies in zip(targets, targets.values(), answers, strict=True):
            call.settle(indexes, replies, host)
            self._learn(host, replies)
        call.waiting = [index for index in call.waiting if isinstance(call.replies[index], _ELSEWHERE)]

    def _learn(self, host: str, replies: Iterable[Reply]) -> None:
        for reply in replies:
            if isinstance(reply, exceptions.MovedError):
                self._owners[reply.slot_id] = (reply.host or host, reply.port)
                self._stale = True
            elif isinstance(reply, StoreUnavailable | exceptions.ClusterDownError | exceptions.ReadOnlyError):
                self._stale = True  # Another node may serve the slots by now.

    # Who serves which slots

    async def _look(self, until: float) -> None:
        """Ask who serves which slots, if that may have changed, or wait while another does.

        Raise StoreUnavailable if nobody answers, DeadlineExceeded if the time is over before.
        """
        if not self._stale:
            return
        try:
            async with asyncio.timeout_at(None if until == math.inf else until), self._looking:
                if self._stale:
                    self._take(await self._asked(until))
                    self._stale = False
        except TimeoutError:
            raise DeadlineExceeded("the deadline was over before the Redis Cluster said who serves what") from None

    async def _asked(self, until: float) -> list[tuple[int, int, Address]]:
        error: TableError = StoreUnavailable("no node of the Redis Cluster answers")
        known = [*dict.fromkeys([*self._nodes, self._seed])]
        first = self._turn % len(known)  # Another one each time: who has little patience may meet a silent one.
        for address in known[first:] + known[:first]:
            patience = min(until, asyncio.get_running_loop().time() + ANSWER_MAX_S)
            self._turn += 1
            [reply] = await self._node(address).ask(_SLOTS, 1, patience)
            if isinstance(reply, list):
                return [(low, high, _address(owner, address[0])) for low, high, owner, *_ in reply]
            if "cluster support disabled" in str(reply):
                raise InvalidOperation("this Redis is no cluster: its `stores` entry must not say `cluster: true`")
            if not isinstance(reply, DeadlineExceeded):  # That was our patience: the caller's time is his own.
                error = reply if isinstance(reply, TableError) else refused(reply)
        raise error

    def _take(self, ranges: list[tuple[int, int, Address]]) -> None:
        self._owners = [None] * SLOTS
        for low, high, address in ranges:
            self._owners[low : high + 1] = [address] * (high + 1 - low)
        known = {address for _, _, address in ranges}
        for address in [address for address in self._nodes if address not in known]:
            self._nodes.pop(address).close()

    def _node(self, address: Address) -> Node:
        if address not in self._nodes:
            self._nodes[address] = self._make_node(address)
        return self._nodes[address]


class _Call:
    """Commands that are under way, and what became of them."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = commands
        self.replies: list[Reply] = [None] * len(commands)
        self.waiting: Sequence[int] = range(len(commands))
        self.asked: dict[int, Address] = {}
        """The nodes that commands are to be sent to once, in place of the owners of their slots."""

    @property
    def in_transit(self) -> bool:
        """Whether some command must wait for its slot to arrive."""
        return any(isinstance(self.replies[index], exceptions.TryAgainError) for index in self.waiting)

    def settle(self, indexes: Sequence[int], replies: Sequence[Reply], host: str = "") -> None:
        """Take the replies to some commands, which the node of this host gave."""
        for index, reply in zip(indexes, replies, strict=True):
            self.replies[index] = reply
            self.asked.pop(index, None)
            if isinstance(reply, exceptions.AskError) and not isinstance(reply, exceptions.MovedError):
                self.asked[index] = (reply.host or host, reply.port)


def _address(owner: Any, asked: str) -> Address:
    host, port = owner[0], owner[1]
    known = host.decode() if isinstance(host, bytes) else ""
    return (known if known not in ("", "?") else asked), int(port)
