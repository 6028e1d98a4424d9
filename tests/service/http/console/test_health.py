"""Health checks of stores are rate limited, and no page waits for a store that does not respond."""

import asyncio

from support.virtual_time import in_virtual_time, now
from tableside.core.errors import StoreUnavailable
from tableside.http.console.health import AGE_MAX_S, WAIT_MAX_S, Health, Stores


class StoreCheck:
    def __init__(self, answers_after_s: float = 0.0, error: StoreUnavailable | None = None) -> None:
        self.times = 0
        self.error = error
        self._answers_after_s = answers_after_s

    async def __call__(self) -> Stores:
        self.times += 1
        await asyncio.sleep(self._answers_after_s)
        return {"local": self.error}


@in_virtual_time
async def test_concurrent_pages_share_one_health_check() -> None:
    health, asked = Health(), StoreCheck(0.1)
    found = await asyncio.gather(*(health.stores(asked) for _ in range(10)))
    assert found == [{"local": None}] * 10
    assert await health.stores(asked) == {"local": None}
    assert asked.times == 1
    await asyncio.sleep(AGE_MAX_S)
    await health.stores(asked)
    assert asked.times == 2


@in_virtual_time
async def test_a_hung_store_delays_no_page() -> None:
    health, asked = Health(), StoreCheck(2.0, StoreUnavailable("no answer"))
    began = now()
    assert await health.stores(asked) == {}
    assert now() - began == WAIT_MAX_S
    await asyncio.sleep(2)
    assert await health.stores(asked) == {"local": asked.error}
    assert asked.times == 1
    await health.close()


@in_virtual_time
async def test_closing_cancels_the_pending_check() -> None:
    health = Health()
    await health.stores(StoreCheck(3600.0))
    began = now()
    await health.close()
    assert now() == began
