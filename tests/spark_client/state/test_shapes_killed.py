"""A driver is killed repeatedly during micro-batches, and its queries give the same results as without kills."""

import json
import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.state_jar import ROOT, ensure_jar
from servers.jdk import ensure_javac
from spark_client.driver_process import Driver
from spark_client.sessions import jvm
from spark_client.state.inputs import FILES, Inputs
from spark_client.state.providers import COPYING, FETCHING, HDFS, TIDYING, ours, state_session
from spark_client.state.shape_job import Job
from spark_client.state.shape_runs import Run, Trial
from spark_client.state.shapes import Rows, named
from spark_client.state.suite import TABLE
from spark_client.stream_notes import Checkpoint
from support.running import Service
from support.waiting import until

pytestmark = [pytest.mark.daily, *jvm("state")]

KILLS, KILLS_FULL = (2,), (1, 2, 4)
"""The micro-batches when the driver is killed, in a default run and in a full run."""

LATER_MAX_S = 0.4
END_MAX_S = 240
SEED = os.environ.get("TABLESIDE_KILL_SEED", "7")


@pytest.fixture(scope="module")
def job(state_service: Service, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Shapes in both checkpoint formats."""
    formats = {
        "counted update": ours(state_service.url, TABLE, 1),
        "windows append": ours(state_service.url, TABLE, 1, FETCHING, TIDYING),
        "joined left": ours(state_service.url, TABLE, 2),
        "distinct in time": ours(state_service.url, TABLE, 2, COPYING, TIDYING),
    }
    shapes = {name: dict(settings) for name, settings in formats.items()}
    return Job(str(tmp_path_factory.mktemp("killed")), shapes, str(ensure_jar(ensure_javac())))


@pytest.fixture(scope="module")
def kills(full: bool) -> tuple[int, ...]:
    return KILLS_FULL if full else KILLS


@pytest.fixture(scope="module")
def cut(job: Job, kills: tuple[int, ...]) -> dict[str, set[int]]:
    """Run the program, kill it several times, and run it to its end. Return the interrupted micro-batches."""
    dice = random.Random(SEED)
    print(f"\nseed {SEED}")
    # The session is the program's.
    trial = Trial(None, Path(job.folder), {}, reads=without_empty_files(Path(job.folder)))  # type: ignore[arg-type]
    trial.inputs.give(0, FILES)
    checkpoints = {name: Checkpoint(trial.checkpoint(*named(name))) for name in job.shapes}
    found: dict[str, set[int]] = {name: set() for name in job.shapes}
    for batch in kills:
        with driver(job) as running:
            until(lambda: reached(checkpoints, batch) or running.ended is not None, END_MAX_S)  # noqa: B023
            time.sleep(dice.uniform(0, LATER_MAX_S))
        for name, checkpoint in checkpoints.items():
            found[name] |= set(range(checkpoint.committed + 1, checkpoint.planned + 1))
            forget_picked(checkpoint)
    with driver(job) as running:
        until(lambda: running.ended is not None, END_MAX_S)
        assert running.ended == 0, running.log.read_text()[-3000:]
    return found


def without_empty_files(folder: Path) -> Inputs:
    """Return inputs with the same watermark after a restart as without it.

    A restarted query of Spark computes its next watermark from the first micro-batch alone. If that has no rows of one
    stream, the watermark stays behind that of an undisturbed query.
    """
    return Inputs(folder / "inputs", {})


@contextmanager
def driver(job: Job) -> Iterator[Driver]:
    """Run the program. Kill it at the end of the block if it still runs."""
    program = Path(__file__).with_name("shape_job.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        started = Driver(program, job.text(), Path(job.folder) / "driver.log")
    try:
        yield started
    finally:
        started.kill()


def reached(checkpoints: Mapping[str, Checkpoint], batch: int) -> bool:
    """Return whether any of the queries has begun this micro-batch."""
    return any(checkpoint.planned >= batch for checkpoint in checkpoints.values())


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


def noted(job: Job, name: str) -> dict[int, list[Rows]]:
    """Return the rows of each attempt at each micro-batch of a query."""
    found: dict[int, list[Rows]] = {}
    for path in (job.notes / name).glob("*.json"):
        note = json.loads(path.read_text())
        found.setdefault(note["batch"], []).append(note["rows"])
    return found


def test_the_driver_was_killed_in_the_middle_of_micro_batches(cut: dict[str, set[int]], kills: tuple[int, ...]) -> None:
    assert sum(map(len, cut.values())) >= len(kills)


def test_killed_queries_have_the_results_of_undisturbed_ones(
    job: Job, cut: dict[str, set[int]], tmp_path: Path
) -> None:
    with state_session("local[2]") as spark:
        trial = Trial(spark, tmp_path, HDFS, reads=without_empty_files(tmp_path))
        undisturbed = {name: Run() for name in job.shapes}
        trial.files(0, FILES, named(*job.shapes), undisturbed)
    for name in cut:
        attempts = noted(job, name)
        assert {batch: rows[0] for batch, rows in attempts.items()} == undisturbed[name].batches
        assert all(rows == attempts[batch][0] for batch, each in attempts.items() for rows in each)
