"""The shared suite on the memory store, and tests of its specific features."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from contract import StoreContract, Time, one, put, record, update, written
from tableside.core.budget import Budget
from tableside.core.errors import DeadlineExceeded, TooLarge
from tableside.core.store import Scan, Store, TableSpec
from tableside.stores.memory import MemoryBackend, MemorySettings


class TestMemory(StoreContract):
    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Store]:
            backend = MemoryBackend(time.now_ms)
            yield await backend.store(spec)
            await backend.close()

        return opened()


async def test_a_value_that_is_longer_than_a_new_limit_is_read_and_can_be_replaced() -> None:
    backend = await MemoryBackend.open(MemorySettings())
    await written(await backend.store(TableSpec("t")), put("a", {"text": "x" * 2000}))
    store = await backend.store(TableSpec("t", value_bytes_max=1024))
    assert (await record(store, "a")).value == b'{"text":"%b"}' % (b"x" * 2000)
    assert isinstance(await one(store, update("a", {"n": 1})), TooLarge)
    await written(store, update("a", {"text": None}))
    assert (await record(store, "a")).value == b"{}"


async def test_nothing_is_written_after_the_deadline() -> None:
    store = await (await MemoryBackend.open(MemorySettings())).store(TableSpec("t"))
    outcomes = await store.apply([put("a", {}), put("b", {})], Budget(asyncio.get_running_loop().time()))
    assert [type(outcome) for outcome in outcomes] == [DeadlineExceeded] * 2
    assert (await store.scan(_all())).records == []


def _all() -> Scan:
    return Scan(100)
