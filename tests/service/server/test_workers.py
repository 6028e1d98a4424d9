"""The processes of a service: workers that share a port, and process 1 of a container."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from servers.process import free_port
from support.running import refused, running
from support.waiting import until

pytestmark = pytest.mark.server


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "tableside.yaml"
    file.write_text("stores: {redis: {kind: redis, url: redis://127.0.0.1:1}}")
    return file


def test_the_workers_share_the_connections_of_a_client(tmp_path: Path, config: Path) -> None:
    with running(tmp_path, config, workers=2, ready=False) as service, contextlib.ExitStack() as stack:
        port = urlsplit(service.url).port or 0

        def listening() -> Counter[int]:
            return _connections(service.pid, port, "LISTEN")

        until(lambda: len(listening()) == 2)
        for _ in range(32):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        until(lambda: _connections(service.pid, port, "ESTABLISHED").total() == 32)
        counts = _connections(service.pid, port, "ESTABLISHED")
    assert len(counts) == 2, counts
    assert min(counts.values()) >= 4, counts


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.daily)])
def test_another_service_cannot_use_the_port(tmp_path: Path, config: Path, workers: int) -> None:
    with running(tmp_path, config, workers=2, ready=False) as service:
        port = str(urlsplit(service.url).port)
        options = ["--port", port, "--workers", str(workers), "--config", str(config)]
        ended = refused(tmp_path, *options)
    assert ended.returncode == 3
    [line] = (ended.stdout + ended.stderr).splitlines()
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in line


def test_a_database_of_another_process_is_named_with_its_store(tmp_path: Path) -> None:
    with running(tmp_path):
        ended = refused(tmp_path)
    assert ended.returncode == 3
    reason = "store 'local': the RocksDB directory ./tableside-data cannot be opened; another process may have it open"
    assert f"cannot start: {reason}" in ended.stdout + ended.stderr


def _connections(pid: int, port: int, status: str) -> Counter[int]:
    """Return the number of a service's sockets on a port by the process that has them."""
    counts = Counter[int]()
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in child.net_connections("tcp"):
                if one.status == status and one.laddr.port == port:
                    counts[child.pid] += 1
    return counts


# Process 1 of a container: the kernel ignores signals to it that have no handler

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
