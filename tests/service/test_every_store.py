"""Guarantees of every store: concurrent first updates in replicas, and a start without the store."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from servers.proxy import FaultProxy
from support.dynamodb_tables import PATIENCE_S
from support.kinds import EVERY, REMOTE, Kind, kind
from support.running import Service, running
from support.waiting import WAIT_MAX_S

pytestmark = pytest.mark.server

RACERS = 64
FIRST = {"update": {"$inc": {"n": 1}}, "default": {"n": 0, "made": True}}


DAILY = ("memory", "redis-cluster", "postgres-columns", "dynamodb")
"""Stores whose guarantees here come from the same code as those of another one, or from the contract of stores."""


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.daily] if name in DAILY else []) for name in EVERY]
)
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


async def test_concurrent_first_updates_in_replicas_and_workers_use_one_default_and_all_count(
    replicas: list[Service], full: bool
) -> None:
    async with contextlib.AsyncExitStack() as opened:
        clients = [await opened.enter_async_context(client(service)) for service in replicas]
        for turn in range(5 if full else 2):
            await race(clients, f"/records/shared-{turn}")


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


async def test_a_table_without_tokens_refuses_idempotency_keys_and_orders(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    used = kind("dynamodb", request, tmp_path)
    config = tmp_path / "tableside.yaml"
    config.write_text(json.dumps(used.configuration(tokens=False)))
    with running(tmp_path, config, environment=used.environment) as service:
        async with client(service) as http:
            described = (await http.get(str(http.base_url).rstrip("/"))).json()["capabilities"]
            assert (described["tokens"], described["order"]) == (False, False)
            for name, body in (("Idempotency-Key", FIRST), ("Tableside-Order", {"update": {"n": 1}})):
                answer = await http.patch("/records/a", json=body, headers={name: "17"})
                assert (answer.status_code, answer.json()["code"]) == (501, "unsupported")
            assert (await http.get("/records/a")).status_code == 404


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
