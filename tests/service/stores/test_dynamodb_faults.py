"""Outcomes of operations when the network to DynamoDB fails, or DynamoDB reaches its limits."""

import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import RawTestServer

from contract import freed_at_once, one, put, record, update
from contract.faults import CONNECTIONS_MAX, Faults, apply_in_time, failures
from servers.proxy import FaultProxy
from support.dynamodb_tables import fresh_table, opened, settings
from tableside.core.errors import DeadlineExceeded, StoreMisconfigured, StoreUnavailable, TableError, Throttled
from tableside.core.operations import Delete, Get, Record, Write, Written
from tableside.core.store import Scan, Store
from tableside.stores.dynamodb.client import Client


@pytest.fixture
async def table(dynamodb_client: Client) -> AsyncIterator[str]:
    async with fresh_table(dynamodb_client, {"id": "S"}) as name:
        yield name


@asynccontextmanager
async def connected(url: str, **rest: Any) -> AsyncIterator[Client]:
    client = Client(settings(url, **rest))
    yield client
    await client.close()


class TestFaults(Faults):
    @pytest.fixture(autouse=True)
    def _server(self, dynamodb_url: str, table: str) -> None:
        self.url, self.table = dynamodb_url, table

    @asynccontextmanager
    async def opened(self, url: str, connections_max: int) -> AsyncIterator[Store]:
        async with connected(url, connections_max=connections_max) as client:
            yield await opened(client, self.table)

    async def test_an_unsent_write_is_not_applied(self, proxy: FaultProxy, store: Store) -> None:
        proxy.hang()
        outcomes = await failures(store, [put(f"{index}", {}, if_absent=True) for index in range(40)])
        assert [outcome.applied for outcome in outcomes].count("unknown") <= CONNECTIONS_MAX


# DynamoDB's limits. No test server enforces them, so a proxy rejects calls as DynamoDB documents, and forwards
# the others to DynamoDB Local.


class Limits:
    """A proxy that forwards calls to DynamoDB Local, and rejects some as DynamoDB does at its limits."""

    def __init__(self, url: str, session: ClientSession) -> None:
        self.calls: list[str] = []
        self.keys: list[list[Any]] = []
        self.refuse: Callable[[str], str | None] = lambda verb: None
        self.share = 1.0
        self._url = url
        self._session = session

    async def respond(self, request: web.BaseRequest) -> web.Response:
        asked = await request.json()
        verb = request.headers["X-Amz-Target"].partition(".")[2]
        self.calls.append(verb)
        if code := self.refuse(verb):
            problem = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "no"}
            return web.json_response(problem, status=500 if code.startswith("Internal") else 400)
        if verb not in ("BatchGetItem", "BatchWriteItem"):
            status, body = await self._forwarded(request, asked)
            return web.Response(status=status, body=body)
        [(table, part)] = asked["RequestItems"].items()
        reads = verb == "BatchGetItem"
        every = part["Keys"] if reads else part
        self.keys.append(every)
        taken = [each for each in every if random.random() < self.share]
        left = [each for each in every if each not in taken]
        answer: dict[str, Any] = {"Responses": {table: []}} if reads else {}
        if taken:
            asked["RequestItems"][table] = {**part, "Keys": taken} if reads else taken
            _, body = await self._forwarded(request, asked)
            answer = json.loads(body)
        unprocessed = {table: {**part, "Keys": left} if reads else left} if left else {}
        return web.json_response(answer | {"UnprocessedKeys" if reads else "UnprocessedItems": unprocessed})

    async def _forwarded(self, request: web.BaseRequest, asked: dict[str, Any]) -> tuple[int, bytes]:
        kept = {name: request.headers[name] for name in ("X-Amz-Target", "Content-Type", "Authorization", "X-Amz-Date")}
        async with self._session.post(self._url, data=json.dumps(asked), headers=kept) as answer:
            return answer.status, await answer.read()


@pytest.fixture
async def limits(aws_credentials: None, dynamodb_url: str) -> AsyncIterator[Limits]:
    async with ClientSession() as session:
        yield Limits(dynamodb_url, session)


@pytest.fixture
async def client(limits: Limits) -> AsyncIterator[Client]:
    async with RawTestServer(limits.respond) as server, connected(str(server.make_url("/"))) as client:
        yield client


@pytest.fixture
async def limited(client: Client, table: str) -> Store:
    return await opened(client, table)


