"""Outcomes of operations when the network to Redis fails, and that the store recovers without intervention."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from redis.asyncio import Redis

from contract import one, pages, put, record, update, value, written
from servers.process import HOST, free_port
from servers.proxy import FaultProxy, address
from servers.redis import redis
from support.redis_tables import connected, table, unopened
from support.waiting import WAIT_MAX_S, eventually
from tableside.catalog.table import Table
from tableside.core.budget import Budget
from tableside.core.errors import DeadlineExceeded, StoreUnavailable, TableError
from tableside.core.operations import Delete, Get, Operation, Outcome, Record, Token, Written
from tableside.core.store import Scan, TableSpec

pytestmark = pytest.mark.server

PATIENCE_S = 0.4

BUSY_S = 10.0
"""How late a busy machine may notice a deadline. Faults last longer."""

WRITES: list[Operation] = [
    put("put", {"n": 1}),
    Delete("delete"),
    update("update", {"$inc": {"n": 1}}, {"n": 0}),
    update("tokened", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 1)),
    put("absent", {}, if_absent=True),
]


@pytest.fixture
async def proxy(redis_url: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy.before(redis_url) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: FaultProxy) -> AsyncIterator[Any]:
    """A table behind the proxy. Some connections have been used, others are not open yet."""
    async with table(f"redis://{HOST}:{proxy.port}/0", connections_max=8) as store:
        await store.apply([put("delete"), put("kept", {"n": 1}), put("update", {"n": 1})])
        yield store


async def within(work: Awaitable[Any], seconds: float) -> Any:
    async with asyncio.timeout(seconds):
        return await work


async def apply_in_time(store: Any, operations: Sequence[Operation]) -> list[Outcome]:
    loop = asyncio.get_running_loop()
    started = loop.time()
    outcomes = await within(store.apply(operations, Budget(started + PATIENCE_S)), PATIENCE_S + BUSY_S)
    return list(outcomes)


async def state(store: Any, tool: Any) -> list[Any]:
    """Return the value in Redis for each of the writes, without its random suffix."""
    names = [f"{store.spec.options.prefix}{operation.key}" for operation in WRITES]
    return [None if raw is None else raw.rstrip() for raw in await tool.mget(names)]


def failed(outcome: Outcome) -> bool:
    return isinstance(outcome, StoreUnavailable | DeadlineExceeded) and outcome.retriable


FAULTS: dict[str, Callable[[FaultProxy], None]] = {
    "cut": FaultProxy.cut,
    "hang": FaultProxy.hang,
    "garbage": FaultProxy.garbage,
    "slow": lambda proxy: proxy.delay(2 * BUSY_S),
    "answer lost": FaultProxy.answer_lost,
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_outcomes_are_true_and_in_time_and_it_recovers(
    fault: str, proxy: FaultProxy, store: Any, tool: Any
) -> None:
    before = await state(store, tool)
    FAULTS[fault](proxy)
    for _ in range(3):
        for operations in ([Get("kept")], [Get(f"{index}") for index in range(100)]):
            outcomes = await apply_in_time(store, operations)
            assert all(failed(outcome) for outcome in outcomes), outcomes
            assert {outcome.applied for outcome in outcomes if isinstance(outcome, TableError)} == {"no"}
    outcomes = await apply_in_time(store, WRITES)
    assert all(failed(outcome) for outcome in outcomes), outcomes
    if fault == "hang":
        proxy.cut()  # The proxy drops the delayed data instead of forwarding it later.
    after = await state(store, tool)
    for outcome, was, now in zip(outcomes, before, after, strict=True):
        assert isinstance(outcome, TableError)
        assert outcome.applied == "unknown" or was == now
    if fault in ("slow", "answer lost"):
        async with asyncio.timeout(WAIT_MAX_S):  # a busy machine may reach the deadline before it sends
            while await state(store, tool) == before:
                assert all(failed(outcome) for outcome in await apply_in_time(store, WRITES))
    with pytest.raises((StoreUnavailable, TimeoutError)):
        await within(store.scan(Scan(10)), PATIENCE_S)
    proxy.forward()
    assert await value(store, "kept") == {"n": 1}
    assert not any(isinstance(outcome, TableError) for outcome in await store.apply(WRITES[:-1]))
    assert await value(store, "tokened") == {"n": 1}
    await eventually(lambda: proxy.open_connections <= 8)


async def test_a_lost_response_makes_the_outcome_unknown(proxy: FaultProxy, store: Any) -> None:
    writes: list[Operation] = [put("put", {"n": 1}), Delete("delete")]
    for index, write in enumerate(writes):
        proxy.answer_lost(once=True)
        outcome = await one(store, write)
        assert isinstance(outcome, StoreUnavailable)
        assert outcome.applied == "unknown"
        found = await one(store, Get(write.key))
        assert isinstance(found, Record) == (index == 0)


async def test_a_write_that_carries_a_token_can_be_sent_again(proxy: FaultProxy, store: Any) -> None:
    increment = update("counted", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 1))
    await written(store, update("counted", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 0)))
    proxy.answer_lost(once=True)
    assert isinstance(await one(store, increment), TableError)
    await written(store, increment)
    assert await value(store, "counted") == {"n": 2}


async def test_responses_are_never_assigned_to_another_request(proxy: FaultProxy, store: Any) -> None:
    await store.apply([put(f"{index}", {"n": index}) for index in range(200)])
    loop = asyncio.get_running_loop()

    async def reader(index: int, seconds: float) -> None:
        outcome = (await store.apply([Get(f"{index}")], Budget(loop.time() + seconds)))[0]
        assert isinstance(outcome, TableError) or outcome.value == b'{"n":%d}' % index

    for turn in range(6):
        if turn % 2:
            proxy.delay(0.03)
        else:
            proxy.hang()
        hurried = [asyncio.create_task(reader(index, 0.01 + index % 7 / 100)) for index in range(100)]
        await asyncio.sleep(0.02)
        for task in hurried[::3]:
            task.cancel()
        await asyncio.wait(hurried)
        assert not [task.exception() for task in hurried if not task.cancelled() and task.exception()]
        proxy.forward()
        await asyncio.gather(*(reader(index, 5) for index in range(200)))
    await eventually(lambda: proxy.open_connections <= 8)


async def test_cancelled_callers_do_not_corrupt_connections(proxy: FaultProxy, store: Any) -> None:
    proxy.delay(0.02)
    for _ in range(5):
        tasks = [asyncio.create_task(store.apply([put(f"{index}", {"n": index}), Get("kept")])) for index in range(20)]
        tasks += [asyncio.create_task(store.scan(Scan(3))), asyncio.create_task(store.splits(3))]
        await asyncio.sleep(0.03)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    proxy.forward()
    assert (await record(store, "kept")).value == b'{"n":1}'
    await eventually(lambda: proxy.open_connections <= 8)
    assert {key for page in await pages(store, Scan(5)) for key, _ in page.records} >= {"kept", "update", "delete"}


async def test_a_long_write_that_the_server_does_not_read_leaves_no_connection() -> None:
    with socket.create_server((HOST, 0)) as unused:
        port = unused.getsockname()[1]
        with unopened(f"redis://{HOST}:{port}/0") as store:
            outcomes = await apply_in_time(store, [put(f"{index}", {"long": "x" * 9_000_000}) for index in range(3)])
        assert all(isinstance(outcome, DeadlineExceeded) for outcome in outcomes)
        assert "unknown" in {outcome.applied for outcome in outcomes if isinstance(outcome, TableError)}
        await eventually(lambda: port not in connected_ports())


def connected_ports() -> list[int]:
    return [found.raddr.port for found in psutil.Process().net_connections("tcp") if found.raddr]


async def test_outcomes_finished_by_the_deadline_are_kept(proxy: FaultProxy, store: Any) -> None:
    whole = Table(store, deadline_s=2.0)
    operations: list[Operation] = [Get("kept"), put("put", {"n": 1}), update("update", {"$push": {"list": 1}}, {})]
    await written(store, put("kept", {"n": 1}))
    await whole.batch(operations)  # This opens the connections and loads the scripts.
    proxy.delay(1.4)  # An update takes two round trips, which is too long.
    outcomes = await whole.batch(operations)
    assert isinstance(outcomes[0], Record)
    assert isinstance(outcomes[1], Written)
    assert isinstance(outcomes[2], DeadlineExceeded)
    assert outcomes[2].applied == "unknown"


async def test_a_server_that_is_down_at_first_is_used_later(tmp_path: Path) -> None:
    async with FaultProxy(HOST, free_port()) as proxy, connected(f"redis://{HOST}:{proxy.port}/0") as backend:
        for call in (backend.ping(), backend.store(TableSpec("t")), backend.tables()):
            with pytest.raises(StoreUnavailable):
                await within(call, 6)
        with redis(tmp_path) as url:
            proxy.server = address(url)
            await backend.ping()
            store = await backend.store(TableSpec("t", create=True))
            await written(store, put("a"))
        outcome = await one(store, put("a"))
        assert isinstance(outcome, StoreUnavailable)
        with redis(tmp_path) as url:
            proxy.server = address(url)
            assert await one(store, Get("a")) is None
            await written(store, put("a"))


async def test_a_scan_continues_after_a_restart_of_the_server(tmp_path: Path) -> None:
    keys = [f"{index:03}" for index in range(300)]
    async with FaultProxy(HOST, free_port()) as proxy, connected(f"redis://{HOST}:{proxy.port}/0") as backend:
        with redis(tmp_path, arguments=["--dir", str(tmp_path)]) as url:
            proxy.server = address(url)
            store = await backend.store(TableSpec("t"))
            await store.apply([put(key) for key in keys])
            page = await store.scan(Scan(10))
            async with Redis.from_url(url) as client:
                await client.save()
        with redis(tmp_path, arguments=["--dir", str(tmp_path)]) as url:
            proxy.server = address(url)
            await eventually(lambda: proxy.open_connections == 0)  # The first server closed them.
            met = [key for key, _ in page.records]
            for later in await pages(store, Scan(10, position=page.position)):
                met += [key for key, _ in later.records]
        assert set(met) == set(keys)
