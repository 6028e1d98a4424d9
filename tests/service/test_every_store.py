"""Guarantees of every store: concurrent first updates, replicas, the same values after the same updates."""

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from contract import put, same
from servers.proxy import FaultProxy
from support.dynamodb_tables import PATIENCE_S
from support.kinds import EVERY, REMOTE, Kind, kind
from support.running import Service, running
from support.waiting import WAIT_MAX_S
from tableside.catalog.catalog import Catalog, Environment
from tableside.catalog.stack import StackMetrics
from tableside.catalog.table import Table
from tableside.core import updates, values
from tableside.core.errors import TableError
from tableside.core.operations import Delete, Get, Operation, Outcome, Record, Update, Written
from tableside.core.store import Scan
from tableside.settings import validate

pytestmark = pytest.mark.server

RACERS = 64
FIRST = {"update": {"$inc": {"n": 1}}, "default": {"n": 0, "made": True}}

RECORDS = 40
AT_ONCE = 100


@pytest.fixture(params=EVERY)
def every(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    return kind(request.param, request, tmp_path)


@pytest.fixture(scope="module", params=EVERY)
def replicas(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, full: bool
) -> Iterator[list[Service]]:
    """A service, and a second replica if processes can share the store, with two workers for at least one store."""
    directory = tmp_path_factory.mktemp(request.param)
    used = kind(request.param, request, directory)
    config = directory / "tableside.yaml"
    config.write_text(json.dumps(used.configuration(deadline_s=PATIENCE_S)))
    other = (2 if full or request.param == "postgres" else 1,) if request.param in REMOTE else ()
    with contextlib.ExitStack() as started:
        yield [
            started.enter_context(running(directory, config, environment=used.environment, workers=workers))
            for workers in (1, *other)
        ]


@asynccontextmanager
async def client(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=RACERS, max_keepalive_connections=RACERS)
    async with httpx.AsyncClient(
        base_url=f"{service.url}/v1/tables/t", limits=limits, timeout=2 * PATIENCE_S
    ) as opened:
        yield opened


async def test_concurrent_first_updates_use_one_default_and_all_count(replicas: list[Service], full: bool) -> None:
    async with client(replicas[0]) as http:
        for turn in range(20 if full else 3):
            await race([http], f"/records/first-{turn}")


async def test_concurrent_first_updates_in_replicas_and_workers_use_one_default_and_all_count(
    replicas: list[Service], full: bool
) -> None:
    if len(replicas) == 1:
        pytest.skip("the store belongs to one process")
    one, other = replicas
    async with client(one) as http, client(other) as other_http:
        for turn in range(5 if full else 2):
            await race([http, other_http], f"/records/shared-{turn}")


async def race(replicas: list[httpx.AsyncClient], path: str) -> None:
    asked = (replicas[index % len(replicas)].patch(path, json=FIRST) for index in range(RACERS))
    answers = await asyncio.gather(*asked)
    codes = [answer.status_code for answer in answers]
    assert (codes.count(201), codes.count(204)) == (1, RACERS - 1), answers
    assert len({answer.headers["ETag"] for answer in answers}) == RACERS
    for http in replicas:
        found = await http.get(path)
        assert found.json() == {"n": RACERS, "made": True}
        assert found.headers["ETag"] in {answer.headers["ETag"] for answer in answers}


async def test_concurrent_first_updates_in_batches_use_one_default_and_all_count(replicas: list[Service]) -> None:
    keys = [f"k{index}" for index in range(10)]
    update = {"op": "update", "update": {"$inc": {"n": 1}}, "default": {"n": 0}}
    body = {"operations": [{**update, "key": key} for key in keys for _ in range(3)]}
    async with client(replicas[0]) as http:
        answers = await asyncio.gather(*(http.post("/batch", json=body) for _ in range(16)))
        results = [result for answer in answers for result in answer.json()["results"]]
        outcomes = Counter(result.get("error", {}).get("code", result["status"]) for result in results)
        assert outcomes == {201: len(keys), 204: len(keys) * 47}
        found = await http.post("/batch", json={"operations": [{"op": "get", "key": key} for key in keys]})
        assert [result["value"] for result in found.json()["results"]] == [{"n": 48}] * len(keys)


async def test_an_idempotency_key_applies_an_update_once_in_replicas_and_workers(replicas: list[Service]) -> None:
    async with contextlib.AsyncExitStack() as opened:
        clients = [await opened.enter_async_context(client(service)) for service in replicas]
        repeated = (
            clients[index % len(clients)].patch("/records/keyed", json=FIRST, headers={"Idempotency-Key": "order-17"})
            for index in range(RACERS)
        )
        answers = await asyncio.gather(*repeated)
        assert sum("Tableside-Replayed" in answer.headers for answer in answers) == RACERS - 1
        for http in clients:
            assert (await http.get("/records/keyed")).json()["n"] == 1


async def test_a_table_without_tokens_refuses_an_idempotency_key(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    used = kind("dynamodb", request, tmp_path)
    config = tmp_path / "tableside.yaml"
    config.write_text(json.dumps(used.configuration(tokens=False)))
    with running(tmp_path, config, environment=used.environment) as service:
        async with client(service) as http:
            answer = await http.patch("/records/a", json=FIRST, headers={"Idempotency-Key": "order-17"})
            assert (answer.status_code, answer.json()["code"]) == (501, "unsupported")
            assert (await http.get("/records/a")).status_code == 404


# The same updates on every store


@asynccontextmanager
async def table(used: Kind, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Table]:
    for name, value in used.environment.items():
        monkeypatch.setenv(name, value)
    catalog = await Catalog.open(
        validate(used.configuration(deadline_s=60)), Environment(StackMetrics(CollectorRegistry()))
    )
    try:
        yield await catalog.table("t")
    finally:
        await catalog.close()


async def test_the_same_random_updates_leave_the_same_values(
    every: Kind, monkeypatch: pytest.MonkeyPatch, updates_count: int, reference: tuple[list[str], dict[str, Any]]
) -> None:
    async with table(every, monkeypatch) as changed:
        told = await all_applied(changed, updates_count)
        left = await everything(changed)
    wanted_told, wanted_left = reference
    assert told == wanted_told
    assert left.keys() == wanted_left.keys()
    for key, value in wanted_left.items():
        assert same(left[key], value), key


@pytest.fixture(scope="session")
def updates_count(full: bool) -> int:
    return 2000 if full else 600


@pytest.fixture(scope="module")
async def reference(updates_count: int) -> tuple[list[str], dict[str, Any]]:
    """The outcomes of the memory store, and the records that it then contains."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        async with table(Kind({"kind": "memory"}), monkeypatch) as changed:
            return await all_applied(changed, updates_count), await everything(changed)


async def all_applied(changed: Table, count: int) -> list[str]:
    """Apply a fixed sequence of operations in batches, and return their outcomes."""
    chance = random.Random(20261121)
    operations = [operation(chance) for _ in range(count)]
    told = []
    for start in range(0, count, AT_ONCE):
        told += [word(outcome) for outcome in await changed.batch(operations[start : start + AT_ONCE])]
    assert len(set(told)) > 3
    return told


async def everything(changed: Table) -> dict[str, Any]:
    """Read all records with scans and with gets, which have to agree."""
    found: dict[str, Any] = {}
    position = None
    while True:
        page = await changed.scan(Scan(7, position=position))
        found |= {str(key): values.decode(record.value) for key, record in page.records}
        if (position := page.position) is None:
            break
    for key, outcome in zip(found, await changed.batch([Get(key) for key in found]), strict=True):
        assert isinstance(outcome, Record)
        assert same(values.decode(outcome.value), found[key])
    return found


def word(outcome: Outcome) -> str:
    if isinstance(outcome, TableError):
        return outcome.code
    assert isinstance(outcome, Written)
    return f"created {outcome.created}, returned {outcome.value is not None}"


def operation(chance: random.Random) -> Operation:
    key = f"k{chance.randrange(RECORDS)}"
    if chance.random() < 0.05:
        return put(key, {name: member(chance) for name in chance.sample("abcd", 2)})
    if chance.random() < 0.02:
        return Delete(key)
    default = None if chance.random() < 0.2 else values.encode({"a": 0, "b": {"c": "x"}, "d": []})
    while True:
        with contextlib.suppress(TableError):
            changes = updates.parse(document(chance))
            return Update(key, changes, default, returning=chance.random() < 0.1)


def document(chance: random.Random) -> Any:
    """Return an update of a few paths whose current values often have the required type, and often do not."""
    match chance.randrange(8):
        case 0:
            return {name: chance.choice([None, member(chance)]) for name in chance.sample("abcd", 2)}
        case 1:
            return {"$set": {path(chance): member(chance), path(chance): member(chance)}}
        case 2:
            return {"$unset": [path(chance)]}
        case 3:
            return {"$inc": {chance.choice(["a", "b.n", "c"]): chance.choice([1, -3, 0.1, 2**40, 2**62])}}
        case 4:
            return {chance.choice(["$min", "$max"]): {path(chance): chance.choice([1, -7.5, "m", "z"])}}
        case 5:
            return {"$push": {chance.choice(["d", "b.d"]): {"$each": [member(chance), member(chance)]}}}
        case 6:
            return {"$addToSet": {chance.choice(["d", "b.d"]): chance.choice([1, "x", {"y": 1, "z": 2}])}}
        case _:
            return [document(chance) for _ in range(chance.randrange(3))]


def path(chance: random.Random) -> str:
    return chance.choice(["a", "b", "c", "d", "b.c", "b.n", "b.c.d", 'name with.a dot\'s "quote"', "size", "#x.:y"])


def member(chance: random.Random) -> Any:
    plain = [None, True, 0, 7, -1, 0.1, 1e-7, 1e100, -2.5e-100, 1.0, 2**53 + 1, 2**63 - 1, -(2**63), "", "ü\n", "x"]
    nested: list[Any] = [[], {}, {"c": 1}, {"c": {"d": None}}, [1, [2, {"e": []}]], {"é": 1.5}]
    return chance.choice(plain + nested)


# The store is unavailable


@pytest.mark.parametrize("name", ["redis", "postgres", "dynamodb"])
async def test_a_service_starts_without_its_store_and_serves_when_it_recovers(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    used = kind(name, request, tmp_path)
    async with behind_a_proxy(used) as (proxy, proxied):
        proxy.cut()
        config = tmp_path / "tableside.yaml"
        config.write_text(json.dumps(proxied.configuration(deadline_s=5)))
        with running(tmp_path, config, environment=used.environment, ready=False) as service:
            async with client(service) as http:
                await away(http)
                proxy.forward()
                await back(http)
                proxy.cut()
                await away(http)
                proxy.forward()
                await back(http)
        await settled(proxy)


@asynccontextmanager
async def behind_a_proxy(used: Kind) -> AsyncIterator[tuple[FaultProxy, Kind]]:
    """Run a proxy in front of a store's server. Yield it, and the store's settings with the proxy's address."""
    [member] = {"url", "dsn", "endpoint_url"} & used.store.keys()
    async with FaultProxy.before(used.store[member]) as proxy:
        yield proxy, Kind({**used.store, member: proxy.through(used.store[member])}, used.environment)


async def away(http: httpx.AsyncClient) -> None:
    ready = await http.get(http.base_url.join("/readyz"))
    assert ready.status_code == 503
    assert ready.json()["stores"]["s"]["ready"] is False
    for asked in (http.get("/records/a"), http.put("/records/a", json={"n": 1}), http.patch("/records/a", json=FIRST)):
        answer = await asked
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        assert answer.headers["Retry-After"]
        assert answer.json()["retriable"]


async def back(http: httpx.AsyncClient) -> None:
    async with asyncio.timeout(WAIT_MAX_S):
        while (await http.get(http.base_url.join("/readyz"))).status_code != 200:
            await asyncio.sleep(0.05)
        while (put_answer := await http.put("/records/a", json={"n": 1})).status_code == 503:
            await asyncio.sleep(0.05)
    assert put_answer.status_code == 204
    assert (await http.get("/records/a")).json() == {"n": 1}
    assert (await http.get(str(http.base_url).rstrip("/"))).json()["capabilities"]["if_match"] is True


async def settled(proxy: FaultProxy) -> None:
    """Wait until the stopped service has no open connections."""
    async with asyncio.timeout(WAIT_MAX_S):
        while proxy.open_connections:
            await asyncio.sleep(0.05)
