"""Servers that are started by hand: they print their URL, and end with their process."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from scripts.bootstrap import ROOT
from support.waiting import WAIT_MAX_S, until


@pytest.mark.server
@pytest.mark.parametrize("name", ["redis", "postgres", pytest.param("kafka", marks=pytest.mark.full)])
def test_a_server_ends_with_a_killed_process(name: str, reachable: Path) -> None:
    with by_hand(name, reachable) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        servers = psutil.Process(process.pid).children(recursive=True)
        assert servers
        process.kill()
        until(lambda: not any(runs(server) for server in servers))


@pytest.mark.server
def test_a_manually_started_server_prints_its_url_and_stops_on_a_signal(tmp_path: Path) -> None:
    with by_hand("redis", tmp_path) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert output("redis-cli", "-u", url, "ping") == "PONG"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_MAX_S) == 0
    assert "refused" in output("redis-cli", "-u", url, "ping", check=False)
    assert not list(tmp_path.iterdir())


def runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def output(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout.strip()


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A temporary folder, readable by every user, for files that a killed process leaves behind."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def by_hand(name: str, temporary: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "servers", name]
    environment = os.environ | {"TMPDIR": str(temporary)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
