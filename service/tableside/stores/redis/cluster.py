"""A Redis Cluster: routes each command to the node that serves the slot of its keys.

Nodes reply MOVED or ASK for a slot that another node serves, and TRYAGAIN for a slot that is migrating. The node
has not run such a command, so the command is sent again, until the deadline at the latest.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeAlias

from redis import exceptions

from ...core import (
    Connections,
    DeadlineExceeded,
    InvalidOperation,
    ReadBudget,
    StoreUnavailable,
    TableError,
    exponential_backoff_s,
    gather_bounded,
)
from .connection import Node
from .driver import Reply
from .errors import from_error_reply
from .keys import SLOT_COUNT, slot_of
from .scripts import Command
from .topology import COMMAND_KEYS_MAX, KeyGroup
from .url import Address

Send: TypeAlias = Callable[[Node, Sequence[Command], bool], Coroutine[Any, Any, list[Reply]]]

ATTEMPTS_MAX = 64
RETRY_PAUSE_S = 0.005
RETRY_PAUSE_MAX_S = 0.25
NODES_CONCURRENCY_MAX = 64
SLOTS_TIMEOUT_S = 0.8
"""How long to wait for a node's slot map before trying another node."""

_CLUSTER_SLOTS = b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n"
_REDIRECTED = (exceptions.AskError, exceptions.TryAgainError)  # in the driver, MovedError is an AskError


