"""Outcomes of operations when the network to DynamoDB fails, or DynamoDB reaches its limits."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from contract import one, pages, put, record, update, value, written
from servers.process import HOST
from servers.proxy import FaultProxy
from support.dynamodb_tables import fresh_table, get_item, opened, settings
from support.waiting import WAIT_MAX_S
from tableside.core.budget import Budget
from tableside.core.errors import DeadlineExceeded, StoreMisconfigured, StoreUnavailable, TableError, Throttled
from tableside.core.operations import Delete, Get, Operation, Outcome, Record, Token, Write, Written
from tableside.core.store import Scan
from tableside.stores.dynamodb.client import Client

PATIENCE_S = 0.5
TICK_S = 0.01

CONNECTIONS_MAX = 8

WRITES: list[Operation] = [
    put("put", {"n": 1}),
    Delete("delete"),
    update("update", {"$inc": {"n": 1}}, {"n": 0}),
    update("native", {"n": 1}, {"n": 0}),
    update("tokened", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 1)),
    put("absent", {}, if_absent=True),
]
MANY: list[Operation] = [put(f"many {index}", {"n": index}) for index in range(60)]


@pytest.fixture
async def table(dynamodb_client: Client) -> AsyncIterator[str]:
    async with fresh_table(dynamodb_client, {"id": "S"}) as name:
        yield name


@pytest.fixture
async def proxy(dynamodb_url: str) -> AsyncIterator[FaultProxy]:
    port = urlsplit(dynamodb_url).port
    assert port is not None
    async with FaultProxy(HOST, port) as proxy:
        yield proxy


@pytest.fixture
async def store(aws_credentials: None, proxy: FaultProxy, table: str) -> AsyncIterator[Any]:
    """A table behind the proxy, with connections that have been used."""
    url = f"http://{HOST}:{proxy.port}"
    client = Client(settings(url, connections_max=CONNECTIONS_MAX))
    store = await opened(client, table)
    await store.apply([put("delete"), put("kept", {"n": 1}), put("update", {"n": 1}), put("native", {})])
    yield store
    await client.close()


async def apply_in_time(store: Any, operations: Sequence[Operation]) -> list[Outcome]:
    """Apply operations with a deadline, and check it. Time in which the process gets no CPU does not count."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(TICK_S)
            ticks += 1

    ticking = asyncio.create_task(tick())
    outcomes: list[Outcome] = await store.apply(operations, Budget(time.monotonic() + PATIENCE_S))
    ticking.cancel()
    assert ticks * TICK_S < PATIENCE_S + 1
    return outcomes


async def state(client: Client, table: str, operations: Sequence[Operation]) -> list[Any]:
    """Return DynamoDB's item for each of the writes."""
    keys = [{"id": {"S": str(operation.key)}} for operation in operations]
    return [await get_item(client, table, key) for key in keys]


async def done(store: Any, operations: Sequence[Operation]) -> None:
    """Repeat operations until they succeed: a connection that the fault broke may fail one of them once more."""
    async with asyncio.timeout(WAIT_MAX_S):
        while operations:
            outcomes = await store.apply(operations)
            errors = [outcome for outcome in outcomes if isinstance(outcome, TableError)]
            assert all(failed(error) for error in errors), errors
            operations = [one for one, told in zip(operations, outcomes, strict=True) if isinstance(told, TableError)]


def failed(outcome: Outcome) -> bool:
    return isinstance(outcome, StoreUnavailable | DeadlineExceeded) and outcome.retriable


