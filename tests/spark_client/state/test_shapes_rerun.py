"""A micro-batch that only some partitions committed counts once after a rerun, by a new query or by new tasks."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_client.state.inputs import FILES, HALF
from spark_client.state.oracle import Oracle
from spark_client.state.providers import FETCHING, Settings, ours, query_id, state_session
from spark_client.state.shape_runs import Run, Trial
from spark_client.state.shapes import named
from spark_client.state.suite import TABLE
from spark_client.state.trouble import failing, failing_once, has_come, order
from support.running import Service
from tableside_client import Client
from tableside_client.results import Record
from tableside_spark import TableError

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("state"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

VARIANTS: dict[str, tuple[int, Settings]] = {"v1": (1, {}), "v2 fetching": (2, FETCHING)}
STORES = {
    "counted update": ("default", 0),
    "windows update": ("default", 0),
    "distinct in time": ("default", 1),
    "joined for ever": ("left-keyToNumValues", 1),
}
"""A store of each query, and how many versions its failing task lags, since aggregations commit before their rows."""

SOME = [
    ("v1", "counted update"),
    ("v1", "joined for ever"),
    ("v2 fetching", "windows update"),
    ("v2 fetching", "distinct in time"),
]
"""The cases of every run. A full run tests each query in each variant."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with state_session("local[2,4]") as started:
        yield started


def versions(url: str, trial: Trial, name: str, store: str) -> list[int]:
    """Return the last committed version of each partition of a query."""
    query = query_id(trial.checkpoint(*named(name)))
    with Client(url) as client:
        return [_newest(client, f"{query}/0/{partition}/{store}") for partition in range(2)]


def _newest(client: Client, place: str) -> int:
    newest = 0
    while _has_manifest(client, place, newest + 1):
        newest += 1
    return newest


def _has_manifest(client: Client, place: str, version: int) -> bool:
    attempts = _found(client, place, f"attempts/{version:020}")
    uids = attempts.value["uids"] if attempts else []
    items = [f"version/{version:020}", *(f"version/{version:020}/{uid}" for uid in uids)]
    return any(_found(client, place, item) for item in items)


def _found(client: Client, place: str, item: str) -> Record[dict[str, Any]] | None:
    try:
        return client.table(TABLE).record([place, item])
    except TableError as error:
        if error.code != "record_not_found":
            raise
        return None


def cases(names: Iterable[str]) -> list[Any]:
    """Return queries in each variant, most of them only for a full run."""
    every = [(variant, name) for variant in VARIANTS for name in names]
    return [pytest.param(*case, marks=[] if case in SOME else pytest.mark.full) for case in every]


@pytest.fixture
def calm(variant: str, spark: SparkSession, state_service: Service, tmp_path: Path) -> Trial:
    """A trial without failures until a test orders them."""
    checkpoint_format, more = VARIANTS[variant]
    order(spark, "none")
    return Trial(spark, tmp_path, ours(state_service.url, TABLE, checkpoint_format, more))


@pytest.mark.parametrize(("variant", "name"), cases(STORES))
def test_a_micro_batch_that_failed_in_one_partition_counts_once(
    calm: Trial, state_service: Service, oracle: Oracle, name: str
) -> None:
    store, behind = STORES[name]
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


@pytest.mark.parametrize(("variant", "name"), cases(["counted update", "distinct in time"]))
def test_a_retried_task_counts_once(calm: Trial, oracle: Oracle, name: str) -> None:
    [shape], runs = named(name), {name: Run()}
    trial = replace(calm, trouble=failing_once)
    for first, end in ((0, HALF), (HALF, FILES)):
        order(calm.spark, "ordered")
        trial.files(first, end, [shape], runs)
        assert has_come(calm.spark)
    assert runs == oracle.asked(calm.spark, [shape])
