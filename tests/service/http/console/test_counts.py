"""Changes between two readings of the metrics, and that the service exports every metric that the pages need."""

import math

import pytest
from prometheus_client import CollectorRegistry

from contract import put
from tableside.catalog.stack import StackContext, StackMetrics, build_stack
from tableside.catalog.table import Table
from tableside.catalog.table_metrics import TableMetrics
from tableside.core.operations import Get
from tableside.core.store import TableSpec
from tableside.http.console.console import FAILURES, FAMILIES, Change, Counts, read
from tableside.settings import TableSettings
from tableside.stores.memory import MemoryStore


def counts(**numbers: float) -> Counts:
    row = Counts()
    for name, number in numbers.items():
        row[name.replace("_", " ") if name.startswith(("cache", "le")) else name] = number
    return row


def change(before: Counts, after: Counts, seconds: float = 10.0) -> Change:
    return Change(seconds, before, after)


def test_a_decreased_counter_was_reset() -> None:
    assert change(counts(reads=100), counts(reads=7))["reads"] == 0


def test_the_failed_share_excludes_errors_of_callers() -> None:
    before = counts(reads=10, store_unavailable=3)
    after = counts(reads=90, writes=20, store_unavailable=5, throttled=1, refused=50, absent=7)
    assert change(before, after).failed_share == 3 / 100
    assert change(after, after).failed_share is None
    assert "refused" not in FAILURES


def test_latency_uses_the_observations_within_the_interval() -> None:
    before, after = Counts(), Counts()
    for bound in (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, math.inf):
        before[f"le {bound}"] = 1000  # from before the interval
        after[f"le {bound}"] = 1000 + (100 if bound >= 0.1 else 0)
    assert change(before, after).latency_s(0.5) == pytest.approx(0.075)
    assert change(after, after).latency_s(0.5) is None


def table(metrics: StackMetrics, name: str = "t", **settings: object) -> Table:
    chosen = TableSettings.model_validate({"store": "local", **settings})
    around = build_stack(MemoryStore(TableSpec(name)), chosen, StackContext(metrics))
    return Table(around.top, metrics=TableMetrics(metrics.operations, name))


async def test_a_row_contains_the_operations_of_a_table() -> None:
    registry = CollectorRegistry()
    asked = table(StackMetrics(registry), cache={"records_max": 10, "ttl_s": 60})
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


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_service_exports_every_metric_that_is_read(family: str) -> None:
    registry = CollectorRegistry()
    StackMetrics(registry)
    assert family in {found.name for found in registry.collect()}
