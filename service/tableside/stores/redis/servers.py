"""Where commands go: to a single server, to the primary that Sentinels name, or to the nodes of a Redis Cluster."""

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeAlias, TypeVar, Unpack

from redis import exceptions

from ...core import (
    Connections,
    DeadlineExceeded,
    InvalidOperation,
    StoreMisconfigured,
    StoreUnavailable,
    TableError,
    exponential_backoff_s,
    gather_bounded,
    joined_outcomes,
)
from .connection import Node, Reply, RunOptions
from .errors import from_unexpected_reply
from .keys import ALL_SLOTS, SLOT_COUNT, slot_of
from .scripts import Command

Result = TypeVar("Result")

Address: TypeAlias = tuple[str, int]

KeyGroup: TypeAlias = tuple[Sequence[int], int]
"""The positions of names that one command may contain, and their slot: 0 on a single server."""

COMMAND_KEYS_MAX = 1000
"""How many keys one command may name."""

ASK_INTERVAL_S = 0.25
"""How often the Sentinels are asked for the primary."""

ANSWER_TIMEOUT_S = 0.8
"""How long to wait for a Sentinel, or for a node's slot map before trying another node."""

ASK_PAUSE_S = 0.05
"""The shortest time between two questions, while the primary fails."""

ATTEMPTS_MAX = 64
RETRY_PAUSE_S = 0.005
RETRY_PAUSE_MAX_S = 0.25
NODES_CONCURRENCY_MAX = 64

_UNAVAILABLE = (StoreUnavailable, exceptions.ClusterDownError, exceptions.ReadOnlyError)
_REDIRECTED = (exceptions.AskError, exceptions.TryAgainError)  # in the driver, MovedError is an AskError


class SingleServer:
    """A single server."""

    is_cluster = False

    def __init__(self, node: Node | None) -> None:
        self._node = node

    async def run(self, commands: Sequence[Command], until: float, **options: Unpack[RunOptions]) -> list[Reply]:
        """Send commands and return the reply to each. See `Node.run`."""
        assert self._node is not None
        return await self._node.run(commands, until, **options)

    def groups(self, names: Sequence[str]) -> list[KeyGroup]:
        """Group names by their number only."""
        count = len(names)
        return [(range(at, min(at + COMMAND_KEYS_MAX, count)), 0) for at in range(0, count, COMMAND_KEYS_MAX)]

    async def nodes(self, until: float) -> list[tuple[Node, frozenset[int]]]:
        """Return the server, which serves all slots."""
        assert self._node is not None
        return [(self._node, ALL_SLOTS)]

    def connections(self) -> Connections:
        """Return the current number of connections."""
        return Connections(0, 0, 0) if self._node is None else self._node.connections()

    def close(self) -> None:
        """Close all connections."""
        if self._node is not None:
            self._node.close()


