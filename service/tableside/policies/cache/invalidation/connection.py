"""A connection to the Redis that is a channel.

The driver's own publish and subscribe is not used: it connects again by itself, and does not say that something may
have been missed meanwhile.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

from redis.asyncio.connection import Connection

from ....core import exponential_backoff_s


class Demoted(Exception):
    """The server is a replica: what is published there its primary does not hear."""


Connect = Callable[[], AbstractAsyncContextManager[Connection]]


def connector(connection: Mapping[str, Any], connect_timeout_s: float) -> Connect:
    """Return what makes connections, of what the driver is to be told of them."""
    told = dict(connection)
    told.pop("db", None)  # What is published is of no database.
    make = told.pop("connection_class", None) or Connection
    if "path" not in told:
        told["socket_keepalive"] = True
    told |= {
        "socket_connect_timeout": connect_timeout_s,
        "socket_timeout": None,  # Who sends and who reads has a time of his own.
        "protocol": 2,
        "driver_info": None,
    }
    return partial(_connected, partial(make, **told), connect_timeout_s)


@asynccontextmanager
async def _connected(make: Callable[[], Connection], connect_timeout_s: float) -> AsyncIterator[Connection]:
    link = make()
    try:
        async with asyncio.timeout(connect_timeout_s):
            await link.connect()  # type: ignore[no-untyped-call]  # it has no annotations
        yield link
    finally:
        await link.disconnect(nowait=True)


PAUSE_S = 0.05
PAUSE_MAX_S = 1.0


class ReconnectBackoff:
    """Grow from failure to failure, and begin again after a success."""

    def __init__(self) -> None:
        self._failures = 0

    def succeeded(self) -> None:
        """Begin again."""
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
