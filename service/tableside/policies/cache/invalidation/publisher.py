"""Tells other replicas what was written here, many writes in one message, and again what could not be told."""

import asyncio
import contextlib
from collections.abc import Callable, Collection

from redis.asyncio.connection import Connection

from ....core import Key
from .connection import Connect, Demoted, Pauses
from .protocol import Unsaid, encoded

WAIT_MAX_S = 0.1
"""How long a write waits until the others are told; nobody waits while they cannot be."""

ANSWER_MAX_S = 2.0
"""How long the server is waited for before another connection is made."""

QUIET_MAX_S = 1.0
"""After so long a silence the server is asked whether it is there."""


class Telling:
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
        self._pauses = Pauses()
        self._unsaid = Unsaid()
        self._saying = Unsaid()
        self._wanted = asyncio.Event()
        self._prompt = True

    def tell(self, table: str, keys: Collection[Key]) -> None:
        """Have keys of a table told of soon."""
        self._unsaid.add(table, keys)
        self._wanted.set()

    async def told(self, until: float, wait_max_s: float = WAIT_MAX_S) -> None:
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
            self._saying, self._unsaid = self._unsaid, Unsaid()
            self._wanted.clear()
            try:
                async with asyncio.timeout(ANSWER_MAX_S):
                    counts = await self._say(link, self._saying)
            except BaseException:
                self._unsaid.put_back(self._saying)
                raise
            finally:
                said, self._saying = self._saying, Unsaid()
            said.said()
            self._pauses.succeeded()
            self._prompt = True
            self._changed(None)
            for table, count in counts.items():
                self._sent(table, count)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), QUIET_MAX_S)

    async def _say(self, link: Connection, unsaid: Unsaid) -> dict[str, int]:
        """Publish, and return how many keys of which table; with nothing to say, see whether the server is there."""
        messages = encoded(self._sender, unsaid.tables)
        commands: list[tuple[str | bytes, ...]] = [("PUBLISH", self._name, raw) for raw, _ in messages.values()]
        await link.send_packed_command(link.pack_commands([*commands, ("ROLE",)]), check_health=False)
        for _ in commands:
            await link.read_response(disconnect_on_error=False)
        role, *_ = await link.read_response(disconnect_on_error=False)
        if role != b"master" and not self._replicas_do:
            raise Demoted
        return {table: count for table, (_, count) in messages.items()}
