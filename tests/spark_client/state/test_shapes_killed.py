"""A driver or an executor is killed during micro-batches, and queries give the same results as without kills."""

import json
import os
import random
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from scripts.state_jar import ensure_jar
from servers.jdk import ensure_javac
from spark_client.driver_process import EXECUTOR, Checkpoint, Driver, kill
from spark_client.quick_start import QUICK_START
from spark_client.sessions import jvm
from spark_client.state import shape_job
from spark_client.state.providers import COPYING, FETCHING, FORMAT, HDFS, TIDYING, ours, state_session
from spark_client.state.shape_runs import FILES, HALF, Inputs, Oracle, Run, Trial, slow
from spark_client.state.shapes import Rows, named
from spark_client.state.suite import TABLE
from support.running import Service
from support.waiting import until

pytestmark = [pytest.mark.daily, *jvm("state")]

KILLS, KILLS_FULL = (2,), (1, 2, 4)
"""The micro-batches when the driver is killed, in a default run and in a full run."""

LATER_MAX_S = 0.4
END_MAX_S = 240
SEED = os.environ.get("TABLESIDE_KILL_SEED", "7")


SHAPES = ("counted update", "windows append", "joined left", "distinct in time")


def test_killed_queries_have_the_results_of_undisturbed_ones(
    state_service: Service, tmp_path: Path, full: bool
) -> None:
    settings = {
        "counted update": ours(state_service.url, TABLE, 1),
        "windows append": ours(state_service.url, TABLE, 1, FETCHING, TIDYING),
        "joined left": ours(state_service.url, TABLE, 2),
        "distinct in time": ours(state_service.url, TABLE, 2, COPYING, TIDYING),
    }
    job = json.dumps({"folder": str(tmp_path), "shapes": settings, "jar": str(ensure_jar(ensure_javac()))})
    kills = KILLS_FULL if full else KILLS
    assert run_and_kill(job, tmp_path, kills) >= len(kills), "the kills interrupted too few micro-batches"
    with state_session("local[2]") as spark:
        trial = Trial(spark, tmp_path / "undisturbed", HDFS, reads=without_empty_files(tmp_path / "undisturbed"))
        undisturbed = {name: Run() for name in SHAPES}
        trial.files(0, FILES, named(*SHAPES), undisturbed)
    for name in SHAPES:
        attempts = noted(tmp_path / "notes" / name)
        assert {batch: rows[0] for batch, rows in attempts.items()} == undisturbed[name].batches
        assert all(rows == attempts[batch][0] for batch, each in attempts.items() for rows in each)


def run_and_kill(job: str, folder: Path, kills: tuple[int, ...]) -> int:
    """Run the program, kill it several times, and run it to its end. Return the number of cut micro-batches."""
    dice = random.Random(SEED)
    print(f"\nseed {SEED}")
    # The session is the program's.
    trial = Trial(None, folder, {}, reads=without_empty_files(folder))  # type: ignore[arg-type]
    trial.inputs.give(0, FILES)
    checkpoints = [Checkpoint(trial.checkpoint(shape)) for shape in named(*SHAPES)]
    cut = 0
    for batch in kills:
        with driver(job, folder) as running:
            until(lambda: reached(checkpoints, batch) or running.ended is not None, END_MAX_S)  # noqa: B023
            time.sleep(dice.uniform(0, LATER_MAX_S))
        for checkpoint in checkpoints:
            cut += checkpoint.planned - checkpoint.committed
            forget_picked(checkpoint)
    with driver(job, folder) as running:
        until(lambda: running.ended is not None, END_MAX_S)
        assert running.ended == 0, running.log.read_text()[-3000:]
    return cut


def without_empty_files(folder: Path) -> Inputs:
    """Return inputs with the same watermark after a restart as without it.

    A restarted query of Spark computes its next watermark from the first micro-batch alone. If that has no rows of one
    stream, the watermark stays behind that of an undisturbed query.
    """
    return Inputs(folder / "inputs", {})


@contextmanager
def driver(job: str, folder: Path) -> Iterator[Driver]:
    """Run the program. Kill it at the end of the block if it still runs."""
    started = Driver(Path(shape_job.__file__), job, folder / "driver.log")
    try:
        yield started
    finally:
        started.kill()


def reached(checkpoints: Iterable[Checkpoint], batch: int) -> bool:
    """Return whether any of the queries has begun this micro-batch."""
    return any(checkpoint.planned >= batch for checkpoint in checkpoints)


def forget_picked(checkpoint: Checkpoint) -> None:
    """Remove files from a source's log that belong to no micro-batch yet, as if the kill had come a moment earlier.

    Otherwise Spark would read such a file together with the next one, in fewer micro-batches.
    """
    planned = checkpoint.path / "offsets" / str(checkpoint.planned)
    ends = planned.read_text().splitlines()[2:] if planned.exists() else []
    for source in (checkpoint.path / "sources").glob("*"):
        last = json.loads(ends[int(source.name)])["logOffset"] if ends else -1
        for picked in source.glob("[0-9]*"):
            if int(picked.name) > last:
                picked.unlink()


def noted(folder: Path) -> dict[int, list[Rows]]:
    """Return the rows of each attempt at each micro-batch of a query."""
    found: dict[int, list[Rows]] = {}
    for path in folder.glob("*.json"):
        note = json.loads(path.read_text())
        found.setdefault(note["batch"], []).append(note["rows"])
    return found


# Executors in separate processes: state moves with its partition between them, also after one is killed.

MOVING = named("counted update", "windows append", "joined left")
BY_SHAPE = {"counted update": {FORMAT: "1"}, "windows append": {FORMAT: "1", **FETCHING}}
ROW_MS = 30


def executors() -> list[int]:
    """Return the process ids of the executors of this process."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # the process has ended
            if EXECUTOR in " ".join(child.cmdline()):
                found.append(child.pid)
    return found


def test_queries_have_the_same_results_after_an_executor_is_killed(
    state_service: Service, oracle: Oracle, tmp_path: Path
) -> None:
    executor = {"spark.executor.memory": "1g", "spark.executor.extraJavaOptions": QUICK_START}
    with state_session("local-cluster[2,1,1024]", executor) as spark:
        settings = ours(state_service.url, TABLE, 2)
        trial = Trial(spark, tmp_path, settings, partial(slow, row_ms=ROW_MS), more=BY_SHAPE)
        runs = {shape.name: Run() for shape in MOVING}
        trial.files(0, HALF, MOVING, runs)
        before = executors()
        going = threading.Thread(target=trial.files, args=(HALF, FILES, MOVING, runs))
        going.start()
        checkpoint = Checkpoint(trial.checkpoint(MOVING[0]))
        until(lambda: checkpoint.planned > HALF)
        killed = kill(before[0])
        going.join()
        assert killed
        assert runs == oracle.asked(spark, MOVING)
        until(lambda: len(set(executors()) - set(before)) == 1)