async def test_unprocessed_items_are_requested_until_complete(limits: Limits, limited: Store) -> None:
    limits.share = 0.5
    outcomes = await limited.apply([put(f"{index}", {"n": index}) for index in range(120)])
    assert {type(outcome) for outcome in outcomes} == {Written}
    found = await limited.apply([Get(f"{index}") for index in range(120)] + [Get("absent")])
    assert {type(outcome) for outcome in found[:-1]} == {Record}
    assert found[-1] is None
    assert limits.calls.count("BatchWriteItem") > 5
    for keys in limits.keys:
        assert len({json.dumps(key) for key in keys}) == len(keys)
        assert len(keys) <= (25 if "PutRequest" in keys[0] else 100)


@pytest.mark.parametrize("share", [0.0, 0.02], ids=["nothing", "little"])
async def test_items_unprocessed_until_the_deadline_are_throttled_and_never_absent(
    limits: Limits, limited: Store, share: float
) -> None:
    await limited.apply([put(f"{index}", {"n": index}) for index in range(100)])
    limits.share = share
    found = await apply_in_time(limited, [Get(f"{index}") for index in range(100)])
    assert {type(outcome) for outcome in found} <= {Record, Throttled, DeadlineExceeded}
    assert any(isinstance(outcome, Throttled) for outcome in found)
    outcomes = await apply_in_time(limited, [put(f"new {index}", {"n": index}) for index in range(100)])
    limits.share = 1.0
    there = await limited.apply([Get(f"new {index}") for index in range(100)])
    for outcome, now in zip(outcomes, there, strict=True):
        assert isinstance(outcome, (Written, Throttled, DeadlineExceeded))
        if isinstance(outcome, Written):
            assert isinstance(now, Record)
        elif outcome.applied == "no":
            assert now is None
    assert len(limits.calls) < 400


@pytest.mark.parametrize(
    ("code", "kind", "applied"),
    [
        ("ProvisionedThroughputExceededException", Throttled, "no"),
        ("ThrottlingException", Throttled, "no"),
        ("RequestLimitExceeded", Throttled, "no"),
        ("InternalServerError", StoreUnavailable, "unknown"),
        ("AccessDeniedException", StoreMisconfigured, "no"),
        ("AccessDenied", StoreMisconfigured, "no"),
        ("ExpiredTokenException", StoreMisconfigured, "no"),
        ("InvalidSignatureException", StoreMisconfigured, "no"),
        ("UnrecognizedClientException", StoreMisconfigured, "no"),
    ],
)
async def test_errors_of_dynamodb_are_translated(
    limits: Limits, client: Client, limited: Store, code: str, kind: type[TableError], applied: str
) -> None:
    await limited.apply([put("a", {"n": 1}), put("b", {"n": 1})])
    limits.refuse = lambda verb: None if verb == "GetItem" else code
    writes: list[Write] = [
        put("a"),
        Delete("b"),
        update("a", {"n": 2}),
        put("c", {}, if_absent=True),
        update("a", {"$inc": {"n": 1}}),
    ]
    for write in writes:
        outcome = await one(limited, write)
        assert isinstance(outcome, kind)
        assert (outcome.applied, outcome.retriable) == (applied, kind is not StoreMisconfigured)
        assert code in outcome.detail
    limits.refuse = lambda verb: code
    assert isinstance(await one(limited, Get("a")), kind)
    with pytest.raises(kind):
        await limited.scan(Scan(10))
    if kind is Throttled or code.startswith("AccessDenied"):
        await client.ping()
    else:
        with pytest.raises(StoreUnavailable):
            await client.ping()
    limits.refuse = lambda verb: None
    assert (await record(limited, "a")).value == b'{"n":1}'


async def test_a_throttled_batch_completes_when_capacity_returns(limits: Limits, limited: Store) -> None:
    turns = iter(["ProvisionedThroughputExceededException", "ThrottlingException"] * 2)
    limits.refuse = lambda verb: next(turns, None) if verb.startswith("Batch") else None
    outcomes = await limited.apply([put(f"{index}", {"n": index}) for index in range(20)])
    assert {type(outcome) for outcome in outcomes} == {Written}


async def test_writes_with_unknown_outcome_are_not_repeated(limits: Limits, limited: Store) -> None:
    limits.refuse = lambda verb: "InternalServerError" if verb != "BatchGetItem" else None
    limits.calls.clear()
    [outcome] = await limited.apply([put("a", {"n": 1})])
    assert isinstance(outcome, StoreUnavailable)
    assert limits.calls == ["PutItem"]
    limits.calls.clear()
    outcomes = [*await limited.apply([put(f"{index}", {}) for index in range(20)])]
    assert {getattr(outcome, "applied", None) for outcome in outcomes} == {"unknown"}
    assert freed_at_once(outcomes)
    assert limits.calls == ["BatchGetItem", "BatchWriteItem"]
    limits.calls.clear()
    [outcome] = await limited.apply([update("a", {"$inc": {"n": 1}}, {"n": 0})])
    assert limits.calls.count("PutItem") <= 1