FAULTS: dict[str, Callable[[FaultProxy], None]] = {
    "cut": FaultProxy.cut,
    "hang": FaultProxy.hang,
    "garbage": FaultProxy.garbage,
    "slow": lambda proxy: proxy.delay(5.0),
    "answer lost": FaultProxy.answer_lost,
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_outcomes_are_true_and_in_time_and_it_recovers(
    fault: str, proxy: FaultProxy, store: Any, table: str, dynamodb_client: Client
) -> None:
    writes = WRITES + MANY
    before = await state(dynamodb_client, table, writes)
    FAULTS[fault](proxy)
    for operations in ([Get("kept")], [Get(f"{index}") for index in range(250)]):
        outcomes = await apply_in_time(store, operations)
        assert all(failed(outcome) for outcome in outcomes), outcomes
        assert {outcome.applied for outcome in outcomes if isinstance(outcome, TableError)} == {"no"}
    outcomes = await apply_in_time(store, WRITES) + await apply_in_time(store, MANY)
    assert all(failed(outcome) for outcome in outcomes), outcomes
    if fault == "hang":
        proxy.cut()  # The proxy drops the delayed data instead of forwarding it later.
    await asyncio.sleep(0.1)
    after = await state(dynamodb_client, table, writes)
    for outcome, was, now in zip(outcomes, before, after, strict=True):
        assert isinstance(outcome, TableError)
        assert outcome.applied == "unknown" or was == now
    if fault in ("slow", "answer lost"):
        assert before != after
    with pytest.raises((StoreUnavailable, TimeoutError)):
        async with asyncio.timeout(PATIENCE_S):
            await store.scan(Scan(10))
    proxy.forward()
    assert await value(store, "kept") == {"n": 1}
    await done(store, WRITES[:-1])
    assert await value(store, "tokened") == {"n": 1}
    assert proxy.open_connections <= CONNECTIONS_MAX


async def test_an_unsent_write_is_not_applied(proxy: FaultProxy, store: Any) -> None:
    proxy.hang()
    puts = [put(f"{index}", {}, if_absent=True) for index in range(40)]
    outcomes = [outcome for outcome in await apply_in_time(store, puts) if isinstance(outcome, TableError)]
    assert len(outcomes) == 40
    assert [outcome.applied for outcome in outcomes].count("unknown") <= CONNECTIONS_MAX


async def test_a_write_that_carries_a_token_can_be_sent_again(proxy: FaultProxy, store: Any) -> None:
    increment = update("counted", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 1))
    for mode in (proxy.answer_lost, proxy.cut, proxy.garbage):
        mode()
        assert isinstance((await apply_in_time(store, [increment]))[0], TableError)
    proxy.forward()
    await written(store, increment)
    assert await value(store, "counted") == {"n": 1}


async def test_connections_are_limited_and_cancelled_calls_release_them(proxy: FaultProxy, store: Any) -> None:
    async with asyncio.TaskGroup() as group:
        for index in range(100):
            group.create_task(store.apply([put(f"{index}", {"n": index})]))
    assert proxy.open_connections <= CONNECTIONS_MAX
    await store.apply([put(f"{index}", {"n": index}) for index in range(400)])
    proxy.delay(0.02)
    for _ in range(30):
        work = asyncio.ensure_future(store.apply([Get(f"{index}") for index in range(300)]))
        await asyncio.sleep(random.random() * 0.1)
        work.cancel()
        await asyncio.wait([work])
    scan = asyncio.ensure_future(pages(store, Scan(10)))
    await asyncio.sleep(0.1)
    scan.cancel()
    await asyncio.wait([scan])
    proxy.forward()
    found = await store.apply([Get(f"{index}") for index in range(400)])
    assert [outcome for outcome in found if not isinstance(outcome, Record)] == []
    assert proxy.open_connections <= CONNECTIONS_MAX


# DynamoDB's limits. No test server enforces them, so a proxy rejects calls as DynamoDB documents, and forwards
# the others to DynamoDB Local.


