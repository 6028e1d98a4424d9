"""Publishes the keys that this replica wrote: many writes in one message, and again if publishing fails."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection

from redis.asyncio.connection import Connection

from ....core import Key
from .connection import Connect, Demoted, ReconnectBackoff
from .protocol import PendingInvalidations, encode_messages

FLUSH_WAIT_MAX_S = 0.1
"""Maximum time that a write waits for its publication. While publishing fails, writes do not wait."""

RESPONSE_TIMEOUT_S = 2.0
"""Time for the server to respond before the connection is replaced."""

IDLE_CHECK_S = 1.0
"""After this time without a message to publish, check whether the server responds."""


class Publisher:
    """A connection that publishes. Without a connection, the keys are collected up to the limits of the protocol.

    A server that is a replica, as after a failover, is rejected unless `replicas_allowed`: in a cluster, messages reach
    all nodes. `on_sent` is called with the table and the number of keys of each message that the server accepted.
    `on_changed` is called with None when the server accepted messages, and with the error when publishing fails.
    """

    def __init__(
        self,
        connect: Connect,
        name: str,
        sender: bytes,
        replicas_allowed: bool,
        on_sent: Callable[[str, int], None],
        on_changed: Callable[[BaseException | None], None],
    ) -> None:
        self._connect = connect
        self._name = name
        self._sender = sender
        self._replicas_allowed = replicas_allowed
        self._on_sent = on_sent
        self._on_changed = on_changed
        self._backoff = ReconnectBackoff()
        self._pending = PendingInvalidations()
        self._publishing = PendingInvalidations()
        self._wake = asyncio.Event()
        self._healthy = True

    def publish(self, table: str, keys: Collection[Key]) -> None:
        """Publish keys of a table soon."""
        self._pending.add(table, keys)
        self._wake.set()

    async def flushed(self, until: float, wait_max_s: float = FLUSH_WAIT_MAX_S) -> None:
        """Wait until all keys so far are published, but at most `wait_max_s`."""
        pending = next((one for one in (self._pending, self._publishing) if one.tables), None)
        loop = asyncio.get_running_loop()
        wait_s = min(wait_max_s, until - time.monotonic())
        if pending is None or not self._healthy or wait_s <= 0:
            return
        future = loop.create_future()
        pending.waiting.append(future)
        await asyncio.wait((future,), timeout=wait_s)
        if not future.done():
            self._healthy = False  # Writes do not wait until publishing succeeds again.

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            try:
                async with self._connect() as connection:
                    await self._publish_pending(connection)
            except Exception as error:  # noqa: BLE001  # an unexpected error must not end publishing
                self._on_changed(error)
            await asyncio.sleep(self._backoff.next_s())

    async def _publish_pending(self, connection: Connection) -> None:
        while True:
            self._publishing, self._pending = self._pending, PendingInvalidations()
            self._wake.clear()
            try:
                async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                    counts = await self._send(connection, self._publishing)
            except BaseException:
                self._pending.merge(self._publishing)
                raise
            finally:
                published, self._publishing = self._publishing, PendingInvalidations()
            published.acknowledge()
            self._backoff.succeeded()
            self._healthy = True
            self._on_changed(None)
            for table, count in counts.items():
                self._on_sent(table, count)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), IDLE_CHECK_S)

    async def _send(self, connection: Connection, pending: PendingInvalidations) -> dict[str, int]:
        """Publish, and return the number of keys by table. Without keys, only check that the server responds."""
        messages = encode_messages(self._sender, pending.tables)
        commands: list[tuple[str | bytes, ...]] = [("PUBLISH", self._name, raw) for raw, _ in messages.values()]
        await connection.send_packed_command(connection.pack_commands([*commands, ("ROLE",)]), check_health=False)
        for _ in commands:
            await connection.read_response(disconnect_on_error=False)
        role, *_ = await connection.read_response(disconnect_on_error=False)
        if role != b"master" and not self._replicas_allowed:
            raise Demoted
        return {table: count for table, (_, count) in messages.items()}
