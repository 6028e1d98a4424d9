"""Sends and receives the messages of a cache channel, through two connections to Redis.

The driver's own PubSub is not used: it reconnects silently and does not report that messages may have been missed.
"""

import asyncio
import contextlib
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from redis.asyncio.connection import Connection

from ...core import Key, exponential_backoff_s

KEYS_MAX = 10_000
"""Maximum number of keys of one table in a message. For more, the message invalidates the whole table."""

MESSAGE_BYTES_MAX = 256 * 2**10
"""Maximum size of a message. A longer one is replaced by one that invalidates the whole table."""

FLUSH_WAIT_MAX_S = 0.1
"""Maximum time that a write waits for its publication. While publishing fails, writes do not wait."""

RESPONSE_TIMEOUT_S = 2.0
"""Time for the server to respond before the connection is replaced."""

IDLE_CHECK_S = 1.0
"""After this time without a message, check whether the server responds."""

PAUSE_S = 0.05
PAUSE_MAX_S = 1.0


class Link(ABC):
    """A connection that is established again whenever it fails, with pauses that grow until it works.

    `on_changed` is called with None when the link works, and with the error when it fails.
    """

    def __init__(self, connect: "Connect", name: str, on_changed: Callable[[BaseException | None], None]) -> None:
        self._name = name
        self._connect = connect
        self._on_changed = on_changed
        self._failures = 0

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                async with self._connect() as connection:
                    await self._work(connection)
            except Exception as error:  # noqa: BLE001  # an unexpected error must not end the work
                self._on_changed(error)
            self._failures += 1
            await asyncio.sleep(self._pause_s())

    @abstractmethod
    async def _work(self, connection: Connection) -> None:
        """Use a new connection, and call `_works` when it works."""

    def _works(self) -> None:
        self._failures = 0
        self._on_changed(None)

    def _pause_s(self) -> float:
        """Return how long to wait before connecting: not after the first failure, later for a random time."""
        if self._failures == 1:
            return 0.0
        return exponential_backoff_s(
            self._failures,
            PAUSE_S,
            PAUSE_MAX_S,
            lambda: random.uniform(0.5, 1),  # noqa: S311  # no secret
        )


class Publisher(Link):
    """A connection that publishes. Without a connection, the keys are collected up to the limits of the protocol.

    A server that is a replica, as after a failover, is rejected unless `replicas_allowed`: in a cluster, messages reach
    all nodes. `on_sent` is called with the table and the number of keys of each message that the server accepted.
    """

    def __init__(
        self,
        connect: "Connect",
        name: str,
        sender: bytes,
        replicas_allowed: bool,
        on_sent: Callable[[str, int], None],
        on_changed: Callable[[BaseException | None], None],
    ) -> None:
        super().__init__(connect, name, on_changed)
        self._sender = sender
        self._replicas_allowed = replicas_allowed
        self._on_sent = on_sent
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

    async def _work(self, connection: Connection) -> None:
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
            self._healthy = True
            self._works()
            for table, count in counts.items():
                self._on_sent(table, count)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), IDLE_CHECK_S)

    async def _send(self, connection: Connection, pending: "PendingInvalidations") -> dict[str, int]:
        """Publish, and return the number of keys by table. Without keys, only check that the server responds."""
        messages = {table: encode_message(self._sender, table, keys) for table, keys in pending.tables.items()}
        commands: list[tuple[str | bytes, ...]] = [("PUBLISH", self._name, raw) for raw, _ in messages.values()]
        await connection.send_packed_command(connection.pack_commands([*commands, ("ROLE",)]), check_health=False)
        for _ in commands:
            await connection.read_response(disconnect_on_error=False)
        role, *_ = await connection.read_response(disconnect_on_error=False)
        if role != b"master" and not self._replicas_allowed:
            raise Demoted
        return {table: count for table, (_, count) in messages.items()}


