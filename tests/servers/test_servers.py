"""Tests of the real servers (each responds, on loopback only, and stops at the end) and of the proxy's faults."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pyspark
import pytest

from scripts.bootstrap import ROOT
from servers.dynamodb import dynalite, dynamodb_local
from servers.kafka import kafka, spark_kafka_jars
from servers.postgres import postgres
from servers.process import ServerFailed
from servers.redis import redis, redis_cluster
from support.waiting import WAIT_MAX_S, until


@contextlib.contextmanager
def alone_on_loopback(server: AbstractContextManager[object]) -> Iterator[None]:
    """Run a server. Check that all its processes listen only on loopback, and that none remains at the end."""
    before = set(psutil.Process().children(recursive=True))
    with server:
        started = set(psutil.Process().children(recursive=True)) - before
        addresses = {address for process in started for address in listening(process)}
        yield
    assert addresses
    assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}
    assert not [process for process in started if runs(process)]


RARELY_CHANGED = [
    pytest.param(start, marks=pytest.mark.daily) for start in (redis_cluster, dynamodb_local, dynalite, kafka)
]


@pytest.mark.server
@pytest.mark.parametrize("start", [redis, postgres, *RARELY_CHANGED])
def test_a_server_listens_on_loopback_only_and_ends(
    start: Callable[[Path], AbstractContextManager[object]], tmp_path: Path
) -> None:
    with alone_on_loopback(start(tmp_path)):
        pass


@pytest.mark.server
def test_the_kafka_connector_duplicates_no_jar_of_pyspark() -> None:
    own = {jar.name.rpartition("-")[0] for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    brought = {jar.name.rpartition("-")[0] for jar in spark_kafka_jars()}
    assert {"spark-core_2.13", "spark-sql_2.13"} < own
    assert {"spark-sql-kafka-0-10_2.13", "kafka-clients"} < brought
    assert not own & brought


@pytest.mark.server
def test_a_server_that_does_not_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerFailed, match=r"(?s)redis ended with 1.*nonsense"),
        redis(tmp_path, arguments=["--nonsense"]),
    ):
        pass


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


def listening(process: psutil.Process) -> Iterator[str]:
    with contextlib.suppress(psutil.NoSuchProcess):  # PostgreSQL's child processes start and end
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                yield connection.laddr.ip


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
