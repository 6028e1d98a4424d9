"""One partition's store is down: the response, and that a retry leaves the record once in every partition."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from servers.proxy import FaultProxy
from support.running import running
from support.waiting import WAIT_MAX_S
from tableside.core.partitioner import default_partition

pytestmark = pytest.mark.server
EVERYWHERE = {"partitions": "all"}
FIRST = {"update": {"$inc": {"n": 1}}, "default": {"n": 0}}
POLICIES: dict[str, Any] = {
    "none": {},
    "all": {
        "write": {"attempts_max": 2, "pause_s": 0.01, "pause_max_s": 0.01, "timeout_s": 1},
        "batch": {"operations_max": 100},
        "cache": {"records_max": 100, "ttl_s": 60},
    },
}


@asynccontextmanager
async def behind(redis_url: str) -> AsyncIterator[tuple[FaultProxy, str]]:
    """Put a proxy before Redis. Yield it, and the URL of a separate database through it."""
    async with FaultProxy.before(redis_url) as proxy:
        yield proxy, f"redis://127.0.0.1:{proxy.port}/8"


@asynccontextmanager
async def serving(
    directory: Path, stores: dict[str, Any], table: dict[str, Any], *, ready: bool = True, workers: int = 1
) -> AsyncIterator[httpx.AsyncClient]:
    config = directory / "tableside.yaml"
    shards = {"kind": "partitioned", "partitions": list(stores)}
    tables = {"t": {"store": "shards", "name": directory.name, "deadline_s": 5, **table}}
    config.write_text(json.dumps({"stores": {**stores, "shards": shards}, "tables": tables}))
    context = running(directory, config, ready=ready, workers=workers)
    service = await asyncio.to_thread(context.__enter__)  # a thread, so that the proxy runs
    try:
        async with httpx.AsyncClient(base_url=f"{service.url}/v1/tables/t", timeout=30) as http:
            yield http
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


async def in_each(http: httpx.AsyncClient, key: str, count: int = 2) -> list[Any]:
    answers = [await http.get(f"/records/{key}", params={"partitions": index}) for index in range(count)]
    return [answer.json() if answer.status_code == 200 else answer.status_code for answer in answers]


async def until_whole(http: httpx.AsyncClient, key: str, token: str) -> httpx.Response:
    async with asyncio.timeout(WAIT_MAX_S):
        while True:
            answer = await increment(http, key, token)
            if answer.status_code < 400:
                return answer
            await asyncio.sleep(0.05)


async def increment(http: httpx.AsyncClient, key: str, token: str) -> httpx.Response:
    return await http.patch(f"/records/{key}", params=EVERYWHERE, json=FIRST, headers={"Tableside-Token": token})


@pytest.mark.parametrize("policies", POLICIES)
async def test_a_retry_completes_a_multicast_after_a_store_failure_exactly_once(
    policies: str, redis_url: str, tmp_path: Path
) -> None:
    async with behind(redis_url) as (proxy, url):
        stores = {"here": {"kind": "rocksdb", "path": "./data"}, "there": {"kind": "redis", "url": url}}
        async with serving(tmp_path, stores, POLICIES[policies]) as http:
            assert (await increment(http, "x", "w/1")).status_code == 201
            proxy.cut()
            for _ in range(2):  # partitions that applied the first attempt do not count the retry
                failed = await increment(http, "x", "w/2")
                problem = failed.json()
                assert (failed.status_code, problem["code"]) == (503, "store_unavailable")
                assert problem["retriable"] is True
                assert problem["applied"] == "unknown"
                assert "1 of 2 partitions failed (1)" in problem["detail"]
                assert [(part["partition"], part["status"]) for part in problem["partitions"]] == [(0, 204), (1, 503)]
                assert failed.headers["Retry-After"]
            assert problem["partitions"][0]["replayed"] is True
            assert await in_each(http, "x") == [{"n": 2}, 503]
            proxy.forward()
            done = await until_whole(http, "x", "w/2")
            assert "Tableside-Replayed" not in done.headers
            assert await in_each(http, "x") == [{"n": 2}, {"n": 2}]
            assert (await increment(http, "x", "w/2")).headers["Tableside-Replayed"] == "true"
            assert await in_each(http, "x") == [{"n": 2}, {"n": 2}]


async def test_a_partition_that_is_down_at_start_does_not_affect_the_others(redis_url: str, tmp_path: Path) -> None:
    keys = [f"k{n}" for n in range(20)]
    async with behind(redis_url) as (proxy, url):
        proxy.cut()
        stores = {"here": {"kind": "memory"}, "there": {"kind": "redis", "url": url}}
        async with serving(tmp_path, stores, {}, ready=False) as http:
            puts = [{"op": "put", "key": key, "value": {"n": 1}} for key in keys]
            results = (await http.post("/batch", json={"operations": puts})).json()["results"]
            for key, result in zip(keys, results, strict=True):
                place = default_partition(key, 2)
                assert result["status"] == (503 if place else 204), result
                assert result["partitions"][0]["partition"] == place
                if place:
                    assert (result["error"]["code"], result["error"]["applied"]) == ("store_unavailable", "no")
            page = await http.get("/records", params={"partitions": "0"})
            assert {record["key"] for record in page.json()["records"]} == {
                key for key in keys if default_partition(key, 2) == 0
            }
            assert (await http.get("/splits", params={"count": 4})).status_code == 503
            ready = await http.get(http.base_url.join("/readyz"))
            assert ready.status_code == 200
            stores_seen = ready.json()["stores"]
            assert {name: seen["ready"] for name, seen in stores_seen.items()} == {
                "here": True, "there": False, "shards": False,
            }  # fmt: skip
            assert "partition 1 in 'there'" in stores_seen["shards"]["detail"]
            proxy.forward()
            async with asyncio.timeout(WAIT_MAX_S):
                while any(
                    result["status"] != 204
                    for result in (await http.post("/batch", json={"operations": puts})).json()["results"]
                ):
                    await asyncio.sleep(0.05)
            assert len((await http.get("/records", params={"limit": 100})).json()["records"]) == len(keys)


async def test_several_workers_serve_partitions_that_they_share(redis_url: str, tmp_path: Path) -> None:
    base = redis_url.rpartition("/")[0]
    stores = {"one": {"kind": "redis", "url": f"{base}/10"}, "other": {"kind": "redis", "url": f"{base}/11"}}
    async with serving(tmp_path, stores, {}, workers=2) as http:
        answers = await asyncio.gather(*(increment(http, "x", f"w{n}/1") for n in range(8) for _ in range(2)))
        assert {answer.status_code for answer in answers} <= {201, 204}
        assert await in_each(http, "x") == [{"n": 8}, {"n": 8}]
        await http.put("/records/y", json={}, params={"partitions": ""})
        text = (await http.get(http.base_url.join("/metrics"))).text
        assert 'tableside_dropped_records_total{table="t"} 1.0' in text
