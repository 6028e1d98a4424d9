"""Hears what other replicas wrote, and knows when something may have been missed."""

import asyncio
from collections.abc import Callable

from redis.asyncio.connection import Connection

from .connection import Connect, Demoted, ReconnectBackoff
from .protocol import Message, decode_message

IDLE_CHECK_S = 1.0
"""After so long a silence the server is asked whether it is there, and has as long to answer."""


class Subscriber:
    """A subscription that is made again whenever it is lost.

    `heard` gets each message, None in place of one that cannot be read. `changed` gets None when there is a
    subscription, before which anything may have been missed, and else what it failed with.
    """

    def __init__(
        self,
        connect: Connect,
        name: str,
        heard: Callable[[Message | None], None],
        changed: Callable[[BaseException | None], None],
    ) -> None:
        self._connect = connect
        self._name = name
        self._heard = heard
        self._changed = changed
        self._pauses = ReconnectBackoff()
        self._outdated = False

    def renew(self) -> None:
        """Have another connection made soon: the server is not the one to hear by now."""
        self._outdated = True

    async def run(self) -> None:
        """Hear for ever."""
        while True:
            try:
                self._outdated = False
                async with self._connect() as link:
                    await link.send_command("SUBSCRIBE", self._name, check_health=False)
                    await self._hear(link)
            except Exception as error:  # noqa: BLE001  # whatever it was, to end unnoticed would be worse
                self._changed(error)
            await asyncio.sleep(self._pauses.next_s())

    async def _hear(self, link: Connection) -> None:
        asked = False
        while True:
            if self._outdated:
                raise Demoted
            try:
                async with asyncio.timeout(IDLE_CHECK_S):
                    reply = await link.read_response(disconnect_on_error=False)
            except TimeoutError:
                if asked:
                    raise
                asked = True
                async with asyncio.timeout(IDLE_CHECK_S):
                    await link.send_command("PING", check_health=False)
                continue
            asked = False
            self._take(reply)

    def _take(self, reply: object) -> None:
        match reply:
            case [b"message", _, raw]:
                self._heard(decode_message(raw))
            case [b"subscribe", _, _]:
                self._pauses.succeeded()
                self._changed(None)
