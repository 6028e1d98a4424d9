"""Every kind of stateful query gives the same micro-batches with our state store as with Spark's."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_client.state.oracle import Oracle
from spark_client.state.providers import COPYING, FETCHING, TIDYING, Settings, ours, query_id, state_session
from spark_client.state.shape_runs import Run, Trial
from spark_client.state.shapes import SHAPES, named
from spark_client.state.suite import TABLE
from support.running import Service
from tableside_client import Client

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("state"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

EVERY = [shape.name for shape in SHAPES]
VARIED = [
    *("counted complete", "windows update", "windows complete", "distinct", "sessions complete"),
    *("joined right", "joined semi", "joined then counted", "grouped append", "windows twice"),
]
"""Queries that differ from others only in the output mode, in the side of a join, or in a part that others have."""

USUAL = [name for name in EVERY if name not in VARIED]
LARGE = ["collected update", "sessions append", "joined left"]
"""Queries that read values again after a bounded memory has evicted them."""

MORE = ["counted update", "windows append", "distinct in time", "grouped event time", "joined twice"]
VARIANTS: dict[str, tuple[int, tuple[Settings, ...], list[str], list[str]]] = {
    "v2": (2, (), USUAL, VARIED),
    "v1": (1, (), ["counted update", "windows append", "distinct in time", "joined left"], [*MORE, *LARGE]),
    "v2 fetching": (2, (FETCHING,), LARGE, MORE),
    "v1 fetching and tidying": (1, (FETCHING, TIDYING), ["counted update", *LARGE], MORE),
    "v2 copying and tidying": (2, (COPYING, TIDYING), LARGE, []),
}
"""Checkpoint formats and settings, with their queries, and the additional queries of a full run."""


CASES = [
    pytest.param(variant, name, marks=[] if name in names else pytest.mark.full)
    for variant, (_, _, names, more) in VARIANTS.items()
    for name in dict.fromkeys([*names, *more])
]


@dataclass(frozen=True)
class Comparison:
    """Compares results. All queries of a variant run in parallel when the first of them is requested."""

    spark: SparkSession
    url: str
    folder: Path
    oracle: Oracle
    full: bool
    known: dict[str, dict[str, Run]] = field(default_factory=dict)

    def ran(self, variant: str) -> dict[str, Run]:
        """Return the results with our provider."""
        if variant not in self.known:
            checkpoint_format, settings, names, more = VARIANTS[variant]
            trial = Trial(self.spark, self.folder / variant, ours(self.url, TABLE, checkpoint_format, *settings))
            self.known[variant] = trial.run(named(*dict.fromkeys([*names, *(more if self.full else [])])))
        return self.known[variant]

    def expected(self, name: str) -> Run:
        """Return the result with Spark's own provider."""
        return self.oracle.asked(self.spark, SHAPES if self.full else named(*USUAL))[name]


@pytest.fixture(scope="module")
def comparison(
    state_service: Service, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory, full: bool
) -> Iterator[Comparison]:
    with state_session("local[2]") as spark:
        yield Comparison(spark, state_service.url, tmp_path_factory.mktemp("shapes"), oracle, full)


@pytest.mark.parametrize("name", [*USUAL, *(pytest.param(name, marks=pytest.mark.full) for name in VARIED)])
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


def test_a_table_lists_the_stores_of_a_query(comparison: Comparison) -> None:
    comparison.ran("v2")
    checkpoint = Trial(comparison.spark, comparison.folder / "v2", {}).checkpoint(*named("joined left"))
    with Client(comparison.url) as client:
        record = client.table(TABLE).record([query_id(checkpoint), "query"])
    stores = [f"{side}-{kind}" for side in ("left", "right") for kind in ("keyToNumValues", "keyWithIndexToValue")]
    assert record.value["operators"] == {"0": {store: {"partitions": 2} for store in stores}}
    assert record.value["checkpoint"].endswith(str(checkpoint))


@pytest.mark.parametrize("variant", ["v2 fetching", "v1 fetching and tidying"])
def test_values_are_fetched_if_memory_has_no_room(comparison: Comparison, variant: str) -> None:
    for name in LARGE:
        assert comparison.ran(variant)[name].metrics["tablesideCacheMisses"] > 0
    assert comparison.ran("v2")["collected update"].metrics["tablesideCacheMisses"] == 0


def test_values_are_read_from_local_copies_if_enabled(comparison: Comparison) -> None:
    for metrics in (run.metrics for run in comparison.ran("v2 copying and tidying").values()):
        assert metrics["tablesideDiskHits"] > 0
        assert metrics["tablesideCacheMisses"] == 0


def test_snapshots_are_written_if_few_deltas_are_allowed(comparison: Comparison) -> None:
    assert comparison.ran("v1 fetching and tidying")["counted update"].metrics["tablesideSnapshots"] > 0
    assert comparison.ran("v1")["counted update"].metrics["tablesideSnapshots"] == 0
