"""A micro-batch that only some partitions committed counts once after a rerun, by a new query or by new tasks."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_client.sessions import jvm
from spark_client.state.providers import FETCHING, Settings, ours, query_id, state_session
from spark_client.state.shape_runs import FILES, HALF, Oracle, Run, Trial
from spark_client.state.shapes import named
from spark_client.state.suite import TABLE
from support.running import Service
from tableside_client import Client
from tableside_spark.state import State

pytestmark = jvm("state")


# A failure is an expression that reads properties of its JVM. With executors in the driver's JVM (`local`), the driver
# controls the failures with system properties.

PROPERTY = "tableside.test.trouble"
KEY = "k3"
"""The key whose row fails. The tasks of other partitions do not have it, and commit."""

HEADSTART_MS = 400
"""The time for the other tasks to commit before the task fails."""


def failing(batch: DataFrame, property_of_jvm: str = f"'getProperty', '{PROPERTY}'") -> DataFrame:
    """Return the same rows, but every attempt of the task with `KEY` fails while the property is `ordered`."""
    slept = f"coalesce(reflect('java.lang.Thread', 'sleep', {HEADSTART_MS}L), 'null') = 'null'"
    ordered = f"reflect('java.lang.System', {property_of_jvm}) = 'ordered'"
    fails = f"k = '{KEY}' AND {ordered} AND {slept}"
    return batch.where(f"CASE WHEN {fails} THEN CAST(raise_error('failed on purpose') AS boolean) ELSE true END")


def failing_once(batch: DataFrame) -> DataFrame:
    """Return the same rows, but the first attempt of the task with `KEY` fails, and sets the property to `over`."""
    return failing(batch, f"'setProperty', '{PROPERTY}', 'over'")


def system(spark: SparkSession) -> Any:
    assert spark._jvm is not None
    return spark._jvm.java.lang.System


VARIANTS: dict[str, tuple[int, Settings]] = {"v1": (1, {}), "v2 fetching": (2, FETCHING)}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with state_session("local[2,4]") as started:
        yield started


def versions(url: str, trial: Trial, name: str, store: str) -> list[int]:
    """Return the last committed version of each partition of a query."""
    with Client(url) as client, State(client, TABLE) as states:
        places = states.query(query_id(trial.checkpoint(*named(name)))).places()
        latest = [states.contents(place).latest for place in places if place.store == store]
    return [version.number for version in latest if version is not None]


@pytest.fixture
def calm(variant: str, spark: SparkSession, state_service: Service, tmp_path: Path) -> Trial:
    """A trial without failures until a test orders them."""
    checkpoint_format, more = VARIANTS[variant]
    system(spark).setProperty(PROPERTY, "none")
    return Trial(spark, tmp_path, ours(state_service.url, TABLE, checkpoint_format, more))


@pytest.mark.parametrize(
    ("variant", "name", "store", "behind"),
    [
        ("v1", "counted update", "default", 0),
        ("v1", "joined for ever", "left-keyToNumValues", 1),
        ("v2 fetching", "windows update", "default", 0),
        ("v2 fetching", "distinct in time", "default", 1),
    ],
)
def test_a_micro_batch_that_failed_in_one_partition_counts_once(
    calm: Trial, state_service: Service, oracle: Oracle, name: str, store: str, behind: int
) -> None:
    """The failing task lags `behind` versions, since aggregations commit before their rows."""
    [shape], runs = named(name), {name: Run()}
    trial = replace(calm, trouble=failing)
    trial.files(0, HALF, [shape], runs)
    assert runs[name].failure == ""

    system(calm.spark).setProperty(PROPERTY, "ordered")
    trial.files(HALF, FILES, [shape], runs)
    assert "failed on purpose" in runs[name].failure
    lesser, greater = sorted(versions(state_service.url, trial, name, store))
    assert greater == lesser + behind

    system(calm.spark).setProperty(PROPERTY, "over")
    again = {name: Run(runs[name].batches)}
    trial.files(HALF, FILES, [shape], again)
    assert again == oracle.asked(calm.spark, [shape])


@pytest.mark.parametrize(("variant", "name"), [("v1", "counted update"), ("v2 fetching", "distinct in time")])
def test_a_retried_task_counts_once(calm: Trial, oracle: Oracle, name: str) -> None:
    [shape], runs = named(name), {name: Run()}
    trial = replace(calm, trouble=failing_once)
    for first, end in ((0, HALF), (HALF, FILES)):
        system(calm.spark).setProperty(PROPERTY, "ordered")
        trial.files(first, end, [shape], runs)
        assert system(calm.spark).getProperty(PROPERTY) == "over"
    assert runs == oracle.asked(calm.spark, [shape])
