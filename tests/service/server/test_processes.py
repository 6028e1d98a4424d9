"""Records that are left after the service is killed, which needs a real process."""

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.running import Service, running

pytestmark = pytest.mark.server


@asynccontextmanager
async def client(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"{service.url}/v1/tables/t", timeout=30) as opened:
        yield opened


def whole(key: str, number: int) -> dict[str, Any]:
    """Return a value with a checksum, which shows whether it is complete."""
    text = hashlib.sha256(f"{key} {number}".encode()).hexdigest() * (1 + number % 40)
    return {"key": key, "number": number, "text": text, "sum": checksum(key, number, text)}


def checksum(key: str, number: int, text: str) -> str:
    return hashlib.sha256(f"{key}/{number}/{text}".encode()).hexdigest()


class Killed(Exception):
    """There was no response: the service has been killed."""


async def answered(request: Any) -> httpx.Response:
    try:
        response: httpx.Response = await request
    except httpx.TransportError:
        raise Killed from None
    assert response.status_code in (200, 201, 204), response.text
    return response


class Puts:
    """Writes new keys, alone or in batches, and overwrites one key repeatedly."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.sent = 0
        self.acknowledged: set[int] = set()

    def keys(self, number: int) -> list[str]:
        return [f"{self.name}-{number}-{place}" for place in range(self.count)]

    async def write(self, http: httpx.AsyncClient) -> None:
        while True:
            number = self.sent = self.sent + 1
            await self.put(http, self.keys(number), number)
            await self.put(http, [self.name], number)
            self.acknowledged.add(number)

    async def put(self, http: httpx.AsyncClient, keys: list[str], number: int) -> None:
        if len(keys) == 1:
            await answered(http.put(f"/records/{keys[0]}", json=whole(keys[0], number)))
            return
        puts = [{"op": "put", "key": key, "value": whole(key, number)} for key in keys]
        results = (await answered(http.post("/batch", json={"operations": puts}))).json()["results"]
        assert [result["status"] for result in results] == [204] * len(puts)

    async def check(self, http: httpx.AsyncClient) -> None:
        numbers = {key: number for number in range(1, self.sent + 1) for key in self.keys(number)}
        for key, value in (await values_of(http, list(numbers))).items():
            wanted = whole(key, numbers[key])
            assert value == wanted or (value is None and numbers[key] not in self.acknowledged), key
        same = (await values_of(http, [self.name]))[self.name]
        assert same is None or same == whole(self.name, same["number"])
        assert max(self.acknowledged, default=0) <= (same or {"number": 0})["number"] <= self.sent


class Counts:
    """Increments a counter with tokens, and repeats requests without a response."""

    def __init__(self, name: str, key: str) -> None:
        self.name, self.key = name, key
        self.sequence = 0
        self.acknowledged = 0
        self.replayed = 0

    async def write(self, http: httpx.AsyncClient) -> None:
        while True:
            self.sequence += 1
            await self.send(http)

    async def send(self, http: httpx.AsyncClient) -> bool:
        """Send the last sequence, and return whether the service had already applied it."""
        document = {
            "update": {"$inc": {"n": 1, self.name: 1}, "$set": {f"{self.name}-last": self.sequence}},
            "default": {},
        }
        token = {"Tableside-Token": f"{self.name}/{self.sequence}"}
        response = await answered(http.patch(f"/records/{self.key}", json=document, headers=token))
        self.acknowledged = self.sequence
        replayed: str = response.headers.get("Tableside-Replayed", "false")
        return replayed == "true"

    async def check(self, http: httpx.AsyncClient) -> None:
        if self.sequence == 0:
            return
        before = (await values_of(http, [self.key]))[self.key] or {self.name: 0, f"{self.name}-last": 0}
        counted = before.get(self.name, 0)
        assert counted == before.get(f"{self.name}-last", 0)
        assert self.acknowledged <= counted <= self.sequence
        replayed = await self.send(http)
        assert replayed == (counted == self.sequence)
        self.replayed += replayed
        assert await self.send(http)
        value = (await values_of(http, [self.key]))[self.key]
        assert (value[self.name], value[f"{self.name}-last"]) == (self.sequence, self.sequence)


async def values_of(http: httpx.AsyncClient, keys: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for start in range(0, len(keys), 5000):
        some = keys[start : start + 5000]
        response = await answered(http.post("/batch", json={"operations": [{"op": "get", "key": key} for key in some]}))
        for key, result in zip(some, response.json()["results"], strict=True):
            assert result["status"] in (200, 404), result
            found[key] = result.get("value")
    return found


Writer = Puts | Counts


async def until_killed(writer: Writer, http: httpx.AsyncClient) -> None:
    try:
        await writer.write(http)
    except Killed:
        return


async def test_after_a_kill_acknowledged_writes_are_complete(tmp_path: Path, full: bool) -> None:
    kills = 10 if full else 3
    config = tmp_path / "tableside.yaml"
    config.write_text("stores: {local: {kind: rocksdb, path: ./data}}\ntables: {t: {store: local}}\n")
    writers: list[Writer] = [Puts("p0", 1), Puts("p1", 1), Puts("b0", 20), Puts("b1", 20), Counts("c0", "own")]
    writers += [Counts("c1", "shared"), Counts("c2", "shared"), Counts("c3", "shared")]
    chance = random.Random(1)
    for _ in range(kills):
        with running(tmp_path, config) as service:
            async with client(service) as http:
                for writer in writers:
                    await writer.check(http)
                tasks = [asyncio.create_task(until_killed(writer, http)) for writer in writers]
                await asyncio.sleep(chance.uniform(0.1, 0.5))
                service.kill()
                await asyncio.gather(*tasks)
    with running(tmp_path, config) as service:
        async with client(service) as http:
            started = time.monotonic()
            for writer in writers:
                await writer.check(http)
            shared = (await values_of(http, ["shared"]))["shared"]
            counters = [writer for writer in writers if isinstance(writer, Counts) and writer.key == "shared"]
            assert shared["n"] == sum(counter.sequence for counter in counters)
            assert time.monotonic() - started < 30
    assert all(writer.acknowledged for writer in writers)
    assert sum(writer.sent for writer in writers if isinstance(writer, Puts)) > kills
