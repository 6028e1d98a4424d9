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


def is_whole(value: dict[str, Any]) -> bool:
    expected = checksum(value["key"], value["number"], value["text"])
    return value.keys() == {"key", "number", "text", "sum"} and value["sum"] == expected


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
    """Writes new keys, and one key repeatedly."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent = 0
        self.acknowledged = 0

    async def write(self, http: httpx.AsyncClient) -> None:
        while True:
            number = self.sent = self.sent + 1
            new, same = f"{self.name}-{number}", f"{self.name}-same"
            await answered(http.put(f"/records/{new}", json=whole(new, number)))
            await answered(http.put(f"/records/{same}", json=whole(same, number)))
            self.acknowledged = number

    async def check(self, http: httpx.AsyncClient) -> None:
        keys = [f"{self.name}-{number}" for number in range(1, self.sent + 1)]
        found = await values_of(http, keys)
        for number, key in enumerate(keys, 1):
            if number <= self.acknowledged:
                assert found[key] == whole(key, number), f"{key} was acknowledged"
            else:
                assert found[key] in (None, whole(key, number))
        same = (await values_of(http, [f"{self.name}-same"]))[f"{self.name}-same"]
        assert same is None or is_whole(same)
        assert self.acknowledged <= (same or {"number": 0})["number"] <= self.sent
        self.acknowledged = self.sent = max(self.sent, self.acknowledged)
        await self.complete(http, found)

    async def complete(self, http: httpx.AsyncClient, found: dict[str, Any]) -> None:
        """Repeat the writes without a response, so that the next round expects all of them."""
        for key, value in found.items():
            number = int(key.rpartition("-")[2])
            if value is None:
                await answered(http.put(f"/records/{key}", json=whole(key, number)))
        same = f"{self.name}-same"
        await answered(http.put(f"/records/{same}", json=whole(same, self.sent)))


class Batches:
    """Writes groups of keys in batches."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent = 0
        self.acknowledged: set[int] = set()

    def keys(self, number: int) -> list[str]:
        return [f"{self.name}-{number}-{place}" for place in range(20)]

    async def write(self, http: httpx.AsyncClient) -> None:
        while True:
            number = self.sent = self.sent + 1
            puts = [{"op": "put", "key": key, "value": whole(key, number)} for key in self.keys(number)]
            results = (await answered(http.post("/batch", json={"operations": puts}))).json()["results"]
            assert [result["status"] for result in results] == [204] * len(puts)
            self.acknowledged.add(number)

    async def check(self, http: httpx.AsyncClient) -> None:
        numbers = {key: number for number in range(1, self.sent + 1) for key in self.keys(number)}
        for key, value in (await values_of(http, list(numbers))).items():
            wanted = whole(key, numbers[key])
            assert value == wanted or (value is None and numbers[key] not in self.acknowledged), key


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


Writer = Puts | Batches | Counts


async def until_killed(writer: Writer, http: httpx.AsyncClient) -> None:
    try:
        await writer.write(http)
    except Killed:
        return


async def test_after_a_kill_acknowledged_writes_are_complete(tmp_path: Path, full: bool) -> None:
    kills = 10 if full else 3
    config = tmp_path / "tableside.yaml"
    config.write_text("stores: {local: {kind: rocksdb, path: ./data}}\ntables: {t: {store: local}}\n")
    writers: list[Writer] = [Puts("p0"), Puts("p1"), Batches("b0"), Batches("b1"), Counts("c0", "own")]
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
    assert sum(writer.sent for writer in writers if isinstance(writer, Puts | Batches)) > kills
