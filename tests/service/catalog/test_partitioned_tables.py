"""Partitioned tables in a catalog: policies around each partition, reloads, and tables created by writes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from contract import put, update
from tableside.catalog import Catalog, CatalogMetrics, Environment, InFlight
from tableside.catalog.table import Table
from tableside.core import values
from tableside.core.errors import (
    Overloaded,
    TableError,
    TableNotFound,
    Throttled,
    TooLarge,
)
from tableside.core.operations import Get, Record, Token, Written
from tableside.core.store import TableSpec
from tableside.settings import LimitSettings, validate

STORES: dict[str, Any] = {
    "a": {"kind": "memory"},
    "b": {"kind": "memory"},
    "shards": {"kind": "partitioned", "partitions": ["a", "b"]},
}
CACHE = {"records_max": 100, "ttl_s": 60, "absent_ttl_s": 60}
RATE = {"rate_per_s": 0.001, "burst": 2}


@asynccontextmanager
async def opened(
    data: dict[str, Any], registry: CollectorRegistry | None = None, in_flight: InFlight | None = None
) -> AsyncIterator[Catalog]:
    environment = Environment(CatalogMetrics(registry or CollectorRegistry()), in_flight=in_flight)
    catalog = await Catalog.open(validate(data), environment)
    try:
        yield catalog
    finally:
        await catalog.close()


def settings(table: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"stores": STORES, "tables": {"t": {"store": "shards", **(table or {})}}, **more}


async def n(table: Table, key: str, partition: int) -> Any:
    found = await table.one(Get(key, partitions=(partition,)))
    return values.decode(found.value)["n"] if isinstance(found, Record) else found


async def test_a_cache_keeps_the_records_of_one_partition_only() -> None:
    registry = CollectorRegistry()
    async with opened(settings({"cache": CACHE}), registry) as catalog:
        table = await catalog.table("t")
        await table.one(put("x", {"n": 0}, partitions=(0,)))
        await table.one(put("x", {"n": 1}, partitions=(1,)))
        for _ in range(3):
            assert [await n(table, "x", 0), await n(table, "x", 1)] == [0, 1]
        await table.one(put("x", {"n": 5}, partitions=(1,)))
        assert [await n(table, "x", 0), await n(table, "x", 1)] == [0, 5]

        def count(outcome: str) -> float | None:
            return registry.get_sample_value("tableside_cache_gets_total", {"table": "t", "outcome": outcome})

        assert (count("miss"), count("hit")) == (3, 5)
        assert registry.get_sample_value("tableside_cache_records", {"table": "t"}) == 2


async def test_a_rate_limit_is_of_each_partition_by_itself() -> None:
    async with opened(settings({"write": RATE, "deadline_s": 0.2})) as catalog:
        table = await catalog.table("t")
        for _ in range(2):
            assert isinstance(await table.one(put("x", partitions=(0,))), Written)
        outcome = await table.one(put("x", partitions=(0, 1)))
        assert isinstance(outcome, Throttled)
        assert outcome.partitions is not None
        assert [type(part.outcome) for part in outcome.partitions] == [Throttled, Written]


async def test_an_operation_in_flight_counts_once_for_each_partition() -> None:
    registry = CollectorRegistry()
    in_flight = InFlight(registry, LimitSettings(operations_in_flight_max=3))
    waiting = {"rate_per_s": 4, "burst": 1}
    async with opened(settings({"write": waiting}), registry, in_flight) as catalog:
        table = await catalog.table("t")
        await table.one(put("x", partitions=(0, 1)))
        waits = asyncio.create_task(table.batch([put("x", partitions=(0, 1)), put("y", partitions=())]))
        await asyncio.sleep(0.05)
        assert in_flight.operations.in_flight == 2
        with pytest.raises(Overloaded):
            await table.one(put("z", partitions=(0, 1)))
        assert isinstance(await table.one(put("z", partitions=())), Written)
        await waits
        assert in_flight.operations.in_flight == 0
        with pytest.raises(TooLarge, match="operations_in_flight_max"):
            await table.batch([put("x", partitions=(0, 1)), put("y", partitions=(0, 1))])


async def test_only_a_retriable_failure_in_a_partition_blocks_later_operations() -> None:
    async with opened(settings({"write": RATE, "deadline_s": 0.3})) as catalog:
        table = await catalog.table("t")
        await table.one(put("x", {"n": "text"}, partitions=(1,)))
        refused, later = await table.batch(
            [put("x", if_absent=True, partitions=(0, 1)), put("x", {"n": 2}, partitions=(0,))]
        )
        assert isinstance(refused, TableError)
        assert refused.applied == "unknown"
        assert isinstance(later, Written)
        throttled, held_back = await table.batch([put("x", {}, partitions=(0, 1)), put("x", {}, partitions=())])
        assert isinstance(throttled, Throttled)
        assert isinstance(held_back, Throttled)
        assert "not attempted" in held_back.detail
        assert (held_back.applied, held_back.retriable, held_back.partitions) == ("no", True, None)


# Reloads while the service runs


async def test_policies_change_around_every_partition_and_records_stay() -> None:
    registry = CollectorRegistry()
    async with opened(settings(), registry) as catalog:
        table = await catalog.table("t")
        token = Token("w", 1)
        increment = update("x", {"$inc": {"n": 1}}, {"n": 0}, token=token, partitions=(0, 1))
        await table.one(increment)
        await catalog.change(validate(settings({"cache": CACHE, "deadline_s": 3})))
        changed = await catalog.table("t")
        assert changed is not table
        assert changed.deadline_s == 3
        again = await changed.one(increment)
        assert isinstance(again, Written)
        assert again.replayed
        await asyncio.sleep(0.05)  # the new caches keep nothing until the old policies have ended
        for _ in range(3):
            assert [await n(changed, "x", 0), await n(changed, "x", 1)] == [1, 1]
        assert registry.get_sample_value("tableside_cache_gets_total", {"table": "t", "outcome": "hit"}) == 4
        await catalog.change(validate({"stores": STORES}))
        with pytest.raises(TableNotFound):
            await catalog.table("t")
        await catalog.change(validate(settings()))
        assert await n(await catalog.table("t"), "x", 1) == 1


async def test_a_table_that_replaces_others_caches_nothing_until_they_have_ended() -> None:
    mine = {"stores": STORES, "tables": {name: {"store": name, "name": "t"} for name in ("a", "b")}}
    async with opened(mine) as catalog:
        for name in ("a", "b"):
            await (await catalog.table(name)).one(put("x", {"n": name}))
        await catalog.change(validate(settings({"cache": CACHE})))
        table = await catalog.table("t")
        assert [await n(table, "x", 0), await n(table, "x", 1)] == ["a", "b"]


# Tables created by writes


async def test_a_write_creates_a_table_in_every_partition() -> None:
    async with opened({"stores": STORES, "auto_create": True, "default_store": "shards"}) as catalog:
        assert await catalog.table_or_spec("made") == TableSpec("made", create=True, partitions=2)
        table = await catalog.table_to_write("made")
        await table.one(put("x", {"n": 1}, partitions=(0, 1)))
        assert [await n(table, "x", 0), await n(table, "x", 1)] == [1, 1]
        [entry] = catalog.entries()
        assert (entry.store.name, entry.store.kind, entry.spec.partitions) == ("shards", "partitioned", 2)
        assert entry.locations == {("a", "made"), ("b", "made")}


async def test_a_write_creates_no_table_with_the_stored_name_of_a_partition() -> None:
    for default, store in (("a", "shards"), ("shards", "b")):
        data = {
            "stores": STORES,
            "tables": {"t": {"store": store, "name": "kept"}},
            "auto_create": True,
            "default_store": default,
        }
        async with opened(data) as catalog:
            with pytest.raises(TableNotFound):
                await catalog.table_to_write("kept")
