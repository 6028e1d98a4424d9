"""Replacing whole tables on real stores: readers of several processes see one complete content, whatever is killed."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from redis.asyncio import Redis

from support.kinds import EMBEDDED, Kind, kind
from support.restarted_service import RestartedService
from support.running import Service, running
from support.waiting import WAIT_MAX_S
from tableside.stores import backend_type as backend_type_of

pytestmark = pytest.mark.server

STORES = [
    *(pytest.param(name, marks=[pytest.mark.daily] if name == "memory" else []) for name in EMBEDDED),
    "redis",
    "postgres",
    *(pytest.param(name, marks=pytest.mark.daily) for name in ("redis-cluster", "dynamodb")),
]
KEYS = [f"key-{number:02}" for number in range(40)]


@pytest.fixture(scope="module", params=STORES)
def services(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Service]]:
    """A service, and a second one if processes can share the store, with two workers for one store."""
    directory = tmp_path_factory.mktemp(request.param)
    used = kind(request.param, request, directory)
    config = directory / "tableside.yaml"
    config.write_text(json.dumps(used.configuration(generations=True, deadline_s=60)))
    with contextlib.ExitStack() as started:
        yield [
            started.enter_context(running(directory, config, environment=used.environment, workers=workers))
            for workers in ((1,) if request.param in EMBEDDED else (1, 2 if request.param == "redis" else 1))
        ]


@asynccontextmanager
async def clients(services: Sequence[Service | RestartedService]) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Clients that use a new connection for each request, so that they reach every worker."""
    anew = httpx.Limits(max_keepalive_connections=0)
    async with contextlib.AsyncExitStack() as opened:
        yield [
            await opened.enter_async_context(
                httpx.AsyncClient(base_url=f"{service.url}/v1/tables", limits=anew, timeout=WAIT_MAX_S)
            )
            for service in services
        ]


async def put_all(client: httpx.AsyncClient, name: str, content: int) -> list[int]:
    """Write every record of a content, and return the statuses."""
    puts = [{"op": "put", "key": key, "value": {"content": content}} for key in KEYS]
    response = await client.post(f"/{name}/batch", json={"operations": puts})
    assert response.status_code == 200, response.text
    return [result["status"] for result in response.json()["results"]]


async def replace(client: httpx.AsyncClient, content: int) -> int:
    created = await client.post("/t/generations", json={"note": f"content {content}"})
    assert created.status_code == 201, created.text
    number: int = created.json()["generation"]
    assert await put_all(client, f"t@{number}", content) == [204] * len(KEYS)
    activated = await client.post(f"/t/generations/{number}/activate")
    assert activated.status_code == 200, activated.text
    return number


async def by_batch(client: httpx.AsyncClient) -> list[int]:
    gets = [{"op": "get", "key": key} for key in KEYS]
    response = await client.post("/t/batch", json={"operations": gets})
    assert response.status_code == 200, response.text
    return [result["value"]["content"] for result in response.json()["results"]]


async def by_pages(client: httpx.AsyncClient, **parameters: str) -> list[int]:
    found, cursor = dict[str, int](), None
    while True:
        given = {**parameters, "limit": "15", **({} if cursor is None else {"cursor": cursor})}
        response = await client.get("/t/records", params=given)
        assert response.status_code == 200, response.text
        page = response.json()
        found |= {record["key"]: record["value"]["content"] for record in page["records"]}
        if (cursor := page["cursor"]) is None:
            return [*found.values()]


async def by_splits(client: httpx.AsyncClient) -> list[int]:
    response = await client.get("/t/splits", params={"count": "3"})
    assert response.status_code == 200, response.text
    parts = await asyncio.gather(*(by_pages(client, split=split) for split in response.json()["splits"]))
    return [*itertools.chain(*parts)]


async def test_readers_of_every_process_see_one_complete_content_and_after_an_activation_the_new_one(
    services: list[Service], full: bool
) -> None:
    times = 100 if full else 30 if len(services) == 1 else 3  # an activation takes 1.8 s if processes share the store
    async with clients(services) as every:
        await put_all(every[0], "t", 0)
        acknowledged, done, reads = 0, asyncio.Event(), 0

        async def read(client: httpx.AsyncClient, way: Callable[[httpx.AsyncClient], Any]) -> None:
            nonlocal reads
            while not done.is_set():
                least = acknowledged
                found = await way(client)
                assert len(found) == len(KEYS), f"{way.__name__}: incomplete"
                assert len({*found}) == 1, f"{way.__name__}: a mixture"
                assert found[0] >= least, f"{way.__name__}: content {found[0]} after {least} was acknowledged"
                reads += 1

        async with asyncio.TaskGroup() as group:
            for client, way in itertools.product(every, (by_batch, by_pages, by_splits)):
                group.create_task(read(client, way))
            for content in range(1, times + 1):
                number = await replace(every[content % len(every)], content)
                acknowledged = content
                for client in every * 2:
                    assert await put_all(client, f"t@{number}", -1) == [409] * len(KEYS)
            done.set()
        assert reads >= 3 * len(every)
        for client in every:
            listed = (await client.get("/t/generations")).json()["generations"]
            assert [one["state"] for one in listed] == ["kept", "current"]
            assert (await client.get("/t")).json()["generation"] == listed[-1]["generation"] == number


# Crashes

QUICK = {"generations": True, "generations_idle_s": 1}
"""Remove idle generations soon."""

REMOVED_WITHIN_S = 20.0