class SentinelServer(SingleServer):
    """The server that the Sentinels name as primary: reads and writes go to it only.

    Redis may accept writes for seconds on a primary that has been replaced, and loses them. So the Sentinels are asked
    several times a second, and connections to another server than the one that they name are closed.
    """

    def __init__(self, sentinels: Sequence[Node], service: str, make_node: Callable[[Address], Node]) -> None:
        super().__init__(None)
        self._sentinels = sentinels
        self._service = service
        self._make_node = make_node
        self._address: Address | None = None
        self._asking = asyncio.Lock()
        self._failed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def run(self, commands: Sequence[Command], until: float, **options: Unpack[RunOptions]) -> list[Reply]:
        """Send commands to the primary. If the last reply shows that it may have changed, ask the Sentinels soon."""
        try:
            await self._find_primary(until)
        except TableError as error:
            return [error] * len(commands)
        replies = await super().run(commands, until, **options)
        if replies and isinstance(replies[-1], StoreUnavailable | exceptions.ReadOnlyError):
            self._failed.set()
        return replies

    async def nodes(self, until: float) -> list[tuple[Node, frozenset[int]]]:
        """Return the primary, which serves all slots."""
        await self._find_primary(until)
        return await super().nodes(until)

    def close(self) -> None:
        """Close all connections."""
        if self._watching is not None:
            self._watching.cancel()
        for sentinel in self._sentinels:
            sentinel.close()
        super().close()

    async def _find_primary(self, until: float) -> None:
        while self._node is None:
            try:
                async with asyncio.timeout_at(None if until == math.inf else until), self._asking:
                    if self._node is None:
                        await self._ask(until)
            except TimeoutError:
                raise DeadlineExceeded("the deadline passed before the Sentinels named a primary") from None

    async def _ask(self, until: float) -> None:
        """Replace the node if the Sentinels name another server. Calls in flight finish on the old one."""
        address = await self._named_primary(min(until, time.monotonic() + ANSWER_TIMEOUT_S))
        if address != self._address:
            if self._node is not None:
                self._node.close()
            self._address, self._node = address, self._make_node(address)
        self._watching = self._watching or asyncio.create_task(self._watch())

    async def _named_primary(self, until: float) -> Address:
        """Return the address of the primary in the newest configuration that any Sentinel has.

        Raise StoreUnavailable if no Sentinel responds, StoreMisconfigured if none knows the service.
        """
        ask = Command(("SENTINEL", "MASTER", self._service))
        replies = await gather_bounded([node.run([ask], until) for node in self._sentinels], len(self._sentinels))
        answers = [answer for [answer] in replies]
        known = [dict(zip(answer[::2], answer[1::2], strict=True)) for answer in answers if type(answer) is list]
        if known:
            newest = max(known, key=lambda state: int(state[b"config-epoch"]))
            return newest[b"ip"].decode(), int(newest[b"port"])
        if any(type(answer) is exceptions.ResponseError and "No such master" in str(answer) for answer in answers):
            raise StoreMisconfigured(f"the Sentinels do not know the service {self._service!r} of the store's `url`")
        for error in map(from_unexpected_reply, answers):
            if isinstance(error, StoreMisconfigured):
                detail = error.detail.replace("Redis", "Sentinel").replace("`password`", "`sentinel_password`")
                raise StoreMisconfigured(detail.replace("`username`", "`sentinel_username`"))
        raise StoreUnavailable("no Sentinel responds")

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._failed.wait(), ASK_INTERVAL_S)
                await asyncio.sleep(ASK_PAUSE_S)
            self._failed.clear()
            with contextlib.suppress(TableError):  # Without Sentinels, the last known primary is used.
                await self._ask(math.inf)


