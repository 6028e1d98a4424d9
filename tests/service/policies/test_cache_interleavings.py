"""Concurrent slow reads and writes of few keys, in thousands of orders: no get is older than a known write."""

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from contract import put, update
from support.virtual_time import in_virtual_time
from tableside.core.budget import NO_DEADLINE, Budget
from tableside.core.errors import StoreUnavailable, TableError
from tableside.core.operations import Delete, Get, Key, Operation, Outcome, Record, Token, Written
from tableside.core.store import Policy, TableSpec
from tableside.policies.cache import Cache
from tableside.stores.memory import MemoryStore

ROOMY = {"records_max": 100, "bytes_max": 2**20, "ttl_s": 3600.0, "absent_ttl_s": 600.0}
CONFIGURATIONS = {
    "roomy": ROOMY,
    "two records": {**ROOMY, "records_max": 2},
    "no absences": {**ROOMY, "absent_ttl_s": 0.0},
}
WRITE: ContextVar[int] = ContextVar("write")
"""The number of the write that a store call belongs to."""


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_no_get_is_older_than_an_acknowledged_write_in_thousands_of_interleavings(
    configuration: str, full: bool
) -> None:
    """A full run tries ten thousand."""

    @in_virtual_time
    async def test() -> None:
        for seed in range(1700 if full else 120):
            await Interleaving(seed, CONFIGURATIONS[configuration]).run()

    test()


class Interleaving(Policy):
    """A cache with several callers, around a store that records the history of every key.

    The operations of a call take effect one by one, some turns of the event loop apart. The call returns some turns
    later, and sometimes its outcomes are unknown. A get has to return the last state that was acknowledged before, or a
    later one. When no operation is running any more, it has to return the last state.
    """

    def __init__(self, seed: int, configuration: dict[str, Any]) -> None:
        super().__init__(MemoryStore(TableSpec("t"), lambda: 0))
        self._seed = seed
        self._chance = random.Random(seed)
        self._cache = Cache(self, clock=lambda: 0, monotonic=lambda: 0.0, **configuration)
        self._acknowledged: dict[Key, int] = {}
        self._keys = "ab" if seed % 2 else "abc"
        self._states: dict[Key, list[bytes | None]] = {key: [None] for key in self._keys}
        self._effective: dict[int, int] = {}  # for each write, the index of the state that it produced
        self._numbers = itertools.count()

    async def run(self) -> None:
        tasks = [asyncio.create_task(self._caller(number)) for number in range(3)]
        if self._chance.random() < 0.2:
            tasks.append(asyncio.create_task(self._swap()))
        if self._chance.random() < 0.3:
            await self.turns()
            self._chance.choice(tasks[:2]).cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() or task.result() is None for task in tasks)
        for key in self._keys:
            [found] = await self._cache.apply([Get(key)])
            assert value_of(found) == self._states[key][-1] or isinstance(found, TableError), self._seed

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
        outcomes = list[Outcome]()
        for operation in operations:
            await self.turns()
            [outcome] = await self._inner.apply([operation], budget)
            if isinstance(outcome, Written):
                [now] = await self._inner.apply([Get(operation.key)])
                self._effective[WRITE.get()] = len(self._states[operation.key])
                self._states[operation.key].append(value_of(now))
            outcomes.append(outcome)
        await self.turns()
        if self._chance.random() < 0.1:
            return [StoreUnavailable("x", applied="unknown")] * len(operations)
        return outcomes

    async def turns(self) -> None:
        for _ in range(int(self._chance.random() * 4)):
            await asyncio.sleep(0)

    async def _caller(self, number: int) -> None:
        for turn in range(2):
            key = self._chance.choice(self._keys)
            value = {"caller": number, "turn": turn}
            match self._chance.randrange(9):
                case 0 | 1:
                    await self._write(put(key, value, returning=self._chance.random() < 0.5))
                case 2:
                    await self._write(Delete(key))
                case 3:
                    await self._write(put(key, value), *(Get(k) for k in self._keys))
                case 4:
                    await self._write(update(key, {"$set": value}, {}))
                case 5:
                    token = Token("w", self._chance.randrange(3))
                    await self._write(put(key, value, token=token))
                case _:
                    await self._get(key)

    async def _swap(self) -> None:
        """Suspend the cache for a while and write without it, as while policies are being replaced."""
        await self.turns()
        self._cache.suspend()
        for turn in range(2):
            key = self._chance.choice(self._keys)
            await self._write(put(key, {"round": turn}), by=self.apply)
        self._cache.resume()

    async def _get(self, key: Key) -> None:
        acknowledged = self._acknowledged.get(key, 0)
        [outcome] = await self._cache.apply([Get(key)])
        self._check(key, acknowledged, outcome)

    async def _write(
        self,
        write: Operation,
        *gets: Operation,
        by: Callable[[Sequence[Operation]], Any] | None = None,
    ) -> None:
        gets = tuple(get for get in gets if get.key != write.key)
        before = dict(self._acknowledged)
        number = next(self._numbers)
        WRITE.set(number)
        written, *found = await (by or self._cache.apply)([write, *gets])
        if isinstance(written, Written):
            assert (written.value is None) or getattr(write, "returning", False)
            last = max(self._acknowledged.get(write.key, 0), self._effective[number])
            self._acknowledged[write.key] = last
            await self._get(write.key)
        for get, outcome in zip(gets, found, strict=True):
            self._check(get.key, before.get(get.key, 0), outcome)

    def _check(self, key: Key, acknowledged: int, outcome: Outcome) -> None:
        if not isinstance(outcome, TableError):
            legal = self._states[key][acknowledged:]
            assert value_of(outcome) in legal, f"seed {self._seed}: older than an acknowledged write"


def value_of(outcome: Outcome) -> bytes | None:
    return outcome.value if isinstance(outcome, Record) else None
