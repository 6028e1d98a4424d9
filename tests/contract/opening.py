"""Fixtures of the store contract: open a store and control its clock."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest

from tableside.core.keys import KeySchema
from tableside.core.store import DELETE_MEMORY_S, Store, TableSpec, now_ms

from .words import STRINGS

Open = Callable[..., Awaitable[Store]]
"""Opens the store of a table: `await open_store()`, `await open_store(key=INTEGERS, ttl_s=60)`."""


class Time:
    """A clock that only tests advance, or the real clock for stores whose clock cannot be set."""

    def __init__(self, *, real: bool) -> None:
        self._real = real
        self._now_ms = 1_700_000_000_000
        self._owed_s = 0.0

    def now_ms(self) -> int:
        return now_ms() if self._real else self._now_ms

    @property
    def short_s(self) -> float:
        """A short time to live: one second if the clock can be set, because some stores count in seconds."""
        return 0.3 if self._real else 1.0

    async def passes_within_lifetime(self, seconds: float) -> None:
        """Let time pass within a record's lifetime. With a real clock, the next `passes` makes up for most of it."""
        if self._real:
            self._owed_s += seconds
            await asyncio.sleep(0.02)
        else:
            await self.passes(seconds)

    async def passes(self, seconds: float) -> None:
        if not self._real:
            self._now_ms += round(seconds * 1000)
        elif seconds > 5:
            pytest.skip("the store's clock cannot be set, and the time is too long to wait for")
        else:
            await asyncio.sleep(self._owed_s + seconds + 0.1)
            self._owed_s = 0.0


def needs(store: Store, *capabilities: str) -> None:
    for name in capabilities:
        if not getattr(store.capabilities, name):
            pytest.skip(f"the store has no {name}")


NEEDED = {"Preconditions": ["if_match"], "Expiry": ["ttl"], "Tokens": ["tokens"], "Orders": ["tokens"]}
"""The capabilities that a store needs for a part of the contract."""


class Opens(ABC):
    """Open a store. Base class of all parts of the contract."""

    clock_can_be_set = True
    splits_have_several_parts = True
    """Whether the store divides a table of a thousand records into several splits on request."""
    partitions_are_sorted = True
    """Whether a scan of one partition of a composite key is in sort order."""
    key_parts_max = 8

    @abstractmethod
    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        """Return an empty store. Leaving the context closes it."""

    @pytest.fixture
    def time(self) -> Time:
        return Time(real=not self.clock_can_be_set)

    @pytest.fixture
    async def open_store(self, time: Time, tmp_path: Path) -> AsyncIterator[Open]:
        async with AsyncExitStack() as stack:

            async def open_one(
                key: KeySchema = STRINGS, ttl_s: float | None = None, delete_memory_s: float = DELETE_MEMORY_S
            ) -> Store:
                spec = TableSpec("t", key, None, ttl_s, delete_memory_s=delete_memory_s)
                return await stack.enter_async_context(self.opened(spec, time, tmp_path))

            yield open_one

    @pytest.fixture
    async def store(self, open_store: Open, request: pytest.FixtureRequest) -> Store:
        """A store with the capabilities that this part of the contract tests."""
        store = await open_store()
        part = request.function.__qualname__.partition(".")[0]
        needs(store, *NEEDED.get(part, ()))
        return store
