"""The screenshot in the documentation: of a real service under real load, for some seconds.

`scripts/run python -m scripts.figures.screenshots` makes a new one in a minute.
"""

import asyncio
import math
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
from playwright.async_api import Browser, async_playwright, expect

from servers import chromium
from support.running import running

from ..bootstrap import ROOT

FOLDER = ROOT / "docs" / "images"
TRAFFIC_S = 30
AIRCRAFT = 3000

CONFIG = """
stores:
  local: {kind: rocksdb, path: ./data}
  scratch: {kind: memory}
  cache: {kind: redis, url: "redis://127.0.0.1:1/0"}
tables:
  aircraft: {store: local, key: {tailnum: string}, ttl_s: 86400, cache: {records_max: 2000, ttl_s: 60, absent_ttl_s: 5}}
  profiles: {store: local}
  sessions: {store: cache}
  settings: {store: scratch}
  visits: {store: scratch, key: {user: string, day: integer}, write: {rate_per_s: 150}, deadline_s: 0.3}
"""

Ask = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


async def main() -> None:
    """Run a service under load, and write the pictures."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "tableside.yaml"
        config.write_text(CONFIG)
        with running(Path(directory), config) as service:
            async with httpx.AsyncClient(base_url=service.url, timeout=30) as client:
                callers = [
                    asyncio.create_task(often(client, per_s, ask)) for per_s, ask in ((60, get), (12, put), (5, visit))
                ]
                try:
                    await asyncio.sleep(TRAFFIC_S)
                    async with async_playwright() as driver:
                        browser = await driver.chromium.launch(
                            executable_path=chromium.chromium(), args=[*chromium.ARGUMENTS], chromium_sandbox=False
                        )
                        await pictures(browser, service.url)
                        await browser.close()
                finally:
                    for task in callers:
                        task.cancel()
                    await asyncio.gather(*callers, return_exceptions=True)


async def pictures(browser: Browser, url: str) -> None:
    """Take a picture of the overview."""
    page = await browser.new_page(viewport={"width": 1280, "height": 600})  # a full page is at least as high
    await page.goto(f"{url}/console")
    await expect(page.get_by_role("heading", name="Tables", exact=True)).to_be_visible()
    await page.screenshot(path=FOLDER / "console.png", full_page=True)


async def often(client: httpx.AsyncClient, per_s: float, ask: Ask) -> None:
    """Send requests at random times with an average rate that varies."""
    while True:
        await ask(client)
        await asyncio.sleep(random.expovariate(per_s * (1 + 0.6 * math.sin(time.monotonic() / 60))))


async def get(client: httpx.AsyncClient) -> httpx.Response:
    """Get an aircraft, some of them often."""
    return await client.get(f"/v1/tables/aircraft/records/N{int(random.paretovariate(0.5)) % AIRCRAFT}")


async def put(client: httpx.AsyncClient) -> httpx.Response:
    """Put an aircraft."""
    number = int(random.paretovariate(0.3)) % AIRCRAFT
    value = {"manufacturer": "AIRBUS", "seats": number % 380 + 20, "engines": {"count": 2, "type": "turbo-fan"}}
    return await client.put(f"/v1/tables/aircraft/records/N{number}", json=value)


async def visit(client: httpx.AsyncClient) -> httpx.Response:
    """Count visits. There are more than the table's rate limit allows."""
    count = 45
    operations = [
        {"op": "update", "key": [f"user-{day % 50}", day], "update": {"$inc": {"n": 1}}, "default": {}}
        for day in random.sample(range(300), count)
    ]
    return await client.post("/v1/tables/visits/batch", json={"operations": operations})


if __name__ == "__main__":
    asyncio.run(main())
