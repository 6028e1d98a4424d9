"""Tells other replicas what was written here, many writes in one message, and again what could not be told."""

import asyncio
import contextlib
from collections.abc import Callable, Collection

from redis.asyncio.connection import Connection

from ....core import Key
from .connection import Connect, Demoted, ReconnectBackoff
from .protocol import PendingInvalidations, encode_messages

FLUSH_WAIT_MAX_S = 0.1
"""How long a write waits until the others are told; nobody waits while they cannot be."""

RESPONSE_TIMEOUT_S = 2.0
"""How long the server is waited for before another connection is made."""

IDLE_CHECK_S = 1.0
"""After so long a silence the server is asked whether it is there."""


class Publisher:
    """A connection that publishes; what is unsaid while there is none is kept, in so many words.

    A server that is the replica of another, as after a failover, will not do unless `replicas_do`: in a cluster all
    nodes hear of it. `sent` gets the table and number of keys of each message that the server took. `changed` gets None
    when it took one, and else what it failed with.
    """

    def __init__(
        self,
        connect: Connect,
        name: str,
        sender: bytes,
        replicas_do: bool,
        sent: Callable[[str, int], None],
        changed: Callable[[BaseException | None], None],
    ) -> None:
        self._connect = connect
        self._name = name
        self._sender = sender
        self._replicas_do = replicas_do
        self._sent = sent
        self._changed = changed
        self._pauses = ReconnectBackoff()
        self._unsaid = PendingInvalidations()
        self._saying = PendingInvalidations()
        self._wanted = asyncio.Event()
        self._prompt = True

    def publish(self, table: str, keys: Collection[Key]) -> None:
        """Have keys of a table told of soon."""
        self._unsaid.add(table, keys)
        self._wanted.set()

    async def flushed(self, until: float, wait_max_s: float = FLUSH_WAIT_MAX_S) -> None:
        """Return when everything so far is told, or shortly after if it cannot be."""
        unsaid = next((one for one in (self._unsaid, self._saying) if one.tables), None)
        loop = asyncio.get_running_loop()
        wait_s = min(wait_max_s, until - loop.time())
        if unsaid is None or not self._prompt or wait_s <= 0:
            return
        future = loop.create_future()
        unsaid.waiting.append(future)
        await asyncio.wait((future,), timeout=wait_s)
        if not future.done():
            self._prompt = False  # Until something is told again, nobody waits.

    async def run(self) -> None:
        """Tell for ever."""
        while True:
            try:
                async with self._connect() as link:
                    await self._tell(link)
            except Exception as error:  # noqa: BLE001  # whatever it was, to end unnoticed would be worse
                self._changed(error)
            await asyncio.sleep(self._pauses.next_s())

    async def _tell(self, link: Connection) -> None:
        while True:
            self._saying, self._unsaid = self._unsaid, PendingInvalidations()
            self._wanted.clear()
            try:
                async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                    counts = await self._say(link, self._saying)
            except BaseException:
                self._unsaid.merge(self._saying)
                raise
            finally:
                said, self._saying = self._saying, PendingInvalidations()
            said.acknowledge()
            self._pauses.succeeded()
            self._prompt = True
            self._changed(None)
            for table, count in counts.items():
                self._sent(table, count)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), IDLE_CHECK_S)

    async def _say(self, link: Connection, unsaid: PendingInvalidations) -> dict[str, int]:
        """Publish, and return how many keys of which table; with nothing to say, see whether the server is there."""
        messages = encode_messages(self._sender, unsaid.tables)
        commands: list[tuple[str | bytes, ...]] = [("PUBLISH", self._name, raw) for raw, _ in messages.values()]
        await link.send_packed_command(link.pack_commands([*commands, ("ROLE",)]), check_health=False)
        for _ in commands:
            await link.read_response(disconnect_on_error=False)
        role, *_ = await link.read_response(disconnect_on_error=False)
        if role != b"master" and not self._replicas_do:
            raise Demoted
        return {table: count for table, (_, count) in messages.items()}
