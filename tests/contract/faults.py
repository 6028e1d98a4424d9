"""Contract tests for stores on a server: outcomes while the network fails, and recovery without intervention."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager

import pytest

from servers.proxy import FaultProxy
from support.waiting import WAIT_MAX_S, eventually
from tableside.core import values
from tableside.core.budget import Budget
from tableside.core.errors import DeadlineExceeded, StoreUnavailable, TableError
from tableside.core.operations import Delete, Get, Operation, Outcome, Record, Token
from tableside.core.store import Scan, Store

from .words import pages, put, update, value, written

PATIENCE_S = 0.5
BUSY_S = 10.0
"""How late a busy machine may notice a deadline. Faults last longer."""

CONNECTIONS_MAX = 8

WRITES: list[Operation] = [
    put("put", {"n": 1}),
    Delete("delete"),
    update("update", {"$inc": {"n": 1}}, {"n": 0}),
    update("plain", {"n": 1}, {"n": 0}),
    update("tokened", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 1)),
    put("absent", {}, if_absent=True),
]
MANY: list[Operation] = [put(f"many {index}", {"n": index}) for index in range(60)]

FAULTS: dict[str, Callable[[FaultProxy], None]] = {
    "cut": FaultProxy.cut,
    "hang": FaultProxy.hang,
    "garbage": FaultProxy.garbage,
    "slow": lambda proxy: proxy.delay(2 * BUSY_S),
    "answer lost": FaultProxy.answer_lost,
}


async def apply_in_time(store: Store, operations: Sequence[Operation]) -> Sequence[Outcome]:
    async with asyncio.timeout(PATIENCE_S + BUSY_S):
        return await store.apply(operations, Budget(time.monotonic() + PATIENCE_S))


async def failures(store: Store, operations: Sequence[Operation]) -> list[TableError]:
    """Apply operations that all fail because of the network, and return their outcomes."""
    outcomes = await apply_in_time(store, operations)
    failed: list[TableError] = [
        outcome for outcome in outcomes if isinstance(outcome, StoreUnavailable | DeadlineExceeded)
    ]
    assert len(failed) == len(operations), outcomes
    return failed


async def stored(store: Store, operations: Sequence[Operation]) -> list[bytes | None]:
    outcomes = await store.apply([Get(operation.key) for operation in operations])
    return [outcome.value if isinstance(outcome, Record) else None for outcome in outcomes]


class Faults(ABC):
    """A store behind a proxy. A subclass sets the server's URL in a fixture."""

    url: str

    @abstractmethod
    def opened(self, url: str, connections_max: int) -> AbstractAsyncContextManager[Store]:
        """Open a table, the same at each call of one test."""

    @pytest.fixture
    async def proxy(self) -> AsyncIterator[FaultProxy]:
        async with FaultProxy.before(self.url) as proxy:
            yield proxy

    @pytest.fixture
    async def direct(self) -> AsyncIterator[Store]:
        """The table without the proxy."""
        async with self.opened(self.url, CONNECTIONS_MAX) as store:
            yield store

    @pytest.fixture
    async def store(self, proxy: FaultProxy, direct: Store) -> AsyncIterator[Store]:
        """The table behind the proxy, with connections that have been used."""
        async with self.opened(proxy.through(self.url), CONNECTIONS_MAX) as store:
            await store.apply([put("delete"), put("kept", {"n": 1}), put("update", {"n": 1}), put("plain")])
            yield store

    @pytest.mark.parametrize("fault", FAULTS)
    async def test_outcomes_are_true_and_in_time_and_it_recovers(
        self, fault: str, proxy: FaultProxy, store: Store, direct: Store
    ) -> None:
        writes = WRITES + MANY
        before = await stored(direct, writes)
        FAULTS[fault](proxy)
        for reads in ([Get("kept")], [Get(f"{index}") for index in range(250)]):
            assert {outcome.applied for outcome in await failures(store, reads)} == {"no"}
        outcomes = await failures(store, WRITES) + await failures(store, MANY)
        assert fault == "garbage" or all(outcome.retriable for outcome in outcomes)  # it may look like another server
        if fault == "hang":
            proxy.cut()  # The proxy drops the delayed data instead of forwarding it later.
        await asyncio.sleep(0.1)
        for outcome, was, now in zip(outcomes, before, await stored(direct, writes), strict=True):
            assert outcome.applied == "unknown" or was == now
        with pytest.raises((StoreUnavailable, TimeoutError)):
            async with asyncio.timeout(PATIENCE_S):
                await store.scan(Scan(10))
        proxy.forward()
        await self.recovers(store)
        assert await value(store, "tokened") == {"n": 1}
        await eventually(lambda: proxy.open_connections <= CONNECTIONS_MAX)

    async def recovers(self, store: Store) -> None:
        """Repeat operations until they succeed: a connection that the fault broke may fail one of them once more."""
        left = [Get("kept"), *WRITES[:-1]]
        async with asyncio.timeout(WAIT_MAX_S):
            while left:
                outcomes = await store.apply(left)
                left = [each for each, told in zip(left, outcomes, strict=True) if isinstance(told, TableError)]

    async def test_a_write_that_carries_a_token_can_be_sent_again(self, proxy: FaultProxy, store: Store) -> None:
        increment = update("counted", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 1))
        for fault in (proxy.answer_lost, proxy.cut, proxy.garbage):
            fault()
            await failures(store, [increment])
        proxy.forward()
        await self.recovers(store)
        await written(store, increment)
        assert await value(store, "counted") == {"n": 1}

    async def test_late_and_cancelled_callers_leave_usable_connections_and_no_response_to_others(
        self, proxy: FaultProxy, store: Store
    ) -> None:
        keys = [f"{index}" for index in range(100)]
        await store.apply([put(key, {"n": key}) for key in keys])

        async def read(key: str, seconds: float) -> None:
            [outcome] = await store.apply([Get(key)], Budget(time.monotonic() + seconds))
            assert isinstance(outcome, TableError | Record)
            assert isinstance(outcome, TableError) or values.decode(outcome.value) == {"n": key}

        for turn in range(6):
            if turn % 2:
                proxy.delay(0.03)
            else:
                proxy.hang()
            hurried: list[asyncio.Task[object]] = [
                asyncio.create_task(store.scan(Scan(3))),
                *(asyncio.create_task(read(key, 0.01 + index % 7 / 100)) for index, key in enumerate(keys)),
            ]
            await asyncio.sleep(0.02)
            for task in hurried[::3]:
                task.cancel()
            await asyncio.wait(hurried)
            assert not [task.exception() for task in hurried if not task.cancelled() and task.exception()]
            proxy.forward()
            await asyncio.gather(*(read(key, BUSY_S) for key in keys))
        await self.recovers(store)
        assert {key for page in await pages(store, Scan(50)) for key, _ in page.records} >= {*keys, "kept"}
        await eventually(lambda: proxy.open_connections <= CONNECTIONS_MAX)
