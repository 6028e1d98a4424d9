"""The open tables: lookup, tables created by writes, and that everything is closed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from contract import put
from support.virtual_time import in_virtual_time
from tableside.catalog import Catalog, CatalogMetrics, Environment, catalog as catalog_module
from tableside.catalog.open_stores import CHECK_EVERY_S
from tableside.core.errors import StoreUnavailable, TableError, TableNotFound, TooLarge, Unsupported
from tableside.core.operations import Get, Record, Written
from tableside.core.store import TableSpec
from tableside.settings import validate
from tableside.stores.memory import MemoryBackend, MemoryStore

MEMORY = {"fast": {"kind": "memory"}}


@asynccontextmanager
async def opened(data: dict[str, Any], registry: CollectorRegistry | None = None) -> AsyncIterator[Catalog]:
    catalog = await Catalog.open(validate(data), Environment(CatalogMetrics(registry or CollectorRegistry())))
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


async def test_a_store_that_fails_to_open_closes_the_others(tmp_path: Path) -> None:
    one, other = rocksdb(tmp_path / "one"), rocksdb(tmp_path / "other")
    async with opened({"stores": {"other": other}}):
        with pytest.raises(StoreUnavailable):
            async with opened({"stores": {"one": one, "other": other}}):
                pass
        async with opened({"stores": {"one": one}}) as catalog:
            assert await catalog.reachability.check() == {"one": None}


class UnavailableBackend(MemoryBackend):
    """A backend that is unavailable until it wakes."""

    def __init__(self) -> None:
        super().__init__()
        self.awake = False
        self.refusal: TableError = StoreUnavailable("asleep")

    async def store(self, spec: TableSpec) -> MemoryStore:
        if not self.awake:
            raise self.refusal
        return await super().store(spec)


async def sleeping(backend: UnavailableBackend) -> Catalog:
    settings = validate({"stores": MEMORY, "tables": {"t": {"store": "fast", "deadline_s": 0.2}}})
    catalog = Catalog(settings, {"fast": backend}, Environment(CatalogMetrics(CollectorRegistry())))
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


async def test_a_table_that_contradicts_the_settings_ends_the_start() -> None:
    backend = UnavailableBackend()
    backend.refusal = Unsupported("keys of three parts")
    with pytest.raises(Unsupported, match=r"table 't', in store 'fast': keys of three parts"):
        await sleeping(backend)


@in_virtual_time
async def test_a_store_without_requests_is_checked_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    registry, backend = CollectorRegistry(), PingedStore()
    settings = validate({"stores": {"idle": {"kind": "memory"}}})
    catalog = Catalog(settings, {"idle": backend}, Environment(CatalogMetrics(registry)))
    watching = asyncio.create_task(catalog.reachability.run())
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
