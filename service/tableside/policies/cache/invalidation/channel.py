"""Replicas tell each other what they wrote, by publish and subscribe of a Redis, so that their caches drop it.

A replica hears what is published while it is subscribed, and nothing else: when its subscription is there (again), its
caches forget everything. It does not hear itself. Needs the driver of Redis, and so is imported where one is used.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from ....core import Key
from ..metrics import CacheMetrics
from ..peers import OnKeys
from .connection import Demoted, connector
from .protocol import Message
from .publisher import Publisher
from .subscriber import Subscriber

log = logging.getLogger(__name__)

CLOSE_FLUSH_MAX_S = 1.0
"""How long what is still to be told may take when a channel is closed."""


class ChannelSubscription(msgspec.Struct, frozen=True, eq=False):
    """A cache that takes part in a channel: see `others.Membership`."""

    channel: "Channel"
    table: str
    on_keys: OnKeys
    on_lost: Callable[[], None]
    on_sent: Callable[[int], None]

    def publish(self, keys: Collection[Key]) -> None:
        """Have the other replicas hear that these keys were written."""
        self.channel.publish(self.table, keys)

    async def flushed(self, until: float) -> None:
        """Return when the channel has taken what was told so far, or shortly after if it does not."""
        await self.channel.flushed(until)

    def leave(self) -> None:
        """Hear nothing more."""
        self.channel.leave(self)


class Channel:
    """The channel of one Redis, for all the tables that name it: one connection to hear and one to tell."""

    def __init__(
        self,
        connection: Mapping[str, Any],
        *,
        store: str,
        cluster: bool = False,
        connect_timeout_s: float = 2.0,
        metrics: CacheMetrics | None = None,
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._sender = secrets.token_bytes(8)
        self._members: dict[str, list[ChannelSubscription]] = {}
        self._hears: bool | None = None
        self._tells: bool | None = None
        self._demoted = False
        self._closed = False
        name = f"tableside:writes:{int(connection.get('db') or 0)}"
        connect = connector(connection, connect_timeout_s)
        self._hearing = Subscriber(connect, name, self._heard, self._hearing_changed)
        self._telling = Publisher(connect, name, self._sender, cluster, self._sent, self._telling_changed)
        self._tasks = [asyncio.create_task(self._hearing.run()), asyncio.create_task(self._telling.run())]
        self._show()

    @classmethod
    async def open(
        cls,
        connection: Mapping[str, Any],
        *,
        store: str,
        cluster: bool = False,
        connect_timeout_s: float = 2.0,
        metrics: CacheMetrics | None = None,
    ) -> "Channel":
        """Return a channel that connects by itself, however long that takes.

        `connection` is what the driver is told of a connection, `store` the name under which the Redis is configured,
        `cluster` whether it is a node of a Redis Cluster, of which any will do.
        """
        return cls(connection, store=store, cluster=cluster, connect_timeout_s=connect_timeout_s, metrics=metrics)

    @property
    def up(self) -> bool:
        """Whether this replica hears the others, and can tell them."""
        return bool(self._hears and self._tells)

    def subscribe(
        self, table: str, on_keys: OnKeys, on_lost: Callable[[], None], on_sent: Callable[[int], None]
    ) -> ChannelSubscription:
        """Take part as a cache of the table that has this name in its store: see `others.Others`."""
        member = ChannelSubscription(self, table, on_keys, on_lost, on_sent)
        self._members.setdefault(table, []).append(member)
        return member

    def publish(self, table: str, keys: Collection[Key]) -> None:
        """Have the other replicas hear that these keys of a table were written."""
        self._telling.publish(table, keys)

    async def flushed(self, until: float) -> None:
        """Return when the server has taken what was told so far, or shortly after if it does not."""
        await self._telling.flushed(until)

    def leave(self, member: ChannelSubscription) -> None:
        """Let a cache hear nothing more."""
        members = self._members.get(member.table, [])
        if member in members:
            members.remove(member)
        if not members:
            self._members.pop(member.table, None)

    async def close(self) -> None:
        """Tell what is still to be told, if that can be soon, and let go of the connections."""
        if self._closed:
            return
        self._closed = True
        if self._tells:
            await self._telling.flushed(asyncio.get_running_loop().time() + CLOSE_FLUSH_MAX_S, CLOSE_FLUSH_MAX_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._hears = self._tells = False
        self._show()

    def _heard(self, message: Message | None) -> None:
        if message is None:
            self._forget_everything()  # Another version speaks: whatever it says, this holds after it.
        elif message.sender != self._sender:
            for member in self._members.get(message.table, ()):
                member.on_keys(message.keys)

    def _sent(self, table: str, keys: int) -> None:
        for member in self._members.get(table, ())[:1]:
            member.on_sent(keys)

    def _hearing_changed(self, error: BaseException | None) -> None:
        if error is None:
            self._forget_everything()
        elif self._hears and self._metrics is not None:
            self._metrics.channel_losses.labels(self._store).inc()
        self._hears = self._noted(self._hears, error, "hears no more what other replicas wrote")
        self._show()

    def _telling_changed(self, error: BaseException | None) -> None:
        if error is None and self._demoted:
            self._hearing.renew()  # Another server is the primary now: that is the one to hear.
        self._demoted = isinstance(error, Demoted) or (self._demoted and error is not None)
        self._tells = self._noted(self._tells, error, "cannot tell other replicas what was written here")
        self._show()

    def _noted(self, was: bool | None, error: BaseException | None, trouble: str) -> bool:
        if error is not None and was is not False:
            log.warning("cache channel %s: %s (%s)", self._store, trouble, type(error).__name__)
        return error is None

    def _forget_everything(self) -> None:
        for members in self._members.values():
            for member in members:
                member.on_lost()

    def _show(self) -> None:
        if self._metrics is not None:
            self._metrics.channel_up.labels(self._store).set(int(self.up))
