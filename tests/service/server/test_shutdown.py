"""The shutdown of a real service after a signal: orderly, in time, and without losing requests in flight."""

import asyncio
import os
import random
import re
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from servers.proxy import FaultProxy
from support.raw_http import Answer, Connection, Refused, Unanswered
from support.running import Service, running
from support.waiting import WAIT_MAX_S

pytestmark = pytest.mark.server
SLACK_S = 20.0
"""The tolerance of time limits on a busy machine."""

UNANSWERED_MAX = 2
"""How many new connections of a client may be closed without a response: once by each worker."""

TABLE = "/v1/tables/t"


def configured(directory: Path, store: str, **limits: float) -> Path:
    config = directory / "tableside.yaml"
    given = ", ".join(f"{name}: {value}" for name, value in limits.items())
    config.write_text(f"stores: {{s: {store}}}\ntables: {{t: {{store: s}}}}\nlimits: {{{given}}}\n")
    return config


async def exit_code(pid: int, within_s: float) -> int:
    """Wait until a child has ended without reaping it, and return its exit code in the form of `subprocess`."""
    until = time.monotonic() + within_s
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while (ended := os.waitid(os.P_PID, pid, look)) is None:  # noqa: ASYNC222  # it does not wait
        assert time.monotonic() < until, f"the service still runs {within_s} s later"
        await asyncio.sleep(0.01)
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


class Client:
    """Sends requests one after the other until the service has ended. Records the acknowledged writes."""

    def __init__(self, name: str, *, keeps_alive: bool) -> None:
        self.name = name
        self.keeps_alive = keeps_alive
        self.number = 0
        self.told_last = 0
        self.unanswered = 0
        self.acknowledged: set[str] = set()
        self.counted = 0

    async def run(self, url: str) -> None:
        connection: Connection | None = None
        try:
            while True:
                new = connection is None
                try:
                    connection = connection or await Connection.open(url)
                    answer = await self.next(connection)
                except (Unanswered, ConnectionResetError):
                    self.unanswered += 1
                    assert new, "the response before did not announce the end of the connection"
                    assert self.unanswered <= UNANSWERED_MAX
                    if connection is not None:
                        connection.close()
                    connection = None
                    continue
                self.told_last += answer.last
                if answer.last or not self.keeps_alive:
                    connection.close()
                    connection = None
        except Refused:
            return
        finally:
            if connection is not None:
                connection.close()

    async def next(self, connection: Connection) -> Answer:
        self.number += 1
        key = f"{self.name}-{self.number}"
        if self.number % 2:
            answer = await connection.ask("PUT", f"{TABLE}/records/{key}", {"n": self.number})
            assert answer.status == 204, answer
            self.acknowledged.add(key)
        else:
            document = {"update": {"$inc": {"n": 1}}, "default": {}}
            token = f"{self.name}/{self.number}"
            answer = await connection.ask("PATCH", f"{TABLE}/records/{self.name}", document, tableside_token=token)
            assert answer.status in (201, 204), answer
            self.counted += 1
        return answer

    async def check(self, http: httpx.AsyncClient) -> None:
        """Check that each acknowledged write is present and was counted once."""
        keys = sorted(self.acknowledged)
        for start in range(0, len(keys), 5000):
            gets = [{"op": "get", "key": key} for key in keys[start : start + 5000]]
            results = (await http.post(f"{TABLE}/batch", json={"operations": gets})).json()["results"]
            assert {result["status"] for result in results} == {200}
        if self.counted:
            assert (await http.get(f"{TABLE}/records/{self.name}")).json() == {"n": self.counted}


async def ended_under_load(service: Service, clients: list[Client], after_s: float) -> float:
    """Terminate the service while clients send requests, and return how long the shutdown took in seconds."""
    tasks = [asyncio.create_task(client.run(service.url)) for client in clients]
    await asyncio.sleep(after_s)
    told_at = time.monotonic()
    os.kill(service.pid, signal.SIGTERM)
    assert await exit_code(service.pid, 5 + SLACK_S) == 0, service.log.read_text()
    took_s = time.monotonic() - told_at
    async with asyncio.timeout(WAIT_MAX_S):
        await asyncio.gather(*tasks)
    return took_s


def clients_of(round_: int) -> list[Client]:
    kept = [Client(f"{round_}-kept-{number}", keeps_alive=True) for number in range(4)]
    return kept + [Client(f"{round_}-fresh-{number}", keeps_alive=False) for number in range(4)]


