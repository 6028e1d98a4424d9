"""Several worker processes share a port."""

import contextlib
import socket
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

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
