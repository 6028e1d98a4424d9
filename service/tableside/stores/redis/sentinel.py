"""The primary that Redis Sentinels name, as it changes.

Redis may accept writes for seconds on a primary that has been replaced, and loses them. So the Sentinels are asked
several times a second, and connections to another server than the one that they name are closed.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence

from redis import exceptions

from ...core import (
    Connections,
    DeadlineExceeded,
    ReadBudget,
    StoreMisconfigured,
    StoreUnavailable,
    TableError,
    gather_bounded,
)
from .connection import Node
from .driver import Reply
from .errors import from_unexpected_reply
from .scripts import Command
from .topology import ALL_SLOTS, KeyGroup, groups_by_number
from .url import Address

ASK_INTERVAL_S = 0.25
"""How often the Sentinels are asked for the primary."""

ANSWER_TIMEOUT_S = 0.8
"""How long to wait for a Sentinel."""

ASK_PAUSE_S = 0.05
"""The shortest time between two questions, while the primary fails."""


class Sentinels:
    """The Sentinels that watch the primary of a service."""

    def __init__(self, nodes: Sequence[Node], service: str) -> None:
        self._nodes = nodes
        self._service = service

    async def primary(self, until: float) -> Address:
        """Return the address of the primary in the newest configuration that any Sentinel has.

        Raise StoreUnavailable if no Sentinel responds, StoreMisconfigured if none knows the service.
        """
        ask = Command(("SENTINEL", "MASTER", self._service))
        until = min(until, time.monotonic() + ANSWER_TIMEOUT_S)
        answers = await gather_bounded([node.run([ask], until) for node in self._nodes], len(self._nodes))
        known = [dict(zip(answer[::2], answer[1::2], strict=True)) for [answer] in answers if type(answer) is list]
        if not known:
            raise self._failure([answer for [answer] in answers])
        newest = max(known, key=lambda state: int(state[b"config-epoch"]))
        return newest[b"ip"].decode(), int(newest[b"port"])

    def close(self) -> None:
        """Close all connections."""
        for node in self._nodes:
            node.close()

    def _failure(self, answers: list[Reply]) -> TableError:
        if any(type(answer) is exceptions.ResponseError and "No such master" in str(answer) for answer in answers):
            return StoreMisconfigured(f"the Sentinels do not know the service {self._service!r} of the store's `url`")
        errors = [from_unexpected_reply(answer) for answer in answers]
        for error in errors:
            if isinstance(error, StoreMisconfigured):
                detail = error.detail.replace("Redis", "Sentinel").replace("`password`", "`sentinel_password`")
                return StoreMisconfigured(detail.replace("`username`", "`sentinel_username`"))
        return StoreUnavailable("no Sentinel responds")


class SentinelServer:
    """The server that the Sentinels name as primary: reads and writes go to it only."""

    is_cluster = False

    def __init__(self, sentinels: Sentinels, make_node: Callable[[Address], Node]) -> None:
        self._sentinels = sentinels
        self._make_node = make_node
        self._address: Address | None = None
        self._node: Node | None = None
        self._asking = asyncio.Lock()
        self._failed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def run(
        self, commands: Sequence[Command], until: float, *, writes: bool = False, budget: ReadBudget | None = None
    ) -> list[Reply]:
        """Send commands and return the reply to each."""
        try:
            node = await self._primary(until)
        except TableError as error:
            return [error] * len(commands)
        return self._observed(await node.run(commands, until, writes=writes, budget=budget))

    async def read(self, commands: Sequence[Command], until: float, budget: ReadBudget) -> list[Reply]:
        """Send commands that read values and return the reply to each."""
        try:
            node = await self._primary(until)
        except TableError as error:
            return [error] * len(commands)
        return self._observed(await node.read(commands, until, budget=budget))

    def groups(self, names: Sequence[str]) -> list[KeyGroup]:
        """Group names by their number only."""
        return groups_by_number(names)

    async def nodes(self, until: float) -> list[tuple[Node, frozenset[int]]]:
        """Return the primary, which serves all slots."""
        return [(await self._primary(until), ALL_SLOTS)]

    def connections(self) -> Connections:
        """Return the current number of connections to the primary."""
        return Connections(0, 0, 0) if self._node is None else self._node.connections()

    def close(self) -> None:
        """Close all connections."""
        if self._watching is not None:
            self._watching.cancel()
        self._sentinels.close()
        if self._node is not None:
            self._node.close()

    async def _primary(self, until: float) -> Node:
        while self._node is None:
            try:
                async with asyncio.timeout_at(None if until == math.inf else until), self._asking:
                    if self._node is None:
                        await self._ask(until)
            except TimeoutError:
                raise DeadlineExceeded("the deadline passed before the Sentinels named a primary") from None
        return self._node

    async def _ask(self, until: float) -> None:
        """Replace the node if the Sentinels name another server. Calls in flight finish on the old one."""
        address = await self._sentinels.primary(until)
        if address != self._address:
            if self._node is not None:
                self._node.close()
            self._address, self._node = address, self._make_node(address)
        self._watching = self._watching or asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._failed.wait(), ASK_INTERVAL_S)
                await asyncio.sleep(ASK_PAUSE_S)
            self._failed.clear()
            with contextlib.suppress(TableError):  # Without Sentinels, the last known primary is used.
                await self._ask(time.monotonic() + ANSWER_TIMEOUT_S)

    def _observed(self, replies: list[Reply]) -> list[Reply]:
        """Ask the Sentinels soon if the last reply shows that the primary may have changed."""
        if replies and isinstance(replies[-1], StoreUnavailable | exceptions.ReadOnlyError):
            self._failed.set()
        return replies
