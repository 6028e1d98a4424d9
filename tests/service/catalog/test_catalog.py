"""The open tables: lookup, tables created by writes, and that everything is closed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from contract import put
from support.virtual_time import in_virtual_time, now
from tableside.catalog import catalog as catalog_module
from tableside.catalog.admission import AdmissionMetrics, InFlight
from tableside.catalog.backends import CHECK_EVERY_S, RESULT_AGE_MAX_S, RESULT_WAIT_MAX_S, Reachability
from tableside.catalog.catalog import Catalog
from tableside.catalog.stack import StackMetrics
from tableside.catalog.store_shares import Environment
from tableside.core.backend import Backend
from tableside.core.errors import Overloaded, StoreUnavailable, TableError, TableNotFound, TooLarge, Unsupported
from tableside.core.operations import Get, Record, Written
from tableside.core.store import Capabilities, Store, TableSpec
from tableside.settings import validate
from tableside.stores.memory import MemoryBackend, MemoryStore

MEMORY = {"fast": {"kind": "memory"}}


@asynccontextmanager
async def opened(data: dict[str, Any], registry: CollectorRegistry | None = None) -> AsyncIterator[Catalog]:
    catalog = await Catalog.open(validate(data), Environment(StackMetrics(registry or CollectorRegistry())))
    try:
        yield catalog
    finally:
        await catalog.close()


def rocksdb(path: Path) -> dict[str, Any]:
    return {"kind": "rocksdb", "path": str(path / "data")}


async def test_a_table_is_created_by_a_write_and_not_by_a_read() -> None:
    async with opened({"stores": MEMORY, "auto_create": True}) as catalog:
        with pytest.raises(TableNotFound):
            await catalog.table("t")
        assert await catalog.table_or_spec("t") == TableSpec("t", create=True)
        with pytest.raises(TableNotFound):
            await catalog.table("t")
        made = await catalog.table_to_write("t")
        assert await catalog.table("t") is made
        assert await catalog.table_to_write("t") is made


async def test_the_number_of_created_tables_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "AUTO_TABLES_MAX", 3)
    async with opened({"stores": MEMORY, "tables": {"set": {"store": "fast"}}, "auto_create": True}) as catalog:
        for name in ("a", "b", "c", "a", "set"):
            await catalog.table_to_write(name)
        with pytest.raises(TooLarge, match="3 tables"):
            await catalog.table_to_write("d")


async def test_a_created_table_exists_after_a_restart(tmp_path: Path) -> None:
    data = {"stores": {"local": rocksdb(tmp_path)}, "auto_create": True}
    async with opened(data) as catalog:
        await (await catalog.table_to_write("kept")).one(put("a", {"n": 1}))
        await catalog.table_to_write("empty")
    async with opened(data) as catalog:
        assert [entry.spec.name for entry in catalog.entries()] == ["kept"]
        assert isinstance(await (await catalog.table("kept")).one(Get("a")), Record)


async def test_the_stored_name_of_a_configured_table_is_not_another_table(tmp_path: Path) -> None:
    data: dict[str, Any] = {"stores": {"local": rocksdb(tmp_path)}, "auto_create": True}
    data["tables"] = {"called": {"store": "local", "name": "stored"}, "plain": {"store": "local"}}
    async with opened(data) as catalog:
        await (await catalog.table("called")).one(put("a"))
        await (await catalog.table("plain")).one(put("a"))
    async with opened(data) as catalog:
        assert [entry.spec.name for entry in catalog.entries()] == ["called", "plain"]


async def test_a_write_to_the_stored_name_of_a_table_creates_none() -> None:
    data = {"stores": MEMORY, "tables": {"called": {"store": "fast", "name": "stored"}}, "auto_create": True}
    async with opened(data) as catalog:
        ways: list[Callable[[str], Awaitable[object]]] = [catalog.table_or_spec, catalog.table_to_write]
        for way in ways:
            with pytest.raises(TableNotFound):
                await way("stored")
        assert [entry.spec.name for entry in catalog.entries()] == ["called"]


async def test_a_table_is_created_although_its_creator_was_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened({"stores": MEMORY, "auto_create": True}) as catalog:
        backend, there = catalog._backends["fast"], asyncio.Event()
        open_store = backend.store

        async def store(spec: TableSpec) -> Store:
            await there.wait()
            return await open_store(spec)

        monkeypatch.setattr(backend, "store", store)
        first, second = (asyncio.create_task(catalog.table_to_write("t")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        there.set()
        assert await second is await catalog.table("t")


async def test_a_store_that_fails_to_open_closes_the_others(tmp_path: Path) -> None:
    one, other = rocksdb(tmp_path / "one"), rocksdb(tmp_path / "other")
    async with opened({"stores": {"other": other}}):
        with pytest.raises(StoreUnavailable):
            async with opened({"stores": {"one": one, "other": other}}):
                pass
        async with opened({"stores": {"one": one}}) as catalog:
            assert await catalog.ping() == {"one": None}


class UnavailableBackend(MemoryBackend):
    """A backend that is unavailable until it wakes."""

    def __init__(self) -> None:
        super().__init__()
        self.awake = False
        self.asked = 0
        self.answers_after_s = 0.0
        self.refusal: TableError = StoreUnavailable("asleep")

    async def store(self, spec: TableSpec) -> MemoryStore:
        self.asked += 1
        await asyncio.sleep(self.answers_after_s)
        if not self.awake:
            raise self.refusal
        return await super().store(spec)


async def sleeping(
    backend: UnavailableBackend,
    others: Mapping[str, Backend] | None = None,
    in_flight: InFlight | None = None,
    **top: Any,
) -> Catalog:
    stores = {**MEMORY, **{name: {"kind": "memory"} for name in others or {}}}
    tables = {"t": {"store": "fast", "deadline_s": 0.2}, **{name: {"store": name} for name in others or {}}}
    settings = validate({"stores": stores, "tables": tables, **top})
    environment = Environment(StackMetrics(CollectorRegistry()), in_flight=in_flight)
    catalog = Catalog(settings, {"fast": backend, **(others or {})}, environment)
    await catalog._open_tables()
    return catalog


async def test_a_table_of_an_unavailable_store_opens_when_the_store_recovers() -> None:
    backend = UnavailableBackend()
    catalog = await sleeping(backend)
    for ask in (catalog.table, catalog.table_to_write, catalog.table_or_spec):
        with pytest.raises(StoreUnavailable, match="asleep"):
            await ask("t")
    assert catalog.entry("t").table is None
    backend.awake = True
    assert isinstance(await (await catalog.table("t")).one(put("a")), Written)
    assert catalog.entry("t").table is await catalog.table("t")


async def test_concurrent_requests_open_a_table_once() -> None:
    backend = UnavailableBackend()
    catalog = await sleeping(backend)
    backend.awake, backend.answers_after_s, backend.asked = True, 0.01, 0
    found = await asyncio.gather(*(catalog.table("t") for _ in range(20)))
    assert len(set(map(id, found))) == 1
    assert backend.asked == 2  # the control table of generations, and the table


@pytest.mark.parametrize(("others", "waiting"), [(["other"], 3), ([], 6)])
async def test_callers_that_wait_for_a_table_to_open_take_only_the_share_of_its_store(
    others: list[str], waiting: int
) -> None:
    """A single store has no share: it may use the whole limit."""
    in_flight = InFlight(
        AdmissionMetrics(CollectorRegistry()), requests_max=4, operations_max=9, bytes_max=9, store_share_max=0.75
    )
    backend = UnavailableBackend()
    catalog = await sleeping(backend, {name: MemoryBackend() for name in others}, in_flight)
    backend.answers_after_s = 60
    found = await asyncio.gather(*(catalog.table("t") for _ in range(6)), return_exceptions=True)
    assert [type(error) for error in found] == [StoreUnavailable] * waiting + [Overloaded] * (6 - waiting)
    for name in others:
        assert await (await catalog.table(name)).one(Get("a")) is None
    catalog.check_admission("t")


async def test_a_table_that_contradicts_the_settings_ends_the_start() -> None:
    backend = UnavailableBackend()
    backend.refusal = Unsupported("keys of three parts")
    with pytest.raises(Unsupported, match=r"table 't', in store 'fast': keys of three parts"):
        await sleeping(backend)


async def test_a_table_that_expires_needs_a_store_that_keeps_expiry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "capabilities", Capabilities(ttl=False))
    with pytest.raises(Unsupported, match="ttl"):
        async with opened({"stores": MEMORY, "tables": {"t": {"store": "fast", "ttl_s": 5}}}):
            pass
    async with opened({"stores": MEMORY, "tables": {"t": {"store": "fast"}}}) as catalog:
        assert not (await catalog.table("t")).capabilities.ttl


async def test_a_table_whose_creation_failed_does_not_exist() -> None:
    backend = UnavailableBackend()
    catalog = await sleeping(backend, auto_create=True)
    with pytest.raises(StoreUnavailable):
        await catalog.table_to_write("new")
    assert [entry.spec.name for entry in catalog.entries()] == ["t"]
    backend.awake = True
    assert isinstance(await (await catalog.table_to_write("new")).one(put("a")), Written)


class PingCountingBackend(UnavailableBackend):
    """A backend that counts pings, and answers them when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0
        self.answers = asyncio.Event()

    async def ping(self) -> None:
        self.times += 1
        await self.answers.wait()


