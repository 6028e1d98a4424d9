"""State is kept in every kind of store, with keys of two strings or of one, and read back after a restart."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_client.sessions import jvm
from spark_client.state.oracle import Oracle
from spark_client.state.providers import FETCHING, TIDYING, Settings, ours, state_session
from spark_client.state.shape_runs import Trial
from spark_client.state.shapes import named
from support.kinds import kind
from support.running import Service, running

pytestmark = jvm("state")

SHAPES = ["collected update", "joined left"]
KEYS = {"place": "string", "item": "string"}
STORES = ("rocksdb", "redis", "postgres", "dynamodb")
VARIANTS = [
    *(pytest.param(store, 2, {}, id=f"{store} v2") for store in STORES[:2]),
    *(pytest.param(store, 2, {}, id=f"{store} v2", marks=pytest.mark.daily) for store in STORES[2:]),
    pytest.param(
        *("dynamodb", 1, {**FETCHING, **TIDYING}), id="dynamodb v1 fetching and tidying", marks=pytest.mark.daily
    ),
    pytest.param("made-when-written", 2, TIDYING, id="rocksdb by one string v2 tidying", marks=pytest.mark.daily),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with state_session("local[2]") as started:
        yield started


@pytest.fixture(scope="module")
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a table in each kind of store. One of the stores also has tables that writes create."""
    directory = tmp_path_factory.mktemp("stores")
    used = {name: kind(name, request, directory) for name in STORES}
    tables = {name: {**each.configuration(key=KEYS)["tables"]["t"], "store": name} for name, each in used.items()}
    configuration = {
        "stores": {name: each.store for name, each in used.items()},
        "tables": tables,
        "auto_create": True,
        "default_store": "rocksdb",
    }
    config = directory / "tableside.yaml"
    config.write_text(json.dumps(configuration))
    environment = {name: setting for each in used.values() for name, setting in each.environment.items()}
    with running(directory / "service", config, environment=environment) as started:
        yield started


@pytest.mark.parametrize(("table", "checkpoint_format", "more"), VARIANTS)
def test_queries_continue_from_the_stored_state(
    spark: SparkSession,
    stores: Service,
    oracle: Oracle,
    tmp_path: Path,
    table: str,
    checkpoint_format: int,
    more: Settings,
) -> None:
    shapes = named(*SHAPES)
    runs = Trial(spark, tmp_path, ours(stores.url, table, checkpoint_format, more)).run(shapes)
    assert runs == oracle.asked(spark, shapes)
    assert all(run.metrics["tablesideChunksRead"] > 0 for run in runs.values())
