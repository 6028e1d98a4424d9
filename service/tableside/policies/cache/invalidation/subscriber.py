"""Receives the invalidation messages of other replicas, and reports when messages may have been missed."""

import asyncio
from collections.abc import Callable

from redis.asyncio.connection import Connection

from .connection import Connect, Demoted, ReconnectBackoff
from .protocol import Message, decode_message

IDLE_CHECK_S = 1.0
"""After this time without a message, send a PING. The server has the same time to respond."""


class Subscriber:
    """A subscription that is established again whenever it is lost.

    `on_message` is called with each message, or with None for one that cannot be read. `on_changed` is called with None
    when the subscription is established, because messages may have been missed before, and with the error when it
    fails.
    """

    def __init__(
        self,
        connect: Connect,
        name: str,
        on_message: Callable[[Message | None], None],
        on_changed: Callable[[BaseException | None], None],
    ) -> None:
        self._connect = connect
        self._name = name
        self._on_message = on_message
        self._on_changed = on_changed
        self._backoff = ReconnectBackoff()
        self._outdated = False

    def renew(self) -> None:
        """Reconnect soon, because another server is the primary now."""
        self._outdated = True

    async def run(self) -> None:
        """Receive messages until cancelled."""
        while True:
            try:
                self._outdated = False
                async with self._connect() as connection:
                    await connection.send_command("SUBSCRIBE", self._name, check_health=False)
                    await self._receive(connection)
            except Exception as error:  # noqa: BLE001  # an unexpected error must not end the subscription
                self._on_changed(error)
            await asyncio.sleep(self._backoff.next_s())

    async def _receive(self, connection: Connection) -> None:
        pinged = False
        while True:
            if self._outdated:
                raise Demoted
            try:
                async with asyncio.timeout(IDLE_CHECK_S):
                    reply = await connection.read_response(disconnect_on_error=False)
            except TimeoutError:
                if pinged:
                    raise
                pinged = True
                async with asyncio.timeout(IDLE_CHECK_S):
                    await connection.send_command("PING", check_health=False)
                continue
            pinged = False
            self._handle(reply)

    def _handle(self, reply: object) -> None:
        match reply:
            case [b"message", _, raw]:
                self._on_message(decode_message(raw))
            case [b"subscribe", _, _]:
                self._backoff.succeeded()
                self._on_changed(None)
