"""A driver with all its child processes, in its own kernel session, so that tests can kill all or some of them.

Its files outlive it: the notes of its runs, and the checkpoints of its queries. Works with any driver program.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from scripts.bootstrap import ROOT

IMPORTS = (ROOT / "tests", ROOT)
END_MAX_S = 30.0
DAEMON = "daemon pyspark.worker"
EXECUTOR = "CoarseGrainedExecutorBackend"


class Notes:
    """The lines of a file that several processes append to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._notes: list[dict[str, Any]] = []

    def all(self) -> list[dict[str, Any]]:
        """Return all notes so far, of all runs."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                whole, ended, _ = file.read().rpartition(b"\n")
            self._read += len(whole) + len(ended)
            self._notes += [json.loads(line) for line in whole.splitlines()]
        return self._notes

    def of(self, run: int, what: str) -> list[dict[str, Any]]:
        """Return the notes of this kind from one run."""
        return [note for note in self.all() if note["run"] == run and note["what"] == what]


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of a streaming query: its planned and its completed micro-batches."""

    path: Path

    @property
    def planned(self) -> int:
        """The number of the last planned micro-batch, -1 before the first."""
        return self._last("offsets")

    @property
    def committed(self) -> int:
        """The number of the last completed micro-batch, -1 before the first."""
        return self._last("commits")

    def _last(self, log: str) -> int:
        return max((int(path.name) for path in (self.path / log).glob("[0-9]*")), default=-1)


class Driver:
    """A program with a Spark cluster. The executors and their Python workers are its descendants."""

    def __init__(self, program: Path, argument: str, log: Path) -> None:
        found = os.pathsep.join(filter(None, [*map(str, IMPORTS), os.environ.get("PYTHONPATH")]))
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(program), argument],
                env={**os.environ, "PYTHONPATH": found, "PYSPARK_PYTHON": sys.executable},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.log = log

    @property
    def ended(self) -> int | None:
        """The exit code of the program, or None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """Kill the program and all its descendants together, like a power failure. Return when all have ended."""
        until = time.monotonic() + END_MAX_S
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        while left := self._session():
            assert time.monotonic() < until, f"{len(left)} processes do not end"
            for pid in left:
                kill(pid)
            self._process.poll()
            time.sleep(0.01)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def executors(self) -> list[int]:
        """Return the process ids of the executors."""
        return [pid for pid in self._session() if EXECUTOR in _command(pid)]

    def python_workers(self) -> list[int]:
        """Return the process ids of the executors' Python workers. The parent of each is a daemon."""
        daemons = {pid for pid in self._session() if DAEMON in _command(pid)}
        return [pid for pid in daemons if _parent(pid) in daemons]

    def _session(self) -> list[int]:
        return [pid for pid in psutil.pids() if _session_of(pid) == self._process.pid and _command(pid)]


def kill(pid: int) -> bool:
    """Kill one process, and return whether it still existed."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _command(pid: int) -> str:
    """Return the command of a process, or nothing if it has ended, also as a zombie."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""


def _parent(pid: int) -> int | None:
    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return None
