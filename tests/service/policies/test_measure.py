"""Measure passes the shared suite around memory, and counts what became of operations."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from store_contract import StoreContract, Time, put, update
from tableside.operations import Delete, Get, Token
from tableside.policies.measure import Measure, Metrics
from tableside.store import Store, TableSpec
from tableside.stores.memory import MemoryStore


class TestMeasure(StoreContract):
    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Store]:
            yield Measure(MemoryStore(spec, time.now_ms), Metrics(CollectorRegistry()), spec.name)

        return opened()


async def test_operations_are_counted_by_what_became_of_them() -> None:
    registry = CollectorRegistry()
    store = Measure(MemoryStore(TableSpec("t")), Metrics(registry), "t")
    await store.apply(
        [put("a"), put("b"), update("c", {}), update("d", {}, {}), Get("x"), put("e", {}, if_match=("x",))]
    )
    await store.apply([Get("a"), Get("b"), Get("c"), put("d", {}, token=Token("w", 1)), Delete("e")])
    await store.apply([put("d", {}, token=Token("w", 1)), update("a", {"$inc": {"n": 1}})])

    def count(operation: str, outcome: str) -> float | None:
        labels = {"table": "t", "operation": operation, "outcome": outcome}
        return registry.get_sample_value("tableside_operations_total", labels)

    assert count("put", "written") == 3
    assert count("put", "precondition_failed") == 1
    assert count("put", "replayed") == 1
    assert count("update", "record_not_found") == 1
    assert count("update", "created") == 1
    assert count("update", "written") == 1
    assert count("get", "found") == 2
    assert count("get", "absent") == 2
    assert count("delete", "written") == 1
    assert count("get", "written") is None


async def test_calls_are_timed_failures_too() -> None:
    registry = CollectorRegistry()
    store = Measure(MemoryStore(TableSpec("t")), Metrics(registry), "t")
    for _ in range(3):
        await store.apply([update("a", {}), update("b", {})])
    labels = {"table": "t", "operation": "update", "outcome": "record_not_found"}
    assert registry.get_sample_value("tableside_operation_duration_seconds_count", labels) == 3
    assert (registry.get_sample_value("tableside_operation_duration_seconds_sum", labels) or 0) > 0
