"""A store that hangs occupies at most its share of the in-flight limits, so tables of other stores are served."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis

from servers.redis import redis
from support.running import running
from support.served import BATCH, RECORD, connected, served
from support.waiting import until

IN_FLIGHT_MAX = 40
SHARE = 30
CALLERS = 50
STORES: dict[str, Any] = {
    "memory": {"kind": "memory"},
    "rocksdb": {"kind": "rocksdb", "path": "./data"},
    "shards": {"kind": "partitioned", "partitions": ["memory", "redis"]},
}


@contextmanager
def stopped(url: str) -> Iterator[None]:
    """Stop a Redis server, so that it accepts connections and does not answer."""
    with Redis.from_url(url) as client:
        pid: int = client.info("server")["process_id"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def serving(directory: Path, url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A service with a table in each store, called like its store."""
    stores = {**STORES, "redis": {"kind": "redis", "url": url}}
    config = directory / "tableside.yaml"
    tables = {name: {"store": name, "deadline_s": 60} for name in stores}
    config.write_text(json.dumps({"stores": stores, "tables": tables, "limits": {"in_flight_max": IN_FLIGHT_MAX}}))
    with running(directory, config) as service:
        async with httpx.AsyncClient(base_url=f"{service.url}/v1/tables", timeout=90) as client:
            yield client


@pytest.mark.server
async def test_a_request_waits_for_a_pointer_in_a_hung_store_only_as_long_as_it_prefers(tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    with redis(tmp_path) as url:
        config.write_text(json.dumps({"stores": {"r": {"kind": "redis", "url": url}}, "auto_create": True}))
        with running(tmp_path, config) as service:
            async with httpx.AsyncClient(base_url=f"{service.url}/v1/tables", timeout=90) as client:
                assert (await client.put("/t/records/a", json={})).status_code == 204
                with stopped(url):
                    await asyncio.sleep(2)  # the process does not know any more which generation is current
                    for method, path in (("GET", "/t/records/a"), ("GET", "/t/records"), ("PUT", "/t/records/a")):
                        began = time.monotonic()
                        answer = await client.request(method, path, headers={"Prefer": "wait=1"})
                        assert (answer.status_code, answer.json()["code"]) == (504, "deadline_exceeded")
                        assert time.monotonic() - began < 5
                assert (await client.get("/t/records/a")).status_code == 200


def is_shed(response: httpx.Response) -> bool:
    return bool(response.json()["code"] == "overloaded")


@pytest.mark.server
async def test_tables_of_other_stores_are_served_while_callers_wait_for_a_hung_store(tmp_path: Path) -> None:
    with redis(tmp_path) as url:
        async with serving(tmp_path, url) as client:
            with stopped(url):
                waiting = [asyncio.create_task(client.get(f"/redis/records/{n}")) for n in range(CALLERS)]
                shed = [response for response in await first(waiting, CALLERS - SHARE) if is_shed(response)]
                assert len(shed) >= CALLERS - SHARE
                assert shed[0].status_code == 503
                assert shed[0].headers["Retry-After"] == "1"
                assert "store_share_max" in shed[0].json()["detail"]
                for table in ("memory", "rocksdb"):
                    assert await statuses(client, table) == [204] * 4 + [200] * 4
                assert (await client.put("/shards/records/a?partitions=0", json={})).status_code == 204
                assert is_shed(await client.put("/shards/records/a?partitions=1", json={}))
                batch = await client.post("/redis/batch", json={"operations": [{"op": "get", "key": "a"}]})
                assert (batch.status_code, is_shed(batch)) == (503, True)
            await asyncio.gather(*waiting)
            await asyncio.to_thread(until, lambda: httpx.get(f"{client.base_url}redis/records/a").status_code == 404)


async def first(tasks: list[asyncio.Task[httpx.Response]], count: int) -> list[httpx.Response]:
    """Return the responses that have arrived when there are at least so many."""
    done: set[asyncio.Task[httpx.Response]] = set()
    while len(done) < count:
        more, _ = await asyncio.wait(set(tasks) - done, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    return [task.result() for task in done]


async def statuses(client: httpx.AsyncClient, table: str) -> list[int]:
    """Put and get four records, each concurrently, and return the statuses."""
    paths = [f"/{table}/records/{n}" for n in range(4)]
    puts = await asyncio.gather(*(client.put(path, json={"n": 1}) for path in paths))
    gets = await asyncio.gather(*(client.get(path) for path in paths))
    return [response.status_code for response in (*puts, *gets)]


async def test_a_body_beyond_the_share_of_a_store_is_not_read() -> None:
    async with served(others=["other"], in_flight_max=4, drain_s=0) as service, connected(service, 5) as callers:
        gate = service.store.gate = asyncio.Event()
        *waiting, caller, describing = callers
        for one in waiting:
            one.send("GET", RECORD)
        await service.called(3)
        for method, path in (("PUT", RECORD), ("POST", BATCH)):
            caller.send(method, path, None, content_length="5000")
            answer = await caller.answer()
            assert (answer.status, answer.json()["code"], answer.json()["applied"]) == (503, "overloaded", "no")
            assert all(word in answer.json()["detail"] for word in ("requests", "store 's'", "store_share_max"))
            caller.writer.write(b" " * 5000)
        assert (await describing.ask("GET", "/v1/tables/t")).status == 200
        assert (await caller.ask("PUT", "/v1/tables/other/records/a", {})).status == 204
        assert service.metric("tableside_store_in_flight", store="s", what="requests") == 3
        gate.set()
        assert [(await one.answer()).status for one in waiting] == [404] * 3
