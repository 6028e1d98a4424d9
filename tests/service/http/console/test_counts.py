"""Changes between two readings of the metrics, and that the service exports every metric that the pages need."""

import pytest
from prometheus_client import CollectorRegistry

from contract import put
from tableside.catalog import CatalogMetrics, Environment, Table
from tableside.catalog.open_stores import OpenStore
from tableside.catalog.stack import build_stack
from tableside.core.operations import Get
from tableside.core.store import TableSpec
from tableside.http.console.console import BOUNDS_S, FAMILIES, Change, read
from tableside.settings import TableSettings
from tableside.stores.memory import MemoryBackend, MemoryStore


def test_the_change_of_a_table_excludes_errors_of_callers_from_failures() -> None:
    before = {"reads": 10.0, "store_unavailable": 3.0, "found": 10.0}
    after = {"reads": 90.0, "writes": 20.0, "store_unavailable": 5.0, "throttled": 1.0, "refused": 50.0, "absent": 7.0}
    change = Change(10.0, before, after)
    assert change.failed_share == 3 / 100
    assert change["found"] == 0, "a decreased counter was reset"
    assert Change(10.0, after, after).failed_share is None


def test_latency_uses_the_observations_within_the_interval() -> None:
    before = {f"le {bound}": 1000.0 for bound in BOUNDS_S}  # from before the interval
    after = {f"le {bound}": 1100.0 if bound >= 0.1 else 1000.0 for bound in BOUNDS_S}
    assert Change(10.0, before, after).latency_s(0.5) == pytest.approx(0.075)
    assert Change(10.0, after, after).latency_s(0.5) is None


def table(metrics: CatalogMetrics, name: str = "t", **settings: object) -> Table:
    chosen = TableSettings.model_validate({"store": "local", **settings})
    open_store = OpenStore("local", "memory", MemoryBackend(), Environment(metrics))
    return build_stack(MemoryStore(TableSpec(name)), chosen, open_store, {}).table


async def test_a_row_contains_the_operations_of_a_table() -> None:
    registry = CollectorRegistry()
    asked = table(CatalogMetrics(registry), cache={"records_max": 10, "ttl_s": 60})
    await asked.one(put("a"))
    for _ in range(3):
        await asked.one(Get("a"))
    await asked.one(Get("b"))
    await asked.one(put("a", {}, if_match=("x",)))
    row = Change(1.0, {}, read(registry.collect()).tables["t"])
    assert (row["reads"], row["writes"]) == (4, 2)
    assert (row["found"], row["absent"], row["written"], row["refused"]) == (3, 1, 1, 1)
    assert (row["cache hit"], row["cache miss"]) == (2, 2)
    assert 0 < (row.latency_s(0.99) or 0.0) < 10
    assert row["le inf"] == 6


def test_the_service_exports_every_metric_that_is_read() -> None:
    registry = CollectorRegistry()
    CatalogMetrics(registry)
    assert {*FAMILIES} <= {found.name for found in registry.collect()}