async def names_in_store(used: Kind, base: str) -> set[str]:
    """Return the names under which a store has records of a table, from the store itself."""
    if used.store["kind"] == "redis":
        async with Redis.from_url(used.store["url"]) as server:
            keys = [key.decode() async for key in server.scan_iter(f"*{base}:*")]
        return {key.partition(":")[0] for key in keys}
    backend_type: Any = backend_type_of(used.store["kind"])
    backend = await backend_type.open(backend_type.Settings.model_validate(without_kind(used.store)))
    try:
        return {name for name in await backend.tables() if base in name}
    finally:
        await backend.close()


def without_kind(store: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in store.items() if name != "kind"}


def name_in_store(used: Kind, base: str, number: int) -> str:
    if number == 1:
        return base
    return f"{number}@{base}" if used.store["kind"] == "redis" else f"{base}_ts_{number}"


async def nothing_else_stays(used: Kind, base: str, url: str) -> None:
    """Wait until the store has only the generations that the table lists, and none of them loads."""
    ends = time.monotonic() + REMOVED_WITHIN_S
    async with httpx.AsyncClient(base_url=url, timeout=WAIT_MAX_S) as client:
        while True:
            listed = (await client.get("/v1/tables/t/generations")).json()["generations"]
            expected = {name_in_store(used, base, one["generation"]) for one in listed}
            found = await names_in_store(used, base) if used.store["kind"] != "rocksdb" else expected
            if all(one["state"] != "loading" for one in listed) and found == expected:
                return
            assert time.monotonic() < ends, (listed, found)
            await asyncio.sleep(0.5)


async def interrupted(url: str, content: int, step: str, after_s: float) -> None:
    """Replace the table up to a step, and return a moment later without waiting for the answer."""
    async with httpx.AsyncClient(base_url=f"{url}/v1/tables", timeout=WAIT_MAX_S) as client:
        number = (await client.post("/t/generations")).json()["generation"]
        if step == "loading":
            last: Any = put_all(client, f"t@{number}", content)
        else:
            assert await put_all(client, f"t@{number}", content) == [204] * len(KEYS)
            last = client.post(f"/t/generations/{number}/activate")
        task = asyncio.create_task(last)
        await asyncio.wait([task], timeout=after_s)
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, httpx.HTTPError):
            await task


CRASHES = [("loading", 0.0), ("loading", 0.02), ("activating", 0.0), ("activating", 0.01), ("activating", 5.0)]
"""The step of a replacement that a crash ends, and how long after it began. The last is acknowledged before."""


@pytest.mark.parametrize("store", ["rocksdb", "redis", "postgres", pytest.param("dynamodb", marks=pytest.mark.daily)])
async def test_a_killed_service_leaves_a_complete_content_and_later_nothing_else(
    store: str, request: pytest.FixtureRequest, tmp_path: Path, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = kind(store, request, tmp_path)
    for name, value in used.environment.items():
        monkeypatch.setenv(name, value)
    configuration = used.configuration(**QUICK, deadline_s=5 if store == "dynamodb" else 0.5)
    base, config = configuration["tables"]["t"]["name"], tmp_path / "tableside.yaml"
    config.write_text(json.dumps(configuration))
    with RestartedService(tmp_path, config, used.environment) as service:
        async with clients([service]) as [client]:
            old = 0
            await put_all(client, "t", old)
            for content, (step, after_s) in enumerate(CRASHES if full or store == "rocksdb" else CRASHES[1:4:2], 1):
                await interrupted(service.url, content, step, after_s)
                await asyncio.to_thread(service.kill_and_restart, 0)
                found = await by_batch(client)
                assert len({*found}) == 1, f"{step}: a mixture"
                assert found[0] == old or (step == "activating" and found[0] == content), step
                assert after_s < 5 or found[0] == content, "an acknowledged activation is lost"
                old = found[0]
            await replace(client, 100)
            assert await by_batch(client) == [100] * len(KEYS)
            await nothing_else_stays(used, base, service.url)
            if store == "rocksdb":  # only one process can look into it
                await asyncio.sleep(8)
    if store == "rocksdb":
        assert len(await names_in_store(used, base)) == 2


async def test_a_crash_of_postgresql_leaves_a_complete_content_and_later_nothing_else(
    own_postgres_dsn: str, tmp_path: Path
) -> None:
    used = Kind({"kind": "postgres", "dsn": own_postgres_dsn})
    configuration = used.configuration(**QUICK, deadline_s=2)
    base, config = configuration["tables"]["t"]["name"], tmp_path / "tableside.yaml"
    config.write_text(json.dumps(configuration))
    with running(tmp_path, config) as service:
        async with clients([service]) as [client]:
            await put_all(client, "t", 0)
            created = (await client.post("/t/generations")).json()["generation"]
            acknowledged = await put_all(client, f"t@{created}", 1)
            assert acknowledged == [204] * len(KEYS)
            await crash(own_postgres_dsn)
            await responds(client)
            assert await by_batch(client) == [0] * len(KEYS)
            activating = asyncio.create_task(client.post(f"/t/generations/{created}/activate"))
            await crash(own_postgres_dsn)
            answer = await activating
            await responds(client)
            found = await by_batch(client)
            assert found == [1] * len(KEYS) or (answer.status_code != 200 and found == [0] * len(KEYS))
            await replace(client, 2)
            assert await by_batch(client) == [2] * len(KEYS)
            await nothing_else_stays(used, base, service.url)


async def crash(dsn: str) -> None:
    """Kill a process of PostgreSQL, which then ends all others and recovers from its log."""
    connection = await asyncpg.connect(dsn)
    os.kill(connection.get_server_pid(), signal.SIGKILL)
    with contextlib.suppress(Exception):
        await connection.close()


async def responds(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(WAIT_MAX_S):
        while (await client.get("/t/records/key-00")).status_code != 200:
            await asyncio.sleep(0.1)
