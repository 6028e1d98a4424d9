"""Every kind of stateful query gives the same micro-batches with our state store as with Spark's."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_client.sessions import jvm
from spark_client.state.oracle import Oracle
from spark_client.state.providers import COPYING, FETCHING, TIDYING, Settings, ours, state_session
from spark_client.state.shape_runs import Run, Trial
from spark_client.state.shapes import SHAPES, named
from spark_client.state.suite import TABLE
from support.running import Service

pytestmark = jvm("state")


LARGE = ["collected update", "sessions append", "joined left"]
"""Queries that read values again after a bounded memory has evicted them."""

VARIANTS: dict[str, tuple[int, tuple[Settings, ...], list[str]]] = {
    "v2": (2, (), [shape.name for shape in SHAPES]),
    "v1": (1, (), ["counted update", "windows append", "distinct in time", "joined left"]),
    "v2 fetching": (2, (FETCHING,), LARGE),
    "v1 fetching and tidying": (1, (FETCHING, TIDYING), ["counted update", *LARGE]),
    "v2 copying and tidying": (2, (COPYING, TIDYING), LARGE),
}
"""Checkpoint formats and settings, with their queries."""

DAILY = ("v1", "v1 fetching and tidying")
"""Checkpoints of the older format, which share most code with the newer one."""

ALIKE = [
    *("counted complete", "windows update", "chained append", "distinct then counted", "distinct within", "limited"),
    *("sessions by number", "joined inner", "joined full", "joined for ever", "counted twice"),
    *("grouped", "grouped processing time"),
]
"""Queries that use their state like another one. They run daily."""


def rarely(name: str, variant: str = "") -> list[pytest.MarkDecorator]:
    return [pytest.mark.daily] if variant in DAILY or name in ALIKE else []


CASES = [
    pytest.param(variant, name, marks=rarely(name, variant))
    for variant, (_, _, names) in VARIANTS.items()
    for name in names
]


@dataclass(frozen=True)
class Comparison:
    """Compares results. All queries of a variant run in parallel when the first of them is requested."""

    spark: SparkSession
    url: str
    folder: Path
    oracle: Oracle
    left_out: Sequence[str]
    known: dict[str, dict[str, Run]] = field(default_factory=dict)

    def ran(self, variant: str) -> dict[str, Run]:
        """Return the results with our provider."""
        if variant not in self.known:
            checkpoint_format, settings, names = VARIANTS[variant]
            trial = Trial(self.spark, self.folder / variant, ours(self.url, TABLE, checkpoint_format, *settings))
            self.known[variant] = trial.run(named(*(name for name in names if name not in self.left_out)))
        return self.known[variant]

    def expected(self, name: str) -> Run:
        """Return the result with Spark's own provider."""
        return self.oracle.asked(self.spark, [shape for shape in SHAPES if shape.name not in self.left_out])[name]


@pytest.fixture(scope="module")
def comparison(
    state_service: Service, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Comparison]:
    left_out = () if pytestconfig.getoption("daily") else ALIKE
    with state_session("local[2]") as spark:
        yield Comparison(spark, state_service.url, tmp_path_factory.mktemp("shapes"), oracle, left_out)


@pytest.mark.parametrize("name", [pytest.param(shape.name, marks=rarely(shape.name)) for shape in SHAPES])
def test_the_input_puts_every_query_to_work(comparison: Comparison, name: str) -> None:
    run = comparison.expected(name)
    assert not run.failure
    assert sum(map(bool, run.batches.values())) >= 2
    assert len({tuple(rows) for rows in run.batches.values()}) >= 2


@pytest.mark.parametrize(("variant", "name"), CASES)
def test_a_query_has_the_same_results_as_with_sparks_store(comparison: Comparison, variant: str, name: str) -> None:
    run = comparison.ran(variant)[name]
    assert not run.failure
    assert run.batches == comparison.expected(name).batches


def test_states_were_in_the_table_and_nowhere_else(comparison: Comparison) -> None:
    metrics = comparison.ran("v2")["joined left"].metrics
    assert metrics["tablesideChunksWritten"] > 0
    assert metrics["tablesideChunksRead"] > 0
    kept = [path for path in (comparison.folder / "v2").rglob("*") if path.suffix in (".delta", ".snapshot", ".zip")]
    assert kept == []


@pytest.mark.parametrize("variant", ["v2 fetching", pytest.param("v1 fetching and tidying", marks=pytest.mark.daily)])
def test_values_are_fetched_if_memory_has_no_room(comparison: Comparison, variant: str) -> None:
    for name in LARGE:
        assert comparison.ran(variant)[name].metrics["tablesideCacheMisses"] > 0
    assert comparison.ran("v2")["collected update"].metrics["tablesideCacheMisses"] == 0


def test_values_are_read_from_local_copies_if_enabled(comparison: Comparison) -> None:
    for metrics in (run.metrics for run in comparison.ran("v2 copying and tidying").values()):
        assert metrics["tablesideDiskHits"] > 0
        assert metrics["tablesideCacheMisses"] == 0


@pytest.mark.daily
def test_snapshots_are_written_if_few_deltas_are_allowed(comparison: Comparison) -> None:
    assert comparison.ran("v1 fetching and tidying")["counted update"].metrics["tablesideSnapshots"] > 0
    assert comparison.ran("v1")["counted update"].metrics["tablesideSnapshots"] == 0
