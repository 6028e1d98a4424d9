"""The shared suite on the memory store, and tests of its specific features."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from contract import StoreContract, Time, one, pages, put, record, update, written
from tableside.core.budget import Budget
from tableside.core.errors import DeadlineExceeded, TooLarge
from tableside.core.page_builder import PAGE_SKIPPED_MAX
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


async def test_tables_are_separate() -> None:
    backend = await MemoryBackend.open(MemorySettings())
    one, other = await backend.store(TableSpec("one")), await backend.store(TableSpec("other"))
    await written(one, put("a", {"n": 1}))
    assert (await other.scan(_all())).records == []
    assert (await record(await backend.store(TableSpec("one")), "a")).value == b'{"n":1}'
    assert await backend.tables() == ["one", "other"]


async def test_a_value_that_is_longer_than_a_new_limit_is_read_and_can_be_replaced() -> None:
    backend = await MemoryBackend.open(MemorySettings())
    await written(await backend.store(TableSpec("t")), put("a", {"text": "x" * 2000}))
    store = await backend.store(TableSpec("t", value_bytes_max=1024))
    assert (await record(store, "a")).value == b'{"text":"%b"}' % (b"x" * 2000)
    assert isinstance(await one(store, update("a", {"n": 1})), TooLarge)
    await written(store, update("a", {"text": None}))
    assert (await record(store, "a")).value == b"{}"


async def test_a_page_ends_early_among_expired_records() -> None:
    time = Time(real=False)
    store = await MemoryBackend(time.now_ms).store(TableSpec("t"))
    await store.apply([put(f"{index:06}", {}, ttl_s=1) for index in range(2 * PAGE_SKIPPED_MAX + 10)])
    await written(store, put("live"))
    await time.passes(1.0)
    assert [len(page.records) for page in await pages(store, Scan(1))] == [0, 0, 1]


async def test_nothing_is_written_after_the_deadline() -> None:
    store = await (await MemoryBackend.open(MemorySettings())).store(TableSpec("t"))
    outcomes = await store.apply([put("a", {}), put("b", {})], Budget(asyncio.get_running_loop().time()))
    assert [type(outcome) for outcome in outcomes] == [DeadlineExceeded] * 2
    assert (await store.scan(_all())).records == []


def _all() -> Scan:
    return Scan(100)
