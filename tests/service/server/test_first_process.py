"""The service as process 1 of a container. The kernel ignores signals to it that have no handler."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from servers.process import free_port

pytestmark = pytest.mark.server
HANGING = """
import time
from tableside.stores import memory
from tableside.__main__ import main
apply = memory.MemoryStore.apply
memory.MemoryStore.apply = lambda store, *rest: time.sleep(1000) if store.spec.name == "t" else apply(store, *rest)
main()
"""
"""The service with a table that blocks the whole process."""

PUT = b"PUT /v1/tables/t/records/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"


@contextmanager
def first_process(directory: Path, program: list[str], shutdown_s: float) -> Iterator[tuple[psutil.Process, str]]:
    """Run the service in its own PID namespace, and yield its process and its URL."""
    config = directory / "config.yaml"
    config.write_text(f"stores: {{s: {{kind: memory}}}}\nauto_create: true\nlimits: {{shutdown_s: {shutdown_s}}}\n")
    port = free_port()
    serve = [*program, "serve", "--config", str(config), "--port", str(port)]
    with (directory / "log").open("wb") as log:
        command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, *serve]
        outer = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while not answers(f"http://127.0.0.1:{port}/livez"):
            assert outer.poll() is None, (directory / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        [process] = psutil.Process(outer.pid).children()
        yield process, f"http://127.0.0.1:{port}"
        assert outer.wait(30) is not None
        (directory / "code").write_text(str(outer.returncode))
    finally:
        outer.kill()
        outer.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def connected(url: str) -> socket.socket:
    port = int(url.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def test_a_second_signal_ends_it_immediately(tmp_path: Path) -> None:
    with first_process(tmp_path, ["-m", "tableside"], shutdown_s=600) as (process, url), connected(url) as caller:
        caller.sendall(PUT)  # without the body, so that the request is in flight
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(1)
        assert process.is_running()
        os.kill(process.pid, signal.SIGTERM)
    assert (tmp_path / "code").read_text() == str(128 + signal.SIGTERM)


def test_a_hung_process_ends_in_time_and_logs_its_stack(tmp_path: Path) -> None:
    with first_process(tmp_path, ["-c", HANGING], shutdown_s=2) as (process, url), connected(url) as caller:
        os.kill(process.pid, signal.SIGTERM)  # first, since the blocked service cannot handle a signal
        caller.sendall(PUT + b"{}")
    assert (tmp_path / "code").read_text() == "1"
    assert "Timeout (0:00:02)" in (tmp_path / "log").read_text()
