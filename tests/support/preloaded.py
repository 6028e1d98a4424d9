"""Starts services as forks of a process that has already imported them, which saves a second of processor time each.

`python -m support.preloaded` is that process. It reads one request per line and writes the process id of each service.
"""

import atexit
import ctypes
import functools
import gc
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LEAN = Path(__file__).with_name("lean")
PR_SET_CHILD_SUBREAPER = 36


class Preloaded:
    """The process that forks services. They become children of this process, like those that it starts itself."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        command = [sys.executable, "-m", "support.preloaded"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=lean({}), text=True, **pipes)
        self._lock = threading.Lock()
        atexit.register(self._process.communicate)

    def start(self, arguments: Sequence[str], directory: Path, environment: Mapping[str, str], log: Path) -> int:
        """Run `tableside` with arguments in a directory. Return its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps([arguments, str(directory), dict(environment), str(log)]) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())


@functools.cache
def preloaded() -> Preloaded:
    """Return the process that forks services for this process."""
    return Preloaded()


def lean(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with `more`, and with the folder of modules that a service lacks."""
    found = {**os.environ, **more}
    return {**found, "PYTHONPATH": os.pathsep.join(filter(None, [str(LEAN), found.get("PYTHONPATH")]))}


def main() -> None:
    """Import the service and its drivers, and fork for each request until standard input ends."""
    import tableside

    for module in pkgutil.walk_packages(tableside.__path__, "tableside."):
        importlib.import_module(module.name)
    gc.freeze()
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            _serve(*json.loads(line))
            return
        os.waitpid(child, 0)
        os.write(1, b"\n")


def _serve(arguments: list[str], directory: str, environment: dict[str, str], log: str) -> None:
    """Run the service in a second fork. It loses its parent, and the process that asked for it adopts it."""
    if (service := os.fork()) != 0:
        os.write(1, str(service).encode())
        os._exit(0)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["tableside", *arguments]
    sys.path[0] = directory
    _redirect(log)
    importlib.import_module("tableside.__main__").main()


def _redirect(log: str) -> None:
    nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)


if __name__ == "__main__":
    main()
