"""A service with a console, and a browser that looks at it."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from playwright.async_api import Browser, async_playwright

from servers import chromium
from support.running import Service, running

CONFIG = """
stores:
  local: {kind: memory}
  other: {kind: memory}
  shards: {kind: partitioned, partitions: [local, other]}
  gone: {kind: redis, url: "redis://127.0.0.1:1/0"}
tables:
  aircraft: {store: local, key: {tailnum: string}}
  cached: {store: local, cache: {records_max: 100, ttl_s: 600}}
  quiet: {store: local}
  replaced: {store: local, generations: true}
  sessions: {store: gone, deadline_s: 0.5}
  spread: {store: shards}
  visits: {store: local, key: {user: string, day: integer}}
"""


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("console")
    config = directory / "tableside.yaml"
    config.write_text(CONFIG)
    with running(directory, config) as started:
        yield started


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=30) as opened:
        yield opened


@pytest.fixture(scope="package")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """A headless browser."""
    program = chromium.chromium()
    async with async_playwright() as driver:
        started = await driver.chromium.launch(
            executable_path=program,
            args=[*chromium.ARGUMENTS],
            chromium_sandbox=False,  # not available to root
            env={"HOME": str(tmp_path_factory.mktemp("home"))},
        )
        yield started
        await started.close()
