"""Which stores can be reached, asked at most once in a while however many look, and never waited for long."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from ...core import StoreUnavailable

Stores = Mapping[str, StoreUnavailable | None]

AGE_MAX_S = 2.0
WAIT_MAX_S = 0.25


class Health:
    """What the stores answered last. `ask` asks them all, as `Catalog.ping` does."""

    def __init__(self) -> None:
        self._known: Stores = {}
        self._known_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def stores(self, ask: Callable[[], Awaitable[Stores]]) -> Stores:
        """Return what is known of the stores; of one that has not answered yet, nothing.

        A store that does not answer holds no page up: the page shows what was known before, and the next one more.
        """
        if asyncio.get_running_loop().time() - self._known_at >= AGE_MAX_S:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask(ask))
            await asyncio.wait([self._asking], timeout=WAIT_MAX_S)
        return self._known

    async def close(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            self._asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._asking

    async def _ask(self, ask: Callable[[], Awaitable[Stores]]) -> None:
        self._known = await ask()
        self._known_at = asyncio.get_running_loop().time()