async def test_concurrent_readiness_checks_share_one_ping() -> None:
    backend = PingCountingBackend()
    catalog = await sleeping(backend)
    many = [asyncio.create_task(catalog.ping()) for _ in range(100)]
    await asyncio.sleep(0)
    many[0].cancel()  # A cancelled caller does not affect the others.
    await asyncio.sleep(0.01)
    assert (backend.times, any(one.done() for one in many[1:])) == (1, False)
    backend.answers.set()
    assert await asyncio.gather(*many[1:]) == [{"fast": None}] * 99
    assert await catalog.ping() == {"fast": None}
    assert backend.times == 2
    await catalog.close()


class SlowStore:
    """A backend that answers a check after some time, and then reports that it is unavailable."""

    def __init__(self, answers_after_s: float) -> None:
        self.times = 0
        self._answers_after_s = answers_after_s

    async def ping(self) -> None:
        self.times += 1
        await asyncio.sleep(self._answers_after_s)
        raise StoreUnavailable("no answer")


def reachability(store: SlowStore) -> Reachability:
    backends: Any = {"local": store}
    return Reachability(backends, StackMetrics(CollectorRegistry()).reachable)


@in_virtual_time
async def test_a_store_without_requests_is_checked_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    registry, backend = CollectorRegistry(), PingedStore()
    settings = validate({"stores": {"idle": {"kind": "memory"}}})
    catalog = Catalog(settings, {"idle": backend}, Environment(StackMetrics(registry)))
    watching = asyncio.create_task(catalog.watch_stores())
    seen = []
    for failing in (False, True, True, False):
        backend.failing = failing
        await asyncio.sleep(CHECK_EVERY_S + 1)
        seen.append(registry.get_sample_value("tableside_store_reachable", {"store": "idle"}))
    watching.cancel()
    assert seen == [1, 0, 0, 1]
    assert caplog.messages == ["store idle cannot be reached: no route to host", "store idle can be reached again"]
    await catalog.close()


class PingedStore(MemoryBackend):
    """A backend whose checks fail while it is `failing`."""

    failing = False

    async def ping(self) -> None:
        if self.failing:
            raise StoreUnavailable("no route to host")


@in_virtual_time
async def test_pages_share_one_recent_check() -> None:
    store = SlowStore(0.1)
    checks = reachability(store)
    found = await asyncio.gather(*(checks.recent() for _ in range(10)))
    assert [[*one] for one in found] == [["local"]] * 10
    assert [*await checks.recent()] == ["local"]
    assert store.times == 1
    await asyncio.sleep(RESULT_AGE_MAX_S)
    await checks.recent()
    assert store.times == 2


@in_virtual_time
async def test_a_hung_store_delays_no_page() -> None:
    store = SlowStore(1.5)
    checks, began = reachability(store), now()
    assert await checks.recent() == {}
    assert now() - began == RESULT_WAIT_MAX_S
    await asyncio.sleep(1.5)
    assert isinstance((await checks.recent())["local"], StoreUnavailable)
    assert store.times == 1
    checks.close()
