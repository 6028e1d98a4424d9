"""What only some partitions have committed counts once when it runs again, by a query started anew or by new tasks."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from running import Service
from spark_client.state.inputs import FILES, HALF
from spark_client.state.oracle import Oracle
from spark_client.state.providers import FETCHING, ours, query_id, state_session
from spark_client.state.shape_runs import Run, Trial
from spark_client.state.shapes import named
from spark_client.state.suite import TABLE
from spark_client.state.trouble import failing, failing_once, has_come, order
from tableside_spark import TableClient, TableError
from tableside_spark.client import Record

pytestmark = [pytest.mark.jvm, pytest.mark.filterwarnings("ignore::ResourceWarning")]

VARIANTS = [pytest.param((1, {}), id="v1"), pytest.param((2, FETCHING), id="v2 fetching")]

FAILING = [
    pytest.param("counted update", "default", 0, id="counted"),
    pytest.param("windows update", "default", 0, id="windows"),
    pytest.param("distinct in time", "default", 1, id="distinct"),
    pytest.param("joined for ever", "left-keyToNumValues", 1, id="joined"),
]
"""Queries, a store of each, how many versions the task that fails is behind: an aggregation commits before its rows."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with state_session("local[2,4]") as started:
        yield started


def versions(url: str, trial: Trial, name: str, store: str) -> list[int]:
    """How far each partition of a query has committed."""
    query = query_id(trial.checkpoint(*named(name)))
    with TableClient(url) as client:
        return [_newest(client, f"{query}/0/{partition}/{store}") for partition in range(2)]


def _newest(client: TableClient, place: str) -> int:
    newest = 0
    while _has_manifest(client, place, newest + 1):
        newest += 1
    return newest


def _has_manifest(client: TableClient, place: str, version: int) -> bool:
    attempts = _found(client, place, f"attempts/{version:020}")
    uids = attempts.value["uids"] if attempts else []
    items = [f"version/{version:020}", *(f"version/{version:020}/{uid}" for uid in uids)]
    return any(_found(client, place, item) for item in items)


def _found(client: TableClient, place: str, item: str) -> Record | None:
    try:
        return client.get(TABLE, [place, item])
    except TableError as error:
        if error.code != "record_not_found":
            raise
        return None


@pytest.fixture(params=VARIANTS)
def calm(request: pytest.FixtureRequest, spark: SparkSession, state_service: Service, tmp_path: Path) -> Trial:
    """Queries without trouble, until it is ordered."""
    checkpoint_format, more = request.param
    order(spark, "none")
    return Trial(spark, tmp_path, ours(state_service.url, TABLE, checkpoint_format, more))


@pytest.mark.parametrize(("name", "store", "behind"), FAILING)
def test_a_micro_batch_that_failed_in_one_partition_counts_once(
    calm: Trial, state_service: Service, oracle: Oracle, name: str, store: str, behind: int
) -> None:
    [shape], runs = named(name), {name: Run()}
    trial = replace(calm, trouble=failing)
    trial.files(0, HALF, [shape], runs)
    assert runs[name].failure == ""

    order(calm.spark, "ordered")
    trial.files(HALF, FILES, [shape], runs)
    assert "failed on purpose" in runs[name].failure
    lesser, greater = sorted(versions(state_service.url, trial, name, store))
    assert greater == lesser + behind

    order(calm.spark, "over")
    again = {name: Run(runs[name].batches)}
    trial.files(HALF, FILES, [shape], again)
    assert again == oracle.asked(calm.spark, [shape])


@pytest.mark.parametrize("name", ["counted update", "distinct in time"])
def test_a_task_that_is_tried_again_counts_once(calm: Trial, oracle: Oracle, name: str) -> None:
    [shape], runs = named(name), {name: Run()}
    trial = replace(calm, trouble=failing_once)
    for first, end in ((0, HALF), (HALF, FILES)):
        order(calm.spark, "ordered")
        trial.files(first, end, [shape], runs)
        assert has_come(calm.spark)
    assert runs == oracle.asked(calm.spark, [shape])
