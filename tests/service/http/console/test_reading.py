"""From metrics to rows: the service exports every metric that the pages need, under the expected name."""

import pytest
from prometheus_client import CollectorRegistry

from contract import put
from tableside.catalog.admission import AdmissionMetrics as InFlightMetrics
from tableside.catalog.admission import InFlight
from tableside.catalog.stack import StackContext, StackMetrics, build_stack
from tableside.catalog.table import Table
from tableside.catalog.table_metrics import TableMetrics
from tableside.core.operations import Get, Written
from tableside.core.store import TableSpec
from tableside.http.console.counts import SHED, Change, Counts
from tableside.http.console.reading import FAMILIES, read
from tableside.settings import TableSettings
from tableside.stores.memory import MemoryStore


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
    row = Change(1.0, Counts(), read(registry.collect()).tables["t"])
    assert (row["reads"], row["writes"]) == (4, 2)
    assert (row["found"], row["absent"], row["written"], row["refused"]) == (3, 1, 1, 1)
    assert (row["cache hit"], row["cache miss"]) == (2, 2)
    assert (row["calls"], row["calls failed"]) == (4, 1)
    assert 0 < row["calls seconds"] < 10
    assert 0 < (row.latency_s(0.99) or 0.0) < 10
    assert row["le inf"] == 6


async def test_the_total_is_of_all_tables() -> None:
    registry = CollectorRegistry()
    metrics = StackMetrics(registry)
    for name in ("one", "two"):
        await table(metrics, name).one(Get("a"))
    reading = read(registry.collect())
    assert sorted(reading.tables) == ["one", "two"]
    assert reading.total["reads"] == 2


def test_shed_requests_count_in_the_total() -> None:
    registry = CollectorRegistry()
    metrics = InFlightMetrics(registry)
    for reason in ("requests", "operations", "operations"):
        metrics.shed.labels(reason).inc()
    reading = read(registry.collect())
    assert reading.total[SHED] == 3
    assert reading.tables == {}


async def test_a_write_to_no_partition_is_not_refused() -> None:
    registry = CollectorRegistry()
    TableMetrics(StackMetrics(registry).operations, "t").one(put("a"), Written(None, partitions=()), 0.001)
    row = read(registry.collect()).tables["t"]
    assert (row["writes"], row["dropped"], row["refused"]) == (1, 1, 0)


async def test_metrics_of_policies_are_read() -> None:
    registry = CollectorRegistry()
    asked = table(StackMetrics(registry), read={"rate_per_s": 0.001, "burst": 1, "attempts_max": 1}, deadline_s=1)
    for _ in range(3):
        await asked.one(Get("a"), 0.05)
    row = read(registry.collect()).tables["t"]
    assert row["read limit"] == 2
    assert row["throttled"] == 2
    assert row["write limit"] == 0


def test_amounts_in_flight_are_read() -> None:
    registry = CollectorRegistry()
    in_flight = InFlight(InFlightMetrics(registry), requests_max=9, operations_max=9, bytes_max=9)
    in_flight.operations.enter(3)
    in_flight.sample()
    found = read(registry.collect()).in_flight
    assert (found["operations"], found["requests"]) == (3, 0)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_service_exports_every_metric_that_is_read(family: str) -> None:
    registry = CollectorRegistry()
    StackMetrics(registry)
    assert family in {found.name for found in registry.collect()}
