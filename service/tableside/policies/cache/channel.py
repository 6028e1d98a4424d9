"""The invalidation channel: replicas publish the keys that they wrote through Redis, so that other caches drop them.

Redis delivers messages only while a replica is subscribed, so its caches drop all entries whenever the subscription is
established (again). A replica ignores its own messages.

This module is imported only for tables that use a channel, because it needs the Redis driver.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from redis.exceptions import AuthenticationError, NoPermissionError

from ...core import Key, TableError
from ..metrics import PolicyMetrics
from .messages import Demoted, Message, Publisher, Subscriber, connector

log = logging.getLogger(__name__)

OnKeys = Callable[[Sequence[Key] | None], None]
"""Receives the keys that another replica wrote, or None if it may have written any key."""

CLOSE_FLUSH_MAX_S = 1.0
"""Maximum time for publishing the remaining keys when a channel is closed."""


class ChannelSubscription(msgspec.Struct, frozen=True, eq=False):
    """The subscription of one cache."""

    channel: "Channel"
    table: str
    on_keys: OnKeys
    on_lost: Callable[[], None]
    on_sent: Callable[[int], None]

    def publish(self, keys: Collection[Key]) -> None:
        """Publish that these keys were written. Return immediately."""
        self.channel.publish(self.table, keys)

    async def flushed(self, until: float) -> None:
        """Wait until the channel has accepted all keys published so far, but only shortly. Raise nothing."""
        await self.channel.flushed(until)

    def leave(self) -> None:
        """End the subscription."""
        self.channel.leave(self)


class Channel:
    """The channel of one Redis for all tables that use it, with one connection to subscribe and one to publish."""

    def __init__(
        self,
        connection: Mapping[str, Any],
        *,
        store: str,
        cluster: bool = False,
        connect_timeout_s: float = 2.0,
        address: Callable[[], Awaitable[tuple[str, int]]] | None = None,
        metrics: PolicyMetrics | None = None,
    ) -> None:
        self._store = store
        self._metrics = metrics or PolicyMetrics()
        self._sender = secrets.token_bytes(8)
        self._subscriptions: dict[str, list[ChannelSubscription]] = {}
        self._subscribed: bool | None = None
        self._publishing: bool | None = None
        self._demoted = False
        self._closed = False
        self._name = f"tableside:writes:{int(connection.get('db') or 0)}"
        connect = connector(connection, connect_timeout_s, address)
        self._subscriber = Subscriber(connect, self._name, self._on_message, self._on_subscriber_changed)
        self._publisher = Publisher(
            connect, self._name, self._sender, cluster, self._on_sent, self._on_publisher_changed
        )
        self._tasks = [asyncio.create_task(self._subscriber.run()), asyncio.create_task(self._publisher.run())]
        self._update_gauge()

    @property
    def up(self) -> bool:
        """Return whether this replica is subscribed and can publish."""
        return bool(self._subscribed and self._publishing)

    def subscribe(
        self, table: str, on_keys: OnKeys, on_lost: Callable[[], None], on_sent: Callable[[int], None]
    ) -> ChannelSubscription:
        """Subscribe a cache of the table with this name in its store.

        `on_lost` is called whenever the subscription is established (again), because messages may have been missed
        before. `on_sent` is called with the number of keys that were published. All keys of the table count as one.
        """
        subscription = ChannelSubscription(self, table, on_keys, on_lost, on_sent)
        self._subscriptions.setdefault(table, []).append(subscription)
        return subscription

    def publish(self, table: str, keys: Collection[Key]) -> None:
        """Publish that these keys of a table were written. Return immediately."""
        self._publisher.publish(table, keys)

    async def flushed(self, until: float) -> None:
        """Wait until the server has accepted all keys published so far, but only shortly."""
        await self._publisher.flushed(until)

    def leave(self, subscription: ChannelSubscription) -> None:
        """End the subscription of a cache."""
        subscriptions = self._subscriptions.get(subscription.table, [])
        if subscription in subscriptions:
            subscriptions.remove(subscription)
        if not subscriptions:
            self._subscriptions.pop(subscription.table, None)

    async def close(self) -> None:
        """Publish the remaining keys, if that is possible in a short time, and close the connections."""
        if self._closed:
            return
        self._closed = True
        if self._publishing:
            await self._publisher.flushed(time.monotonic() + CLOSE_FLUSH_MAX_S, CLOSE_FLUSH_MAX_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._subscribed = self._publishing = False
        self._update_gauge()

    def _on_message(self, message: Message | None) -> None:
        if message is None:
            self._drop_all()  # The message of another version cannot be read: it may invalidate any key.
        elif message.sender != self._sender:
            for subscription in self._subscriptions.get(message.table, ()):
                subscription.on_keys(message.keys)

    def _on_sent(self, table: str, keys: int) -> None:
        for subscription in self._subscriptions.get(table, ())[:1]:
            subscription.on_sent(keys)

    def _on_subscriber_changed(self, error: BaseException | None) -> None:
        if error is None:
            self._drop_all()
        elif self._subscribed:
            self._metrics.channel_losses.labels(self._store).inc()
        self._subscribed = self._log_change(self._subscribed, error, "no longer receives the writes of other replicas")
        self._update_gauge()

    def _on_publisher_changed(self, error: BaseException | None) -> None:
        if error is None and self._demoted:
            self._subscriber.renew()  # Another server is the primary now: subscribe there.
        self._demoted = isinstance(error, Demoted) or (self._demoted and error is not None)
        self._publishing = self._log_change(self._publishing, error, "cannot publish writes to other replicas")
        self._update_gauge()

    def _log_change(self, was: bool | None, error: BaseException | None, problem: str) -> bool:
        if error is not None and was is not False:
            log.warning("cache channel %s: %s (%s, %s)", self._store, problem, self._name, _reason(error))
        return error is None

    def _drop_all(self) -> None:
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.on_lost()

    def _update_gauge(self) -> None:
        self._metrics.channel_up.labels(self._store).set(int(self.up))


def _reason(error: BaseException) -> str:
    """Return the type of an error, and its message if that says what the settings lack, and contains no data."""
    named = isinstance(error, AuthenticationError | NoPermissionError | TableError)
    return f"{type(error).__name__}: {error}" if named else type(error).__name__