class Limits:
    """A proxy that forwards calls to DynamoDB Local, and rejects some as DynamoDB does at its limits."""

    def __init__(self, url: str) -> None:
        self.server = urlsplit(url)
        self.url = ""
        self.calls: list[str] = []
        self.keys: list[list[Any]] = []
        self.refuse: Callable[[str], str | None] = lambda verb: None
        self.share = 1.0
        self._serving: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Limits"]:
        server = await asyncio.start_server(self._serve, HOST, 0)
        self.url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
        yield self
        server.close()
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(running := cast("asyncio.Task[Any]", asyncio.current_task()))
        running.add_done_callback(self._serving.discard)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                headers = {
                    name.lower(): text.strip()
                    for name, _, text in (line.partition(":") for line in head.decode().split("\r\n")[1:])
                }
                body = await reader.readexactly(int(headers["content-length"]))
                status, answer = await self._answer(headers, json.loads(body))
                text = json.dumps(answer).encode()
                kind = "Content-Type: application/x-amz-json-1.0"
                writer.write(f"HTTP/1.1 {status} X\r\n{kind}\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, headers: dict[str, str], asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        verb = headers["x-amz-target"].partition(".")[2]
        self.calls.append(verb)
        if code := self.refuse(verb):
            status = 500 if code.startswith("Internal") else 400
            return status, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "no"}
        if verb not in ("BatchGetItem", "BatchWriteItem"):
            return await self._passed_on(headers, asked)
        [(table, part)] = asked["RequestItems"].items()
        every = part["Keys"] if verb == "BatchGetItem" else part
        self.keys.append(every)
        taken = [one_asked for one_asked in every if random.random() < self.share]
        left = [one_asked for one_asked in every if one_asked not in taken]
        name, told = (
            ("UnprocessedKeys", {**part, "Keys": left}) if verb == "BatchGetItem" else ("UnprocessedItems", left)
        )
        answer: dict[str, Any] = {"Responses": {table: []}} if verb == "BatchGetItem" else {}
        if taken:
            asked["RequestItems"][table] = {**part, "Keys": taken} if verb == "BatchGetItem" else taken
            _, answer = await self._passed_on(headers, asked)
        return 200, answer | {name: {table: told} if left else {}}

    async def _passed_on(self, headers: dict[str, str], asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        reader, writer = await asyncio.open_connection(self.server.hostname, self.server.port)
        body = json.dumps(asked).encode()
        kept = {name: headers[name] for name in ("x-amz-target", "content-type", "authorization", "x-amz-date")}
        lines = [f"{name}: {text}" for name, text in kept.items()]
        head = "\r\n".join(["POST / HTTP/1.0", f"Host: {HOST}", *lines, f"Content-Length: {len(body)}", "", ""])
        writer.write(head.encode() + body)
        answered, _, text = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(answered.split()[1]), json.loads(text)


@pytest.fixture
async def limits(aws_credentials: None, dynamodb_url: str) -> AsyncIterator[Limits]:
    async with Limits(dynamodb_url).listening() as limits:
        yield limits


@pytest.fixture
async def limited(limits: Limits, table: str) -> AsyncIterator[Any]:
    client = Client(settings(limits.url))
    yield await opened(client, table)
    await client.close()


async def test_unprocessed_items_are_requested_until_complete(limits: Limits, limited: Any) -> None:
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
    limits: Limits, limited: Any, share: float
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


REJECTED_CREDENTIALS = (
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
)


@pytest.mark.parametrize(
    ("code", "kind", "applied"),
    [
        ("ProvisionedThroughputExceededException", Throttled, "no"),
        ("ThrottlingException", Throttled, "no"),
        ("RequestLimitExceeded", Throttled, "no"),
        ("InternalServerError", StoreUnavailable, "unknown"),
        ("AccessDeniedException", StoreMisconfigured, "no"),
        ("AccessDenied", StoreMisconfigured, "no"),
        *((code, StoreMisconfigured, "no") for code in REJECTED_CREDENTIALS),
    ],
)
async def test_errors_of_dynamodb_are_translated(
    limits: Limits, limited: Any, code: str, kind: type[TableError], applied: str
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
        await limited._calls._client.ping()
    else:
        with pytest.raises(StoreUnavailable):
            await limited._calls._client.ping()
    limits.refuse = lambda verb: None
    assert (await record(limited, "a")).value == b'{"n":1}'


async def test_a_throttled_batch_completes_when_capacity_returns(limits: Limits, limited: Any) -> None:
    turns = iter(["ProvisionedThroughputExceededException", "ThrottlingException"] * 2)
    limits.refuse = lambda verb: next(turns, None) if verb.startswith("Batch") else None
    outcomes = await limited.apply([put(f"{index}", {"n": index}) for index in range(20)])
    assert {type(outcome) for outcome in outcomes} == {Written}


async def test_writes_with_unknown_outcome_are_not_repeated(limits: Limits, limited: Any) -> None:
    limits.refuse = lambda verb: "InternalServerError" if verb != "BatchGetItem" else None
    limits.calls.clear()
    [outcome] = await limited.apply([put("a", {"n": 1})])
    assert isinstance(outcome, StoreUnavailable)
    assert limits.calls == ["PutItem"]
    limits.calls.clear()
    outcomes = await limited.apply([put(f"{index}", {}) for index in range(20)])
    assert {getattr(outcome, "applied", None) for outcome in outcomes} == {"unknown"}
    assert limits.calls == ["BatchGetItem", "BatchWriteItem"]
    limits.calls.clear()
    [outcome] = await limited.apply([update("a", {"$inc": {"n": 1}}, {"n": 0})])
    assert limits.calls.count("PutItem") <= 1