async def test_shutdowns_lose_no_accepted_write(tmp_path: Path, full: bool) -> None:
    """Two services run in parallel, so that one starts while the other shuts down."""
    for lane in "ab":
        (tmp_path / lane).mkdir()
    rounds = 10 if full else 2
    await asyncio.gather(*(ends(tmp_path / lane, rounds, random.Random(lane)) for lane in "ab"))


async def ends(directory: Path, rounds: int, chance: random.Random) -> None:
    config = configured(directory, "{kind: rocksdb, path: ./data}", drain_s=0.15, shutdown_s=5)
    before: list[Client] = []
    for round_ in range(rounds):
        clients = clients_of(round_)
        async with started(directory, config) as service:
            await check(service, before)
            assert await ended_under_load(service, clients, chance.uniform(0.05, 0.2)) < 5
        before = clients
        assert sum(client.counted for client in clients) > 0
        assert all(client.told_last for client in clients if client.keeps_alive)
    async with started(directory, config) as service:
        await check(service, before)


@asynccontextmanager
async def started(directory: Path, config: Path, workers: int = 1) -> AsyncIterator[Service]:
    """Run a service without blocking the event loop while it starts and ends."""
    entered = running(directory, config, workers=workers)
    service = await asyncio.to_thread(entered.__enter__)
    try:
        yield service
    finally:
        await asyncio.to_thread(entered.__exit__, None, None, None)


async def check(service: Service, clients: list[Client]) -> None:
    async with httpx.AsyncClient(base_url=service.url) as http:
        for client in clients:
            await client.check(http)


async def test_the_shutdown_of_several_workers_loses_nothing(tmp_path: Path, redis_url: str) -> None:
    store = f"{{kind: redis, url: '{redis_url}'}}"
    config = configured(tmp_path, store, drain_s=0.2, shutdown_s=5)
    config.write_text(config.read_text().replace("t: {store: s}", f"t: {{store: s, name: t{os.urandom(8).hex()}}}"))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    clients = clients_of(0)
    with running(tmp_path, config, workers=2, environment={"TMPDIR": str(temporary)}) as service:
        assert len(list(temporary.glob("tableside-metrics-*"))) == 1
        assert await ended_under_load(service, clients, 0.5) < 5
        assert list(temporary.glob("tableside-metrics-*")) == []
    with running(tmp_path, config) as service:
        await check(service, clients)


@pytest.fixture
async def opened() -> AsyncIterator[AsyncExitStack]:
    """An exit stack that closes the connections of a test."""
    async with AsyncExitStack() as stack:
        yield stack


async def test_while_draining_it_serves_and_is_not_ready(tmp_path: Path, opened: AsyncExitStack) -> None:
    config = configured(tmp_path, "{kind: rocksdb, path: ./data}", drain_s=2.5, shutdown_s=15)
    with running(tmp_path, config) as service:
        connection = await opened.enter_async_context(await Connection.open(service.url))
        assert not (await connection.ask("GET", "/readyz")).last
        os.kill(service.pid, signal.SIGTERM)
        async with asyncio.timeout(WAIT_MAX_S):
            while (readiness := await connection.ask("GET", "/readyz")).status == 200:
                assert not readiness.last
        assert readiness.status == 503
        assert readiness.headers["retry-after"]
        problem = readiness.json()
        assert (problem["code"], problem["retriable"], problem["stores"]["s"]["ready"]) == ("overloaded", True, True)
        assert readiness.last
        assert await connection.reader.read() == b""
        for method, path, document, status in (
            ("PUT", f"{TABLE}/records/a", {}, 204),
            ("GET", f"{TABLE}/records/a", None, 200),
            ("GET", "/livez", None, 200),
        ):
            async with await Connection.open(service.url) as another:
                answer = await another.ask(method, path, document)
                assert (answer.status, answer.last) == (status, True)
        assert await exit_code(service.pid, 15) == 0


async def until_refused(service: Service) -> None:
    """Wait until the service refuses connections."""
    async with asyncio.timeout(WAIT_MAX_S):
        with suppress(Refused):
            while True:
                with suppress(ConnectionResetError):
                    (await Connection.open(service.url)).close()


async def test_a_request_that_has_begun_to_arrive_is_answered_and_a_silent_connection_is_closed(
    tmp_path: Path, opened: AsyncExitStack
) -> None:
    config = configured(tmp_path, "{kind: rocksdb, path: ./data}", drain_s=0, shutdown_s=10)
    with running(tmp_path, config) as service:
        begun, silent = [await opened.enter_async_context(await Connection.open(service.url)) for _ in range(2)]
        begun.writer.write(b"GET /livez HTTP/1.1\r\n")
        async with await Connection.open(service.url) as other:
            assert (await other.ask("GET", "/livez")).status == 200, "the bytes sent before have been read"
        os.kill(service.pid, signal.SIGTERM)
        await until_refused(service)
        assert await silent.reader.read() == b""
        begun.writer.write(b"host: test\r\n\r\n")
        assert (await begun.answer()).last
        assert await exit_code(service.pid, 5) == 0