class Cluster:
    """The nodes of a Redis Cluster, discovered from `seed`."""

    is_cluster = True

    def __init__(self, seed: Address, make_node: Callable[[Address], Node]) -> None:
        self._seed = seed
        self._make_node = make_node
        self._nodes: dict[Address, Node] = {}
        self._owners: list[Address | None] = [None] * SLOT_COUNT
        self._stale = True
        self._refresh_lock = asyncio.Lock()
        self._next_node_index = 0

    async def run(
        self, commands: Sequence[Command], until: float, *, writes: bool = False, budget: ReadBudget | None = None
    ) -> list[Reply]:
        """Send commands to the nodes of their slots and return the reply to each."""

        async def send(node: Node, batch: Sequence[Command], asking: bool) -> list[Reply]:
            return await node.run(batch, until, writes=writes, asking=asking, budget=budget)

        return await self._route(commands, until, send)

    async def read(self, commands: Sequence[Command], until: float, budget: ReadBudget) -> list[Reply]:
        """Send commands that read values to the nodes of their slots and return the reply to each."""

        async def send(node: Node, batch: Sequence[Command], asking: bool) -> list[Reply]:
            return await node.read(batch, until, asking=asking, budget=budget)

        return await self._route(commands, until, send)

    def groups(self, names: Sequence[str]) -> list[KeyGroup]:
        """Group names by their slots."""
        by_slot: dict[int, list[int]] = {}
        for position, name in enumerate(names):
            by_slot.setdefault(slot_of(name), []).append(position)
        return [
            KeyGroup(positions[start : start + COMMAND_KEYS_MAX], slot)
            for slot, positions in by_slot.items()
            for start in range(0, len(positions), COMMAND_KEYS_MAX)
        ]

    async def nodes(self, until: float) -> list[tuple[Node, frozenset[int]]]:
        """Fetch the slot map and return the primary nodes with their slots."""
        self._stale = True
        await self._refresh_slots(until)
        owned: dict[Address, set[int]] = {}
        for slot, address in enumerate(self._owners):
            if address is not None:
                owned.setdefault(address, set()).add(slot)
        return [(self._node(address), frozenset(slots)) for address, slots in sorted(owned.items())]

    def connections(self) -> Connections:
        """Return the current number of connections to all known nodes."""
        nodes = [node.connections() for node in self._nodes.values()]
        return Connections(
            sum(node.in_use for node in nodes), sum(node.open for node in nodes), sum(node.most for node in nodes)
        )

    def close(self) -> None:
        """Close all connections."""
        for node in self._nodes.values():
            node.close()

    # Routing

    async def _route(self, commands: Sequence[Command], until: float, send: Send) -> list[Reply]:
        call = _RoutedCall(commands)
        for attempt in range(ATTEMPTS_MAX):
            try:
                await self._refresh_slots(until)
            except TableError as error:
                call.record(call.pending, [error] * len(call.pending))
                break
            await self._send_pending(call, send)
            pause_s = exponential_backoff_s(attempt, RETRY_PAUSE_S, RETRY_PAUSE_MAX_S, random.random)
            if not call.pending or time.monotonic() + pause_s >= until:
                break
            if attempt or call.migrating:
                await asyncio.sleep(pause_s)
        return call.replies

    async def _send_pending(self, call: "_RoutedCall", send: Send) -> None:
        """Send pending commands to their nodes, and update the slot map from redirections in the replies."""
        targets: dict[tuple[Address, bool], list[int]] = {}
        unserved = []
        for index in call.pending:
            address = call.ask_targets.get(index) or self._owners[call.commands[index].slot]
            if address is None:
                unserved.append(index)
            else:
                targets.setdefault((address, index in call.ask_targets), []).append(index)
        calls = [
            send(self._node(address), [call.commands[index] for index in indexes], asking)
            for (address, asking), indexes in targets.items()
        ]
        all_replies = await gather_bounded(calls, NODES_CONCURRENCY_MAX) if calls else []
        call.record(unserved, [exceptions.ClusterDownError("no node serves the slot")] * len(unserved))
        self._stale = self._stale or bool(unserved)
        for ((host, _), _), indexes, replies in zip(targets, targets.values(), all_replies, strict=True):
            call.record(indexes, replies, host)
            self._follow_redirections(host, replies)
        call.pending = [index for index in call.pending if isinstance(call.replies[index], _REDIRECTED)]

    def _follow_redirections(self, host: str, replies: Iterable[Reply]) -> None:
        for reply in replies:
            if isinstance(reply, exceptions.MovedError):
                self._owners[reply.slot_id] = (reply.host or host, reply.port)
                self._stale = True
            elif isinstance(reply, StoreUnavailable | exceptions.ClusterDownError | exceptions.ReadOnlyError):
                self._stale = True  # Another node may serve the slots now.

    # The slot map

    async def _refresh_slots(self, until: float) -> None:
        """Fetch the slot map if it may have changed, or wait while another call fetches it.

        Raise StoreUnavailable if no node responds, DeadlineExceeded if the deadline passes first.
        """
        if not self._stale:
            return
        try:
            async with asyncio.timeout_at(None if until == math.inf else until), self._refresh_lock:
                if self._stale:
                    self._set_owners(await self._fetch_slots(until))
                    self._stale = False
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed before the Redis Cluster returned its slot map") from None

    async def _fetch_slots(self, until: float) -> list[tuple[int, int, Address]]:
        error: TableError = StoreUnavailable("no node of the Redis Cluster responds")
        known = [*dict.fromkeys([*self._nodes, self._seed])]
        # Start with another node each time: a call with a short deadline cannot get past a silent node.
        first = self._next_node_index % len(known)
        for address in known[first:] + known[:first]:
            node_deadline = min(until, time.monotonic() + SLOTS_TIMEOUT_S)
            self._next_node_index += 1
            [reply] = await self._node(address).send([_CLUSTER_SLOTS], 1, node_deadline)
            if isinstance(reply, list):
                return [(low, high, _address(owner, address[0])) for low, high, owner, *_ in reply]
            if "cluster support disabled" in str(reply):
                raise InvalidOperation("this Redis is not a cluster: its `stores` entry must not set `cluster: true`")
            if not isinstance(reply, DeadlineExceeded):  # This is the timeout of one node, not the call's deadline.
                error = reply if isinstance(reply, TableError) else from_error_reply(reply)
        raise error

    def _set_owners(self, ranges: list[tuple[int, int, Address]]) -> None:
        self._owners = [None] * SLOT_COUNT
        for low, high, address in ranges:
            self._owners[low : high + 1] = [address] * (high + 1 - low)
        known = {address for _, _, address in ranges}
        for address in [address for address in self._nodes if address not in known]:
            self._nodes.pop(address).close()

    def _node(self, address: Address) -> Node:
        if address not in self._nodes:
            self._nodes[address] = self._make_node(address)
        return self._nodes[address]


class _RoutedCall:
    """Commands of one call, their replies, and the redirections still to follow."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = commands
        self.replies: list[Reply] = [None] * len(commands)
        self.pending: Sequence[int] = range(len(commands))
        self.ask_targets: dict[int, Address] = {}
        """Nodes to send commands to once, instead of the owners of their slots (ASK redirections)."""

    @property
    def migrating(self) -> bool:
        """Whether a pending command must wait for the migration of its slot."""
        return any(isinstance(self.replies[index], exceptions.TryAgainError) for index in self.pending)

    def record(self, indexes: Sequence[int], replies: Sequence[Reply], host: str = "") -> None:
        """Record a node's replies to commands. `host` is the node's host."""
        for index, reply in zip(indexes, replies, strict=True):
            self.replies[index] = reply
            self.ask_targets.pop(index, None)
            if isinstance(reply, exceptions.AskError) and not isinstance(reply, exceptions.MovedError):
                self.ask_targets[index] = (reply.host or host, reply.port)


def _address(owner: Any, queried_host: str) -> Address:
    """Return a node's address. A node that does not report a host has the host of the queried node."""
    host, port = owner[0], owner[1]
    name = host.decode() if isinstance(host, bytes) else ""
    return (name if name not in ("", "?") else queried_host), int(port)
