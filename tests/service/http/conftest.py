"""A service on each store, with tables of every kind of key and small limits."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import httpx
import pytest

from service.http.api_client import STORES, ApiClient
from support.running import running

CONFIG = """
stores:
  local: %s
auto_create: true
default_store: local
tables:
  hour: {store: local, ttl_s: 3600}
  numbers: {store: local, key: {id: integer}}
  aircraft: {store: local, key: {tailnum: string}}
  visits: {store: local, key: {user: string, day: string}}
  pages: {store: local, key: {book: string, page: integer}}
limits: {body_bytes_max: 262144, operations_max: 200, response_bytes_max: 65536}
"""


@pytest.fixture(scope="session")
def api_on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ApiClient]]:
    """Clients of services, one for each store. A service starts with its first test and runs until the last."""
    with ExitStack() as stack:

        @cache
        def start(store: str) -> ApiClient:
            directory: Path = tmp_path_factory.mktemp(store)
            config = directory / "tableside.yaml"
            config.write_text(CONFIG % STORES[store])
            started = stack.enter_context(running(directory, config))
            client = stack.enter_context(httpx.Client(base_url=started.url, timeout=30))
            return ApiClient(client, partitioned=store == "partitioned")

        yield start


@pytest.fixture(scope="session")
def api(request: pytest.FixtureRequest, api_on: Callable[[str], ApiClient]) -> ApiClient:
    """A client of a service on the memory store, or on each store for tests with `ON_EVERY_STORE`."""
    return api_on(getattr(request, "param", "memory"))
