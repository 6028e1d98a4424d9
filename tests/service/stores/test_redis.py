"""The Redis store passes the shared suite on a real server; and what is its own."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from redis_tables import connected, own
from store_contract import StoreContract, Time
from tableside.store import Store, TableSpec


class TestRedis(StoreContract):
    clock_can_be_set = False
    splits_have_several_parts = False

    @pytest.fixture(autouse=True)
    def _server(self, redis_url: str) -> None:
        self.url = redis_url

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Store]:
            async with connected(self.url) as backend:
                yield await backend.store(own(spec))

        return opened()
