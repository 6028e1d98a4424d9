"""A real service in a separate process, for tests."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import httpx
import psutil

from servers.process import START_MAX_S, free_port
from support.preloaded import lean, preloaded

METRICS_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"""A variable that the service reads while it is imported, so that a fork would come too late."""


@dataclass(frozen=True)
class Service:
    """A running service: its URL, its data folder and its process id."""

    url: str
    directory: Path
    pid: int
    log: Path

    def kill(self) -> None:
        """Kill the process without notice."""
        os.kill(self.pid, signal.SIGKILL)

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the workers, without Python's own child process."""
        pids = []
        for child in psutil.Process(self.pid).children():
            with suppress(psutil.Error):  # the process has just ended
                if "spawn_main" in " ".join(child.cmdline()):
                    pids.append(child.pid)
        return pids


@contextmanager
def running(
    directory: Path,
    config: Path | None = None,
    *,
    python: str | Path = sys.executable,
    module: str = "tableside",
    workers: int = 1,
    environment: Mapping[str, str] = MappingProxyType({}),
    ready: bool = True,
    port: int | None = None,
    probes_port: int | None = None,
    options: Sequence[str] = (),
) -> Iterator[Service]:
    """Run `tableside serve` in a directory. Without a configuration, its records are in RocksDB there.

    `module` is the Python module that runs as the command. A fork runs one process of the usual module.

    The service is yielded when it is ready, or with `ready=False` as soon as it responds. `options` that enable TLS
    must set a probe port, which then receives the readiness checks.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port, log = port or free_port(), directory / "service.log"
    arguments = ["serve", "--port", str(port), "--workers", str(workers), *options]
    if probes_port is not None:
        arguments += ["--probes-port", str(probes_port)]
    if config is not None:
        arguments += ["--config", str(config)]
    if (str(python), module, workers) == (sys.executable, "tableside", 1) and METRICS_DIRECTORY not in environment:
        process = psutil.Process(preloaded().start(arguments, directory, lean(environment), log))
    else:
        process = _started([str(python), "-m", module, *arguments], directory, environment, log)
    try:
        url = f"{'https' if '--ssl-certfile' in options else 'http'}://127.0.0.1:{port}"
        probes = url if probes_port is None else f"http://127.0.0.1:{probes_port}"
        _wait_until_ready(f"{probes}/readyz" if ready else f"{probes}/livez", process, log)
        yield Service(url, directory, process.pid, log)
    finally:
        _end(process)


def _started(command: Sequence[str], directory: Path, environment: Mapping[str, str], log: Path) -> psutil.Process:
    with log.open("ab") as output:
        return psutil.Popen(
            command, cwd=directory, env=lean(environment), stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )


def _end(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.terminate()
    try:
        process.wait(30)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait()


def refused(directory: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `tableside serve` on a free port with options with which it does not start."""
    command = [sys.executable, "-m", "tableside", "serve", "--port", "0", *options]
    return subprocess.run(
        command, cwd=directory, env=lean(environment), capture_output=True, text=True, timeout=START_MAX_S
    )


def _wait_until_ready(url: str, process: psutil.Process, log: Path) -> None:
    until = time.monotonic() + START_MAX_S
    with httpx.Client(timeout=2) as client:  # each client loads all certificate authorities, which takes 20 ms
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
            with suppress(httpx.TransportError):
                if client.get(url).status_code == 200:
                    return
            time.sleep(0.05)
    raise RuntimeError(f"the service did not start:\n{log.read_text(errors='replace')[-4000:]}")
