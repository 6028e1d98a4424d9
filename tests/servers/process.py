"""Run a server as a child process: log to a file, wait until it responds, stop it by its process id."""

import contextlib
import pwd
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .install import ensure_command

HOST = "127.0.0.1"
START_MAX_S = 180.0
"""How long to wait for a server. A busy machine does not reach it."""

STOP_MAX_S = 20.0
"""How long a server may take to shut down before it is killed."""

PORTS = range(10_240, 32_768)
ASK_INTERVAL_S = 0.02
LOG_LINES_MAX = 40


class ServerFailed(Exception):
    """A server did not start. The message contains the end of its log."""


@dataclass(frozen=True)
class Server:
    """A command and how to run it. `answers` checks once whether the server is ready. An `OSError` means no.

    The signal `stop` shuts the server down. The kernel sends `abandon` if this process dies first.
    """

    name: str
    command: Sequence[str]
    answers: Callable[[], bool]
    user: str | None = None
    directory: Path | None = None
    environment: Mapping[str, str] | None = None
    stop: signal.Signals = signal.SIGTERM
    abandon: signal.Signals = signal.SIGKILL


@contextlib.contextmanager
def running(server: Server, scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server and yield when it responds. The log is in `scratch`, which is also the default working directory."""
    scratch.mkdir(parents=True, exist_ok=True)
    log = scratch / f"{server.name}.log"
    process = _start(server, scratch, log)
    try:
        _wait_until_ready(server, process, log)
        yield process
    finally:
        _stop(process, server.stop)


def free_port() -> int:
    """Return an unused port of the loopback interface.

    The kernel gives the ports above these to outgoing connections, perhaps before the server listens.
    """
    while True:
        port = PORTS.start + secrets.randbelow(len(PORTS))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port


def accepts_connections(port: int) -> bool:
    """Connect to a port of the loopback interface. Raise `OSError` if nothing listens there."""
    with socket.create_connection((HOST, port), timeout=1):
        return True


def _start(server: Server, scratch: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the process in a new session, so that Ctrl-C reaches only this process, which then stops the server.

    If the test run is killed, the kernel ends the server: `setpriv` requests that signal and then executes the server.
    A `preexec_fn` could deadlock in a process with threads. The kernel watches the thread that starts the process, so
    start servers in a thread that lives as long as they do.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            [*_parent_death_signal(server.abandon), *server.command],
            cwd=server.directory or scratch,
            env=server.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=server.user,
            group=pwd.getpwnam(server.user).pw_gid if server.user else None,
            extra_groups=() if server.user else None,
        )


def _parent_death_signal(order: signal.Signals) -> list[str]:
    """Return a command prefix that makes the kernel send this signal to the command when its parent dies."""
    setpriv = ensure_command("setpriv", "util-linux")
    return [str(setpriv), "--pdeathsig", order.name.removeprefix("SIG"), "--"]


def _wait_until_ready(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the server responds. Raise `ServerFailed` if it has ended or does not respond in time."""
    until = time.monotonic() + START_MAX_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise ServerFailed(f"{server.name} ended with {process.returncode}:\n{_end_of(log)}")
        with contextlib.suppress(OSError):
            if server.answers():
                return
        time.sleep(ASK_INTERVAL_S)
    raise ServerFailed(f"{server.name} did not answer within {START_MAX_S:.0f} s:\n{_end_of(log)}")


def _end_of(log: Path) -> str:
    return "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-LOG_LINES_MAX:])


def _stop(process: subprocess.Popen[bytes], order: signal.Signals) -> None:
    """Stop the process and wait for it."""
    process.send_signal(order)
    try:
        process.wait(STOP_MAX_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
