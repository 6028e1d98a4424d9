"""Each operation is counted once, by its outcome, and each call is timed."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from contract import put, update
from support.scripted import Scripted
from support.virtual_time import in_virtual_time
from tableside.catalog.table import Table
from tableside.catalog.table_metrics import OperationMetrics, TableMetrics
from tableside.core.budget import Budget
from tableside.core.errors import TableError
from tableside.core.operations import Delete, Get, Token
from tableside.core.store import Capabilities, Scan, TableSpec
from tableside.stores.memory import MemoryStore


def measured(registry: CollectorRegistry) -> Table:
    return Table(MemoryStore(TableSpec("t")), metrics=TableMetrics(OperationMetrics(registry), "t"))


def count(registry: CollectorRegistry, operation: str, outcome: str) -> float | None:
    labels = {"table": "t", "operation": operation, "outcome": outcome}
    return registry.get_sample_value("tableside_operations_total", labels)


async def test_operations_are_counted_by_outcome() -> None:
    registry = CollectorRegistry()
    table = measured(registry)
    await table.batch(
        [put("a"), put("b"), update("c", {}), update("d", {}, {}), Get("x"), put("e", {}, if_match=("x",))]
    )
    await table.batch([Get("a"), Get("b"), Get("c"), put("d", {}, token=Token("w", 1)), Delete("e")])
    await table.batch([put("d", {}, token=Token("w", 1)), update("a", {"$inc": {"n": 1}})])
    await table.one(Get("a"))
    assert count(registry, "put", "written") == 3
    assert count(registry, "put", "precondition_failed") == 1
    assert count(registry, "put", "replayed") == 1
    assert count(registry, "update", "record_not_found") == 1
    assert count(registry, "update", "created") == 1
    assert count(registry, "update", "written") == 1
    assert count(registry, "get", "found") == 3
    assert count(registry, "get", "absent") == 2
    assert count(registry, "delete", "written") == 1
    assert count(registry, "get", "written") is None
    assert registry.get_sample_value("tableside_batch_operations_count", {"table": "t"}) == 3
    assert registry.get_sample_value("tableside_batch_operations_sum", {"table": "t"}) == 13


@pytest.mark.parametrize("operations", [1, 2, 2500])
async def test_batches_of_any_length_are_counted(operations: int) -> None:
    registry = CollectorRegistry()
    table = measured(registry)
    await table.batch([put(str(number), {}) for number in range(0, operations, 2)])
    await table.batch([Get(str(number)) for number in range(operations)])
    await table.batch([put(str(number), {}) for number in range(operations)])
    assert count(registry, "get", "found") == (operations + 1) // 2
    assert (count(registry, "get", "absent") or 0) == operations // 2
    assert count(registry, "put", "written") == (operations + 1) // 2 + operations


async def test_requests_are_timed_including_failures() -> None:
    registry = CollectorRegistry()
    table = measured(registry)
    for _ in range(3):
        await table.batch([update("a", {}), update("b", {})])
    labels = {"table": "t", "operation": "update", "outcome": "record_not_found"}
    assert registry.get_sample_value("tableside_operation_duration_seconds_count", labels) == 3
    assert (registry.get_sample_value("tableside_operation_duration_seconds_sum", labels) or 0) > 0


async def test_scans_and_splits_are_counted_too() -> None:
    registry = CollectorRegistry()
    table = measured(registry)
    await table.scan(Scan(limit=10))
    await table.splits(4)
    assert count(registry, "scan", "found") == 1
    assert count(registry, "splits", "found") == 1


@in_virtual_time
async def test_a_cancelled_scan_is_not_counted_as_found() -> None:
    registry = CollectorRegistry()
    slow = Scripted()
    slow.takes_s = lambda operations: 5.0
    table = Table(slow, metrics=TableMetrics(OperationMetrics(registry), "t"))
    scanning = asyncio.create_task(table.scan(Scan(limit=10)))
    await asyncio.sleep(1)
    scanning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scanning
    assert count(registry, "scan", "found") is None
    await table.scan(Scan(limit=10))
    assert count(registry, "scan", "found") == 1


async def test_a_scan_that_fails_is_counted_by_its_code() -> None:
    registry = CollectorRegistry()
    table = measured(registry)
    with pytest.raises(TableError) as failed:
        await table.scan(Scan(limit=10), Budget(0))
    assert count(registry, "scan", failed.value.code) == 1
    assert table.capabilities == Capabilities()