@asynccontextmanager
async def hanging(directory: Path, redis_url: str, workers: int = 1, **limits: float) -> AsyncIterator[Service]:
    """Run a service whose store has stopped responding."""
    async with FaultProxy.before(redis_url) as proxy:
        config = configured(directory, f"{{kind: redis, url: '{proxy.through(redis_url)}'}}", **limits)
        async with started(directory, config, workers) as service:
            proxy.hang()
            yield service


async def test_a_hung_store_does_not_delay_the_shutdown(tmp_path: Path, redis_url: str, opened: AsyncExitStack) -> None:
    async with hanging(tmp_path, redis_url, drain_s=0.1, shutdown_s=3) as service:
        write, read = [await opened.enter_async_context(await Connection.open(service.url)) for _ in range(2)]
        write.send("PUT", f"{TABLE}/records/{os.urandom(8).hex()}", {})
        read.send("GET", f"{TABLE}/records/a")
        await asyncio.sleep(0.2)
        told_at = time.monotonic()
        os.kill(service.pid, signal.SIGTERM)
        for connection, applied in ((write, "unknown"), (read, "no")):
            answer = await connection.answer()
            assert (answer.status, answer.last) == (503, True)
            assert answer.headers["retry-after"]
            problem = answer.json()
            assert (problem["code"], problem["applied"], problem["retriable"]) == ("overloaded", applied, True)
        assert await exit_code(service.pid, 3 + SLACK_S) == 0
        assert time.monotonic() - told_at < 3 + SLACK_S


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.daily)])
async def test_a_second_signal_ends_the_service_immediately(
    tmp_path: Path, redis_url: str, workers: int, opened: AsyncExitStack
) -> None:
    async with hanging(tmp_path, redis_url, workers, drain_s=0.1, shutdown_s=60) as service:
        connection = await opened.enter_async_context(await Connection.open(service.url))
        connection.send("PUT", f"{TABLE}/records/{os.urandom(8).hex()}", {})
        await asyncio.sleep(0.2)
        processes = psutil.Process(service.pid).children(recursive=True)
        os.kill(service.pid, signal.SIGTERM)
        await asyncio.sleep(1)
        os.kill(service.pid, signal.SIGTERM)
        assert await exit_code(service.pid, SLACK_S) == (-signal.SIGTERM if workers == 1 else 128 + signal.SIGTERM)
        with pytest.raises(Unanswered):
            await connection.answer()
        _, left = psutil.wait_procs(processes, timeout=SLACK_S)
        # In a container whose first process does not wait for them, ended processes remain as zombies.
        assert [process for process in left if process.status() != psutil.STATUS_ZOMBIE] == []


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("two_workers")
    config = configured(directory, f"{{kind: redis, url: '{redis_url}'}}", drain_s=0, shutdown_s=5)
    with running(directory, config, workers=2) as service:
        while service.log.read_text().count("Application startup complete") < 2:
            time.sleep(0.05)
        yield service


async def test_a_hangup_signal_reaches_the_workers(two_workers: Service) -> None:
    before = {child.pid for child in psutil.Process(two_workers.pid).children()}
    os.kill(two_workers.pid, signal.SIGHUP)
    async with httpx.AsyncClient(base_url=two_workers.url) as http, asyncio.timeout(WAIT_MAX_S):
        while True:
            text = (await http.get("/metrics")).text
            if re.search(r'^tableside_settings_reloads_total\{outcome="applied"\} 2\.0$', text, re.MULTILINE):
                break
            await asyncio.sleep(0.1)
    assert {child.pid for child in psutil.Process(two_workers.pid).children()} == before


async def test_a_signal_to_one_worker_does_not_affect_others(two_workers: Service) -> None:
    [first, *_] = two_workers.worker_pids
    os.kill(first, signal.SIGTERM)
    client = Client("client", keeps_alive=False)
    task = asyncio.create_task(client.run(two_workers.url))
    async with asyncio.timeout(WAIT_MAX_S):
        while first in (pids := two_workers.worker_pids) or len(pids) < 2:
            await asyncio.sleep(0.05)
    assert not task.done(), task.exception()
    task.cancel()
