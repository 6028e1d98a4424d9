"""Checks whether the stores of the catalog can be reached."""

import asyncio
from collections.abc import Mapping

from ..core import Backend, StoreUnavailable, TableError

PING_TIMEOUT_S = 2.0


class Reachability:
    """Checks all backends concurrently. Concurrent calls share one check.

    Clients can request this check at any rate, and it takes connections.
    """

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = backends
        self._checking: asyncio.Task[dict[str, StoreUnavailable | None]] | None = None

    async def check(self) -> dict[str, StoreUnavailable | None]:
        """Return for each backend why it cannot be reached, or None."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check())
        return dict(await asyncio.shield(self._checking))

    async def _check(self) -> dict[str, StoreUnavailable | None]:
        return dict(zip(self._backends, await asyncio.gather(*map(_ping, self._backends.values())), strict=True))


async def _ping(backend: Backend) -> StoreUnavailable | None:
    try:
        async with asyncio.timeout(PING_TIMEOUT_S):
            await backend.ping()
    except StoreUnavailable as error:
        return error
    except TableError as error:  # for example, a server that hangs until the store's own deadline
        return StoreUnavailable(error.detail)
    except TimeoutError:
        return StoreUnavailable(f"no answer within {PING_TIMEOUT_S} s")
    return None