class Subscriber(Link):
    """A subscription. When it is established (again), messages may have been missed before.

    `on_message` is called with each message, or with None for one that cannot be read.
    """

    def __init__(
        self,
        connect: "Connect",
        name: str,
        on_message: "Callable[[Message | None], None]",
        on_changed: Callable[[BaseException | None], None],
    ) -> None:
        super().__init__(connect, name, on_changed)
        self._on_message = on_message
        self._outdated = False

    def renew(self) -> None:
        """Reconnect soon, because another server is the primary now."""
        self._outdated = True

    async def _work(self, connection: Connection) -> None:
        await connection.send_command("SUBSCRIBE", self._name, check_health=False)
        pinged = False
        while True:
            if self._outdated:
                self._outdated = False
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
                self._works()


class Message(msgspec.Struct, frozen=True, array_like=True):
    """The replica `sender` wrote these keys of a table, or None if it may have written any of its keys."""

    sender: bytes
    table: str
    keys: list[Key] | None


class PendingInvalidations(msgspec.Struct, eq=False):
    """The keys that are still to be published, by table, and the futures that wait until they are."""

    tables: dict[str, set[Key] | None] = {}
    waiting: "list[asyncio.Future[None]]" = []

    def add(self, table: str, keys: Collection[Key] | None) -> None:
        """Add keys of a table, or None for all its keys."""
        known = self.tables.setdefault(table, set())
        if known is not None:
            known.update(keys or ())
            if keys is None or len(known) > KEYS_MAX:
                self.tables[table] = None

    def merge(self, pending: "PendingInvalidations") -> None:
        """Add keys whose publication failed, and their waiting futures."""
        for table, keys in pending.tables.items():
            self.add(table, keys)
        self.waiting += pending.waiting

    def acknowledge(self) -> None:
        """Resolve the waiting futures: the keys are published."""
        for future in self.waiting:
            if not future.done():
                future.set_result(None)


def encode_message(sender: bytes, table: str, keys: Iterable[Key] | None) -> tuple[bytes, int]:
    """Return a message, and the number of its keys (1 for all)."""
    listed = None if keys is None else list(keys)
    raw = msgspec.msgpack.encode(Message(sender, table, listed))
    if listed is None or len(raw) > MESSAGE_BYTES_MAX:
        return msgspec.msgpack.encode(Message(sender, table, None)), 1
    return raw, len(listed)


def decode_message(raw: object) -> Message | None:
    """Return the message, or None if this version cannot read it."""
    try:
        return _DECODER.decode(raw) if isinstance(raw, bytes) else None
    except msgspec.DecodeError:
        return None


_DECODER = msgspec.msgpack.Decoder(Message)


class Demoted(Exception):
    """The server is a replica: messages published there do not reach its primary."""


Connect = Callable[[], AbstractAsyncContextManager[Connection]]
Locate = Callable[[], Awaitable[tuple[str, int]]]


def connector(connection: Mapping[str, Any], connect_timeout_s: float, address: Locate | None = None) -> Connect:
    """Return a function that opens connections with these arguments of the driver.

    `address` returns the host and port, if they are not among the arguments because they change.
    """
    options = dict(connection)
    options.pop("db", None)  # Publish/subscribe is independent of the database.
    make = options.pop("connection_class", None) or Connection
    if "path" not in options:
        options["socket_keepalive"] = True
    options |= {
        "socket_connect_timeout": connect_timeout_s,
        "socket_timeout": None,  # The publisher and the subscriber set separate timeouts.
        "protocol": 2,
        "driver_info": None,
    }
    return partial(_connected, partial(make, **options), connect_timeout_s, address)


@asynccontextmanager
async def _connected(
    make: Callable[..., Connection], connect_timeout_s: float, address: Locate | None
) -> AsyncIterator[Connection]:
    host, port = (None, None) if address is None else await address()
    connection = make() if host is None else make(host=host, port=port)
    try:
        async with asyncio.timeout(connect_timeout_s):
            await connection.connect()  # type: ignore[no-untyped-call]  # it has no annotations
        yield connection
    finally:
        await connection.disconnect(nowait=True)
