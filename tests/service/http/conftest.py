"""A service on each store, with tables of every kind of key and small limits."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from running import running
from service.http.asking import Asking

STORES = {
    "memory": "{kind: memory}",
    "rocksdb": "{kind: rocksdb, path: ./data}",
    "partitioned": "{kind: partitioned, partitions: [one, other]}\n  one: {kind: memory}\n"
    "  other: {kind: rocksdb, path: ./data}",
}

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


@pytest.fixture(scope="session", params=list(STORES))
def asking(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """A client of a service on one store; what it asserts holds on every store."""
    directory: Path = tmp_path_factory.mktemp(request.param)
    config = directory / "tableside.yaml"
    config.write_text(CONFIG % STORES[request.param])
    with running(directory, config) as started, httpx.Client(base_url=started.url, timeout=30) as client:
        yield Asking(client, partitioned=request.param == "partitioned")
