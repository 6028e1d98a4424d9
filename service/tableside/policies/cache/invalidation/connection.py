"""Connections to the Redis that carries a channel.

The driver's own PubSub is not used: it reconnects silently and does not report that messages may have been missed.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

from redis.asyncio.connection import Connection

from ....core import exponential_backoff_s


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


PAUSE_S = 0.05
PAUSE_MAX_S = 1.0


class ReconnectBackoff:
    """The pauses between attempts to connect: they grow with each failure, and start again after a success."""

    def __init__(self) -> None:
        self._failures = 0

    def succeeded(self) -> None:
        """Start again."""
        self._failures = 0

    def next_s(self) -> float:
        """Return the next pause in seconds: none after the first failure, later a random one."""
        self._failures += 1
        if self._failures == 1:
            return 0.0
        return exponential_backoff_s(
            self._failures,
            PAUSE_S,
            PAUSE_MAX_S,
            lambda: random.uniform(0.5, 1),  # noqa: S311  # no secret
        )
