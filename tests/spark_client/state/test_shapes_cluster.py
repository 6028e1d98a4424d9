"""Executors in processes of their own: state goes with its partition from one to the other, also when one is killed."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from running import Service
from spark_client.driver_process import EXECUTOR, kill
from spark_client.state.inputs import FILES, HALF
from spark_client.state.oracle import Oracle
from spark_client.state.providers import FETCHING, ours, state_session
from spark_client.state.shape_runs import Run, Trial
from spark_client.state.shapes import named
from spark_client.state.suite import TABLE
from spark_client.state.trouble import slow
from spark_client.stream_notes import Checkpoint
from waiting import until

pytestmark = [pytest.mark.jvm, pytest.mark.filterwarnings("ignore::ResourceWarning")]

SHAPES = named("counted update", "windows append", "joined left")
ROW_MS = 30


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    options = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    settings = {"spark.executor.memory": "1g", "spark.executor.extraJavaOptions": options}
    with state_session("local-cluster[2,1,1024]", settings) as started:
        yield started


def executors() -> list[int]:
    """The process ids of the executors of this process."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            if EXECUTOR in " ".join(child.cmdline()):
                found.append(child.pid)
    return found


@pytest.mark.parametrize(("checkpoint_format", "more"), [(1, FETCHING), (2, {})], ids=["v1 fetching", "v2"])
def test_queries_give_the_same_when_an_executor_is_killed(
    spark: SparkSession,
    state_service: Service,
    oracle: Oracle,
    tmp_path: Path,
    checkpoint_format: int,
    more: dict[str, str],
) -> None:
    settings = ours(state_service.url, TABLE, checkpoint_format, more)
    trial = Trial(spark, tmp_path, settings, partial(slow, row_ms=ROW_MS))
    runs = {shape.name: Run() for shape in SHAPES}
    trial.files(0, HALF, SHAPES, runs)
    before = executors()
    going = threading.Thread(target=trial.files, args=(HALF, FILES, SHAPES, runs))
    going.start()
    checkpoint = Checkpoint(trial.checkpoint(SHAPES[0]))
    until(lambda: checkpoint.planned > HALF)
    killed = kill(before[0])
    going.join()
    assert killed
    assert runs == oracle.asked(spark, SHAPES)
    until(lambda: len(set(executors()) - set(before)) == 1)
