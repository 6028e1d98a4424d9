"""Tests of the real servers (each responds, on loopback only, and stops at the end) and of the proxy's faults."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

import psutil
import pyspark
import pytest

from scripts.bootstrap import ROOT, SetupError
from servers import install
from servers.dynamodb import dynalite, dynamodb_local
from servers.kafka import kafka, spark_kafka_jars
from servers.postgres import postgres
from servers.process import ServerFailed
from servers.proxy import FaultProxy
from servers.redis import redis, redis_cluster
from support.waiting import WAIT_MAX_S, eventually, until


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


def test_a_missing_package_is_named_if_it_cannot_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SetupError, match=r"^no-such-program is missing: install the package no-such-package$"):
        install.ensure_command("no-such-program", "no-such-package")


def test_the_newest_of_several_versions_is_found(tmp_path: Path) -> None:
    for version in ("9", "15", "13"):
        program = tmp_path / version / "bin" / "no-such-program"
        program.parent.mkdir(parents=True)
        program.touch(0o755)
    assert install.find_command("no-such-program", f"{tmp_path}/*/bin") == tmp_path / "15" / "bin" / "no-such-program"
    assert install.find_command("no-such-program") is None


def test_a_folder_is_filled_once_and_again_when_its_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "CACHE", tmp_path / "cache")
    source = tmp_path / "source"
    filled: list[str] = []

    def fill(folder: Path) -> None:
        filled.append(source.read_text())
        (folder / f"file {filled[-1]}").touch()

    for text in ("one", "one", "two"):
        source.write_text(text)
        folder = install.ensure_folder("folder", (source,), fill)
    assert filled == ["one", "two"]
    assert {file.name for file in folder.iterdir()} == {"file two", "stamp"}


def test_a_folder_whose_filling_failed_is_filled_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "CACHE", tmp_path / "cache")

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise SetupError("no network")

    with pytest.raises(SetupError):
        install.ensure_folder("folder", (), fail)
    assert not (tmp_path / "cache" / "folder").exists()
    assert (install.ensure_folder("folder", (), lambda folder: (folder / "all").touch()) / "all").exists()


async def test_the_proxy_forwards_and_counts() -> None:
    async with echo() as (proxy, heard):
        async with client(proxy) as (reader, writer), client(proxy):
            assert await asked(reader, writer, b"one") == b"one"
            assert await asked(reader, writer, b"two") == b"two"
            await eventually(lambda: proxy.open_connections == 2)
        await eventually(lambda: proxy.open_connections == 0)
        assert proxy.connections_total == 2
        assert heard == [b"one", b"two"]


async def test_held_data_arrives_when_the_fault_ends() -> None:
    async with echo() as (proxy, heard):
        proxy.hang()
        async with client(proxy) as (reader, writer):
            with pytest.raises(TimeoutError):
                await asked(reader, writer, b"one", seconds=0.1)
            assert heard == []
            assert proxy.open_connections == 1
            proxy.forward()
            assert await asyncio.wait_for(reader.read(100), WAIT_MAX_S) == b"one"


async def test_held_data_is_lost_if_the_client_leaves_or_the_proxy_cuts() -> None:
    async with echo() as (proxy, heard):
        proxy.hang()
        async with client(proxy) as (_, writer):
            writer.write(b"one")
            await writer.drain()
        await eventually(lambda: proxy.open_connections == 0 and proxy.connections_total == 1)
        async with client(proxy) as (reader, writer):
            with pytest.raises(TimeoutError):
                await asked(reader, writer, b"two", seconds=0.1)
            proxy.cut()
        proxy.forward()
        async with client(proxy) as (reader, writer):
            assert await asked(reader, writer, b"three") == b"three"
        assert heard == [b"three"]


async def test_a_delay_delays_each_answer_and_keeps_their_order() -> None:
    async with echo() as (proxy, heard), client(proxy) as (reader, writer):
        assert await asked(reader, writer, b"one") == b"one"
        proxy.delay(0.2)
        started = time.monotonic()
        writer.write(b"two")
        await eventually(lambda: heard[-1] == b"two")
        proxy.forward()
        writer.write(b"three")
        assert await asyncio.wait_for(reader.readexactly(len("twothree")), WAIT_MAX_S) == b"twothree"
        assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize("once", [True, False])
async def test_a_request_with_a_lost_answer_takes_effect(once: bool) -> None:
    async with echo() as (proxy, heard):
        proxy.answer_lost(once=once)
        async with client(proxy) as (reader, writer):
            assert await asked(reader, writer, b"one") is None
        assert heard == [b"one"]
        async with client(proxy) as (reader, writer):
            assert await asked(reader, writer, b"two") == (b"two" if once else None)
        assert heard == [b"one", b"two"]


async def test_an_unreachable_server_ends_the_clients_connection() -> None:
    async with echo() as (proxy, _):
        pass
    async with FaultProxy(*proxy.server) as again, client(again) as (reader, writer):
        assert await asked(reader, writer, b"one") is None


@asynccontextmanager
async def echo() -> AsyncIterator[tuple[FaultProxy, list[bytes]]]:
    """A proxy in front of an echo server, and the data that the echo server has received."""
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1_000_000):
                heard.append(data)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, FaultProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        yield proxy, heard


@asynccontextmanager
async def client(proxy: FaultProxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def asked(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes, *, seconds: float = WAIT_MAX_S
) -> bytes | None:
    """Return the response, or None if the connection ends."""
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(1000), seconds) or None
    except ConnectionError:
        return None


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
