"""Fixtures of the policy contract: the inner store and the policy around it."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.scripted import Divided, Scripted
from support.waiting import WAIT_MAX_S
from tableside.core.budget import NO_DEADLINE, Budget
from tableside.core.operations import Key, Operation, Outcome
from tableside.core.store import Capabilities, Page, Policy, Scan, Store, TableSpec
from tableside.stores.memory import MemoryStore

from .opening import Opens, Time
from .words import update

PATIENCE_S = WAIT_MAX_S


class Within(Scripted):
    """The inner store: it rejects calls that no policy may make, can block calls, and records its operations."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.can = inner.capabilities
        self.breaks = False
        self.open = asyncio.Event()
        self.open.set()
        self.held = 0
        """The number of blocked calls."""
        self.asked: list[Scan | int] = []
        self.closed = 0

    @property
    def capabilities(self) -> Capabilities:
        return self.can

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
        assert len({operation.key for operation in operations}) == len(operations), "a key is twice in a call"
        if self.breaks:
            raise ZeroDivisionError
        self.held += 1
        try:
            await self.open.wait()
        finally:
            self.held -= 1
        return await super().apply(operations, budget)

    async def scan(self, scan: Scan) -> Page:
        self.asked.append(scan)
        return await super().scan(scan)

    async def splits(self, count_max: int) -> list[bytes]:
        self.asked.append(count_max)
        return await super().splits(count_max)

    async def close(self) -> None:
        self.closed += 1


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0)


def increment(key: Key, **rest: Any) -> Operation:
    return update(key, {"$inc": {"n": 1}}, {"n": 0}, **rest)


class WithinPolicy(Opens):
    """Put the policy around a store. Base class of all parts of the policy contract."""

    @abstractmethod
    def around(self, inner: Store, time: Time) -> Policy:
        """Return the policy around a store. Both use the clock `time`."""

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        return self.closing(Within(MemoryStore(spec, time.now_ms)), time)

    @asynccontextmanager
    async def closing(self, within: Within, time: Time) -> AsyncIterator[Policy]:
        policy = Divided(self.around(within, time))
        yield policy
        within.open.set()
        async with asyncio.timeout(PATIENCE_S):
            await policy.close()

    @pytest.fixture
    def within(self, time: Time) -> Within:
        return Within(MemoryStore(TableSpec("t"), time.now_ms))

    @pytest.fixture
    async def policy(self, within: Within, time: Time) -> AsyncIterator[Policy]:
        async with self.closing(within, time) as policy:
            yield policy