class Cluster:
    """The nodes of a Redis Cluster, discovered from `seed`. Each command goes to the node that serves its slot.

    Nodes reply MOVED or ASK for a slot that another node serves, and TRYAGAIN for a slot that is migrating. The node
    has not run such a command, so the command is sent again, until the deadline at the latest.
    """

    is_cluster = True

    def __init__(self, seed: Address, make_node: Callable[[Address], Node]) -> None:
        self._seed = seed
        self._make_node = make_node
        self._nodes: dict[Address, Node] = {}
        self._owners: list[Address | None] = [None] * SLOT_COUNT
        self._stale = True
        self._refresh_lock = asyncio.Lock()
        self._next_node_index = 0

    async def run(self, commands: Sequence[Command], until: float, **options: Unpack[RunOptions]) -> list[Reply]:
        """Send commands to the nodes of their slots and return the reply to each."""
        replies, pending = dict[int, Reply](), dict(enumerate(commands))
        for attempt in range(ATTEMPTS_MAX):
            try:
                await self._refresh_slots(until)
            except TableError as error:
                replies.update(dict.fromkeys(pending, error))
                break
            await self._send(pending, replies, until, options)
            pending = {index: pending[index] for index in pending if isinstance(replies[index], _REDIRECTED)}
            pause_s = exponential_backoff_s(attempt, RETRY_PAUSE_S, RETRY_PAUSE_MAX_S, random.random)
            if not pending or time.monotonic() + pause_s >= until:
                break
            if attempt or any(isinstance(replies[index], exceptions.TryAgainError) for index in pending):
                await asyncio.sleep(pause_s)
        return [replies[index] for index in range(len(commands))]

    def groups(self, names: Sequence[str]) -> list[KeyGroup]:
        """Group names by their slots."""
        by_slot: dict[int, list[int]] = {}
        for position, name in enumerate(names):
            by_slot.setdefault(slot_of(name), []).append(position)
        return [
            (positions[start : start + COMMAND_KEYS_MAX], slot)
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
        return Connections(*(sum(getattr(node, name) for node in nodes) for name in ("in_use", "open", "most")))

    def close(self) -> None:
        """Close all connections."""
        for node in self._nodes.values():
            node.close()

    async def _send(
        self, pending: dict[int, Command], replies: dict[int, Reply], until: float, options: RunOptions
    ) -> None:
        """Send pending commands to their nodes, set their replies, and update the slot map from redirections.

        After an ASK redirection, a command is sent once to the node that it names instead of the owner of the slot.
        """
        targets: dict[tuple[Address, bool], list[int]] = {}
        for index, command in pending.items():
            redirection: Reply = replies.get(index)
            asked = type(redirection) is exceptions.AskError
            address = (redirection.host, redirection.port) if asked else self._owners[command.slot]
            if address is None:
                replies[index] = exceptions.ClusterDownError("no node serves the slot", status_code="CLUSTERDOWN")
                self._stale = True
            else:
                targets.setdefault((address, asked), []).append(index)
        calls = [
            self._node(address).run([pending[index] for index in indexes], until, asking=asking, **options)
            for (address, asking), indexes in targets.items()
        ]
        answers = await gather_bounded(calls, NODES_CONCURRENCY_MAX)
        for ((host, _), _), indexes, answer in zip(targets, targets.values(), answers, strict=True):
            for index, reply in zip(indexes, answer, strict=True):
                replies[index] = reply
                if isinstance(reply, exceptions.AskError):
                    reply.host = reply.host or host
                if isinstance(reply, exceptions.MovedError):
                    self._owners[reply.slot_id] = (reply.host, reply.port)
                    self._stale = True
                elif isinstance(reply, _UNAVAILABLE):
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
                    ranges = await self._fetch_slots(until)
                    self._owners = [None] * SLOT_COUNT
                    for low, high, address in ranges:
                        self._owners[low : high + 1] = [address] * (high + 1 - low)
                    for address in self._nodes.keys() - {address for _, _, address in ranges}:
                        self._nodes.pop(address).close()
                    self._stale = False
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed before the Redis Cluster returned its slot map") from None

    async def _fetch_slots(self, until: float) -> list[tuple[int, int, Address]]:
        error: TableError = StoreUnavailable("no node of the Redis Cluster responds")
        known = [*dict.fromkeys([*self._nodes, self._seed])]
        # Start with another node each time: a call with a short deadline cannot get past a silent node.
        first = self._next_node_index % len(known)
        for address in known[first:] + known[:first]:
            node_deadline = min(until, time.monotonic() + ANSWER_TIMEOUT_S)
            self._next_node_index += 1
            [reply] = await self._node(address).run([Command(("CLUSTER", "SLOTS"))], node_deadline)
            if isinstance(reply, list):
                return [(low, high, _address(owner, address[0])) for low, high, owner, *_ in reply]
            if "cluster support disabled" in str(reply):
                raise InvalidOperation("this Redis is not a cluster: its `stores` entry must not set `cluster: true`")
            if not isinstance(reply, DeadlineExceeded):  # This is the timeout of one node, not the call's deadline.
                error = from_unexpected_reply(reply)
        raise error

    def _node(self, address: Address) -> Node:
        if address not in self._nodes:
            self._nodes[address] = self._make_node(address)
        return self._nodes[address]


Servers: TypeAlias = SingleServer | Cluster


def in_order(groups: Sequence[KeyGroup], parts: Sequence[Sequence[Result]]) -> Sequence[Result]:
    """Return the results of names from those of their groups. They stay in columns on a single server."""
    positions = [*chain.from_iterable(positions for positions, _ in groups)] if len(groups) > 1 else []
    if positions == [*range(len(positions))]:
        return joined_outcomes(parts)
    by_position = dict(zip(positions, chain(*parts), strict=True))
    return [by_position[position] for position in range(len(by_position))]


def _address(owner: Any, queried_host: str) -> Address:
    """Return a node's address. A node that does not report a host has the host of the queried node."""
    host, port = owner[0], owner[1]
    name = host.decode() if isinstance(host, bytes) else ""
    return (name if name not in ("", "?") else queried_host), int(port)
