"""The Redis store passes the shared suite on a real cluster of three masters; and what only a cluster does."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from redis_tables import connected, own
from store_contract import StoreContract, Time
from tableside.store import Store, TableSpec


class TestRedisCluster(StoreContract):
    clock_can_be_set = False

    @pytest.fixture(autouse=True)
    def _servers(self, redis_cluster_urls: list[str]) -> None:
        self.url = redis_cluster_urls[0]

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Store]:
            async with connected(self.url, cluster=True) as backend:
                yield await backend.store(own(spec))

        return opened()
