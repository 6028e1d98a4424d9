"""Start the service for the demonstration, wait until it is ready, and stop it by its process id."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

HOST = "127.0.0.1"
PORT = 8080  # The README's commands use this port. If it is taken, the demonstration uses another one.
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0


@dataclass
class Service:
    """A running service: its URL, its process, its log, and the function that starts the process."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    launch: Callable[[], subprocess.Popen[bytes]]

    def kill(self) -> None:
        """End the process with SIGKILL, as a crash would."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Start the process again after `kill`, with the same port and records, and wait until it is ready."""
        self.process = self.launch()
        _wait_until_ready(self)

    def stop(self) -> None:
        """Stop the process and wait for it."""
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()


@contextlib.contextmanager
def running(
    folder: Path,
    port: int | None = None,
    *,
    keep: bool = False,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    workers: int = 1,
) -> Iterator[Service]:
    """Run the service with its records under `folder`. Stop it at the end, or `keep` it running after a success.

    A configuration may place the records elsewhere. `environment` has the variables that it needs.
    """
    service = _start(folder, port or free_port(), config, environment or {}, workers)
    try:
        _wait_until_ready(service)
        yield service
    except BaseException:
        service.stop()
        raise
    if not keep:
        service.stop()


def free_port() -> int:
    """Return the port that the README names, or any other if that one is taken."""
    for port in (PORT, 0):
        with socket.socket() as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                candidate.bind((HOST, port))
                return int(candidate.getsockname()[1])
    raise OSError(f"no free port on {HOST}")


def _start(folder: Path, port: int, config: Path | None, environment: Mapping[str, str], workers: int) -> Service:
    """Start the process in a new session, so that Ctrl-C reaches only the job, which then stops the service."""
    log = folder / "service.log"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TABLESIDE_")}
    command = [sys.executable, "-m", "tableside", "serve", "--host", HOST, "--port", str(port)]
    if config is not None:
        command += ["--config", str(config)]
    if workers > 1:
        command += ["--workers", str(workers)]

    def launch() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(  # noqa: S603 - our own command line
                command,
                cwd=folder,
                env={**inherited, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    return Service(f"http://{HOST}:{port}", launch(), log, launch)


def _wait_until_ready(service: Service) -> None:
    """Return when the service is ready. Raise if it has ended or does not become ready in time."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if service.process.poll() is not None:
            break
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{service.url}/readyz", trust_env=False).status_code == httpx.codes.OK:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the service did not start:\n{service.log.read_text(errors='replace')}")
