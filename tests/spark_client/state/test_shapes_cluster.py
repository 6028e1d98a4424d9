"""Executors in separate processes: state moves with its partition between them, also after one is killed."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from spark_client.driver_process import EXECUTOR, kill
from spark_client.quick_start import QUICK_START
from spark_client.sessions import jvm
from spark_client.state.inputs import FILES, HALF
from spark_client.state.oracle import Oracle
from spark_client.state.providers import FETCHING, FORMAT, Settings, ours, state_session
from spark_client.state.shape_runs import Run, Trial
from spark_client.state.shapes import named
from spark_client.state.suite import TABLE
from spark_client.state.trouble import slow
from spark_client.stream_notes import Checkpoint
from support.running import Service
from support.waiting import until

pytestmark = [pytest.mark.daily, *jvm("state")]

SHAPES = named("counted update", "windows append", "joined left")
BY_SHAPE = {"counted update": {FORMAT: "1"}, "windows append": {FORMAT: "1", **FETCHING}}
"""Both formats in one run. A full run tests each format with all shapes."""

VARIANTS = [
    pytest.param({}, BY_SHAPE, id="v1 and v2"),
    pytest.param({FORMAT: "1", **FETCHING}, {}, id="v1 fetching", marks=pytest.mark.full),
    pytest.param({}, {}, id="v2", marks=pytest.mark.full),
]
ROW_MS = 30


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    settings = {"spark.executor.memory": "1g", "spark.executor.extraJavaOptions": QUICK_START}
    with state_session("local-cluster[2,1,1024]", settings) as started:
        yield started


def executors() -> list[int]:
    """Return the process ids of the executors of this process."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # the process has ended
            if EXECUTOR in " ".join(child.cmdline()):
                found.append(child.pid)
    return found


@pytest.mark.parametrize(("settings", "by_shape"), VARIANTS)
def test_queries_have_the_same_results_after_an_executor_is_killed(
    spark: SparkSession,
    state_service: Service,
    oracle: Oracle,
    tmp_path: Path,
    settings: Settings,
    by_shape: Mapping[str, Settings],
) -> None:
    everywhere = ours(state_service.url, TABLE, 2, settings)
    trial = Trial(spark, tmp_path, everywhere, partial(slow, row_ms=ROW_MS), more=by_shape)
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
