"""The health of the stores, cached briefly so that the number of viewers does not affect the load on stores."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping

from ...core import StoreUnavailable

Stores = Mapping[str, StoreUnavailable | None]

AGE_MAX_S = 2.0
"""How long a result is reused."""

WAIT_MAX_S = 0.25
"""How long a page waits for a result."""


class Health:
    """The last known health of the stores."""

    def __init__(self) -> None:
        self._known: Stores = {}
        self._known_at = float("-inf")
        self._pinging: asyncio.Task[None] | None = None

    async def stores(self, ping: Callable[[], Awaitable[Stores]]) -> Stores:
        """Return the error or None of each store. Stores that have not answered yet are missing.

        `ping` checks all stores, as `Catalog.ping` does. A store that does not answer does not delay the page: it
        returns the last known result, and a later call returns the new one.
        """
        if time.monotonic() - self._known_at >= AGE_MAX_S:
            if self._pinging is None or self._pinging.done():
                self._pinging = asyncio.create_task(self._ping(ping))
            await asyncio.wait([self._pinging], timeout=WAIT_MAX_S)
        return self._known

    async def close(self) -> None:
        """Cancel a check in progress."""
        if self._pinging is not None:
            self._pinging.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pinging

    async def _ping(self, ping: Callable[[], Awaitable[Stores]]) -> None:
        self._known = await ping()
        self._known_at = time.monotonic()
