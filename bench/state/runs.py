"""One run of one variant: a service if necessary, a driver that builds the state, and one for the restarted query."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from examples.demo.service import Service, running

from . import figures
from .figures import Figures
from .inputs import Inputs, offer
from .task import Task
from .ways import Way, configuration

ROOT = Path(__file__).resolve().parents[2]
LOG_MAX = 6_000
TOO_LITTLE = ("OutOfMemoryError", "OUT_OF_MEMORY")
"""Words in the log that mean too little memory: an error of Java, of a task or of a provider."""


class DriverFailed(Exception):
    """A driver failed. The message contains the end of its log."""


class Exhausted(Exception):
    """A driver had too little memory: it reported that, or exceeded the time limit."""


@dataclass(frozen=True)
class Setting:
    """The settings of a round: the driver's heap size, and the interval of Spark's state store maintenance."""

    heap_mib: int
    maintenance_s: float

    def __str__(self) -> str:
        return f"heap {self.heap_mib:,} MiB, maintenance every {self.maintenance_s:g} s"


def measured(way: Way, inputs: Inputs, setting: Setting, timeout_s: float) -> Figures:
    """Run a variant once and return its figures. Raise `Exhausted` if its heap was too small."""
    with tempfile.TemporaryDirectory(prefix="tableside-bench-") as name:
        folder = Path(name)
        offer(inputs.measured, folder / "input")
        offer(inputs.warm, folder / "warm-input")
        with _service(folder, way) as service:
            task = _task(folder, way, inputs, setting, service)
            found = figures.of_run(_done(task, timeout_s), inputs) | _stored(folder)
            offer(inputs.more, folder / "input")
            return found | figures.of_restart(_done(replace(task, again=True), timeout_s), inputs)


@contextmanager
def _service(folder: Path, way: Way) -> Iterator[Service | None]:
    """Run a new service, if the variant needs one."""
    if way.memory is None:
        yield None
        return
    with running(folder, config=configuration(folder)) as service:
        yield service


def _task(folder: Path, way: Way, inputs: Inputs, setting: Setting, service: Service | None) -> Task:
    return Task(
        str(folder),
        way.configured(service.url if service else ""),
        setting.heap_mib,
        setting.maintenance_s,
        len(inputs.measured),
        service.process.pid if service else None,
        inputs.payload,
    )


def _done(task: Task, timeout_s: float) -> dict[str, Any]:
    """Run a task in a new process and return its result."""
    asked, answered, log = (Path(task.folder) / f"{task.name}.{ending}" for ending in ("task", "answer", "log"))
    task.write(asked)
    command = [sys.executable, "-m", "bench.state.driver", str(asked), str(answered)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired as late:
        raise Exhausted(f"no end within {timeout_s:.0f} s") from late
    finally:
        _end(process)
    text = log.read_text(errors="replace")
    if code and any(words in text for words in TOO_LITTLE):
        raise Exhausted("out of memory")
    if code:
        raise DriverFailed(f"a driver ended with {code}:\n{text[-LOG_MAX:]}")
    found: dict[str, Any] = json.loads(answered.read_text())
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a driver and its Java process if they are still running."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _stored(folder: Path) -> Figures:
    """Return the stored bytes: of Spark in the checkpoint, of the service in its store."""
    checkpoint, data = _bytes(folder / "checkpoint"), _bytes(folder / "data")
    return {"stored_checkpoint_bytes": checkpoint, "stored_service_bytes": data, "stored_bytes": checkpoint + data}


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
