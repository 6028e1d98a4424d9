"""Every kind of stateful query gives the same micro-batches with our state store as with Spark's."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_client.sessions import jvm
from spark_client.state.providers import COPYING, FETCHING, TIDYING, Settings, ours, state_session
from spark_client.state.shape_runs import Oracle, Trial
from spark_client.state.shapes import SHAPES, named
from spark_client.state.suite import TABLE
from support.kinds import kind
from support.running import Service, running

pytestmark = jvm("state")

EVERY = [shape.name for shape in SHAPES]
USUAL = ["counted update", "collected update", "windows append", "distinct in time", "sessions append", "joined left"]
LARGE = ["collected update", "sessions append", "joined left"]
"""Queries that read values again after a bounded memory has evicted them."""

DAILY = pytest.mark.daily
VARIANTS = [
    pytest.param(2, {}, USUAL, id="v2"),
    pytest.param(2, {}, [name for name in EVERY if name not in USUAL], id="v2 others", marks=DAILY),
    pytest.param(1, {}, ["counted update", "windows append", "distinct in time", "joined left"], id="v1", marks=DAILY),
    pytest.param(2, FETCHING, LARGE, id="v2 fetching"),
    pytest.param(1, {**FETCHING, **TIDYING}, ["counted update", *LARGE], id="v1 fetching and tidying", marks=DAILY),
    pytest.param(2, {**COPYING, **TIDYING}, LARGE, id="v2 copying and tidying"),
]
"""Checkpoint formats and settings, with their queries."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with state_session("local[2]") as started:
        yield started


@pytest.mark.parametrize(("checkpoint_format", "settings", "names"), VARIANTS)
def test_queries_have_the_same_results_as_with_sparks_store(
    spark: SparkSession,
    state_service: Service,
    oracle: Oracle,
    tmp_path: Path,
    checkpoint_format: int,
    settings: Settings,
    names: list[str],
) -> None:
    shapes = named(*names)
    runs = Trial(spark, tmp_path, ours(state_service.url, TABLE, checkpoint_format, settings)).run(shapes)
    assert runs == oracle.asked(spark, shapes)
    for name, run in runs.items():
        assert len({tuple(rows) for rows in run.batches.values()}) >= 2, f"the input puts {name} to little work"
        assert_metrics(run.metrics, settings)
        if name in LARGE and settings.items() >= FETCHING.items():
            assert run.metrics["tablesideCacheMisses"] > 0
    kept = [path for path in tmp_path.rglob("*") if path.suffix in (".delta", ".snapshot", ".zip")]
    assert kept == [], "the state is in the table and nowhere else"


def assert_metrics(metrics: Counter[str], settings: Settings) -> None:
    """Check that values come from where the settings keep them: memory, the table or the local disk."""
    assert metrics["tablesideChunksWritten"] > 0
    assert metrics["tablesideChunksRead"] > 0
    copied = settings.items() >= COPYING.items()
    assert (metrics["tablesideDiskHits"] > 0) == copied
    if copied or not settings:
        assert metrics["tablesideCacheMisses"] == 0
    assert (metrics["tablesideSnapshots"] > 0) == (settings.items() >= TIDYING.items())


# State is kept in every kind of store, with keys of two strings or of one, and read back after a restart.

STORED = ["collected update", "joined left"]
KEYS = {"place": "string", "item": "string"}
STORES = ("rocksdb", "redis", "postgres", "dynamodb")
STORE_VARIANTS = [
    pytest.param("rocksdb", 2, {}, id="rocksdb"),
    pytest.param("redis", 2, {}, id="redis"),
    pytest.param("postgres", 2, {}, id="postgres", marks=DAILY),
    pytest.param("dynamodb", 1, {**FETCHING, **TIDYING}, id="dynamodb v1 fetching and tidying", marks=DAILY),
    pytest.param("made-when-written", 2, TIDYING, id="rocksdb by one string tidying", marks=DAILY),
]


@pytest.fixture(scope="module")
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a table in each kind of store. One of the stores also has tables that writes create."""
    directory = tmp_path_factory.mktemp("stores")
    used = {name: kind(name, request, directory) for name in STORES}
    tables = {name: {**each.configuration(key=KEYS)["tables"]["t"], "store": name} for name, each in used.items()}
    configuration = {"stores": {name: each.store for name, each in used.items()}, "tables": tables}
    config = directory / "config.yaml"
    config.write_text(json.dumps({**configuration, "auto_create": True, "default_store": "rocksdb"}))
    environment = {name: setting for each in used.values() for name, setting in each.environment.items()}
    with running(directory / "service", config, environment=environment) as started:
        yield started


@pytest.mark.parametrize(("table", "checkpoint_format", "more"), STORE_VARIANTS)
def test_queries_continue_from_the_stored_state(
    spark: SparkSession,
    stores: Service,
    oracle: Oracle,
    tmp_path: Path,
    table: str,
    checkpoint_format: int,
    more: Settings,
) -> None:
    shapes = named(*STORED)
    runs = Trial(spark, tmp_path, ours(stores.url, table, checkpoint_format, more)).run(shapes)
    assert runs == oracle.asked(spark, shapes)
    assert all(run.metrics["tablesideChunksRead"] > 0 for run in runs.values())
