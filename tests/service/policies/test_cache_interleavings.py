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
from tableside.policies.cache.channel import OnKeys
from tableside.stores.memory import MemoryStore

ROOMY = {"records_max": 100, "bytes_max": 2**20, "ttl_s": 3600.0, "absent_ttl_s": 600.0}
CONFIGURATIONS = {
    "roomy": ROOMY,
    "two records": {**ROOMY, "records_max": 2},
    "no absences": {**ROOMY, "absent_ttl_s": 0.0},
}
WRITE: ContextVar[int] = ContextVar("write")
"""The number of the write that a store call belongs to, since the cache may change the operation."""


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("replicas", [1, 2], ids=["alone", "with a channel"])
@pytest.mark.parametrize("writes", ["around", "through"])
def test_no_get_is_older_than_an_acknowledged_write_in_thousands_of_interleavings(
    configuration: str, replicas: int, writes: str, full: bool
) -> None:
    """A full run tries ten thousand of each mode."""
    seeds = 1700 if full else 120

    @in_virtual_time
    async def test() -> int:
        kept = 0
        for seed in range(seeds):
            interleaving = Interleaving(seed, replicas, {**CONFIGURATIONS[configuration], "writes": writes})
            await interleaving.run()
            kept += interleaving.read_what_was_written
        return kept

    kept = test()
    assert kept > seeds * 0.6 if writes == "through" else kept < seeds * 0.12


class Interleaving(Policy):
    """Replicas with several callers each, around a store that records the history of every key.

    The operations of a call take effect one by one, some turns of the event loop apart. The call returns some turns
    later, and sometimes its outcomes are unknown. A get has to return the last state that the same replica had
    acknowledged before, or a later one. When no operation is running any more, each replica has to return the last
    state.
    """

    def __init__(self, seed: int, replicas: int, configuration: dict[str, Any]) -> None:
        super().__init__(MemoryStore(TableSpec("t"), lambda: 0))
        self._seed = seed
        self._chance = random.Random(seed)
        self._bus = Bus(self._chance) if replicas > 1 else None
        self._replicas = [Replica(self, configuration, self._bus) for _ in range(replicas)]
        self._keys = "ab" if seed % 2 else "abc"
        self._states: dict[Key, list[bytes | None]] = {key: [None] for key in self._keys}
        self._effective: dict[int, int] = {}  # for each write, the index of the state that it produced
        self._numbers = itertools.count()
        self._calls = 0
        self.read_what_was_written = 0
        """The number of gets immediately after a write that did not call the store."""

    async def run(self) -> None:
        tasks = [
            asyncio.create_task(self._caller(replica, number))
            for replica in self._replicas
            for number in range(3 if len(self._replicas) == 1 else 2)
        ]
        if self._chance.random() < 0.2:
            tasks.append(asyncio.create_task(self._swap(self._replicas[0])))
        if self._chance.random() < 0.3:
            await self.turns()
            self._chance.choice(tasks[:2]).cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() or task.result() is None for task in tasks)
        if self._bus is not None:
            await self._bus.silent()
        for replica in self._replicas:
            for key in self._keys:
                [found] = await replica.cache.apply([Get(key)])
                assert value_of(found) == self._states[key][-1] or isinstance(found, TableError), self._seed
            assert not replica.cache._loads
            assert not replica.cache._writes._in_flight
            assert not replica.cache._writes._contested

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
        self._calls += 1
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

    async def _caller(self, replica: "Replica", number: int) -> None:
        for turn in range(2):
            key = self._chance.choice(self._keys)
            value = {"caller": f"{self._replicas.index(replica)}.{number}", "turn": turn}
            match self._chance.randrange(9):
                case 0 | 1:
                    await self._write(replica, put(key, value, returning=self._chance.random() < 0.5))
                case 2:
                    await self._write(replica, Delete(key))
                case 3:
                    await self._write(replica, put(key, value), *(Get(k) for k in self._keys))
                case 4:
                    await self._write(replica, update(key, {"$set": value}, {}))
                case 5:
                    token = Token("w", self._chance.randrange(3))
                    await self._write(replica, put(key, value, token=token))
                case _:
                    await self._get(replica, key)

    async def _swap(self, replica: "Replica") -> None:
        """Suspend the cache for a while and write without it, as while policies are being replaced."""
        await self.turns()
        replica.cache.suspend()
        for turn in range(2):
            key = self._chance.choice(self._keys)
            await self._write(replica, put(key, {"round": turn}), by=self.apply)
        replica.cache.resume()

    async def _get(self, replica: "Replica", key: Key) -> None:
        acknowledged = replica.acknowledged.get(key, 0)
        [outcome] = await replica.cache.apply([Get(key)])
        self._check(key, acknowledged, outcome)

    async def _write(
        self,
        replica: "Replica",
        write: Operation,
        *gets: Operation,
        by: Callable[[Sequence[Operation]], Any] | None = None,
    ) -> None:
        gets = tuple(get for get in gets if get.key != write.key)
        before = dict(replica.acknowledged)
        number = next(self._numbers)
        WRITE.set(number)
        written, *found = await (by or replica.cache.apply)([write, *gets])
        if by is not None and self._bus is not None:
            self._bus.publish(replica.cache._subscription, [write.key])
        if isinstance(written, Written):
            assert (written.value is None) or getattr(write, "returning", False)
            last = max(replica.acknowledged.get(write.key, 0), self._effective[number])
            replica.acknowledged[write.key] = last
            calls = self._calls
            await self._get(replica, write.key)
            self.read_what_was_written += calls == self._calls
        for get, outcome in zip(gets, found, strict=True):
            self._check(get.key, before.get(get.key, 0), outcome)

    def _check(self, key: Key, acknowledged: int, outcome: Outcome) -> None:
        if not isinstance(outcome, TableError):
            legal = self._states[key][acknowledged:]
            assert value_of(outcome) in legal, f"seed {self._seed}: older than an acknowledged write"


class Replica:
    """A cache, and the index of the last acknowledged state of each key."""

    def __init__(self, store: Interleaving, configuration: dict[str, Any], bus: Any) -> None:
        self.cache = Cache(store, clock=lambda: 0, monotonic=lambda: 0.0, channel=bus, **configuration)
        self.acknowledged: dict[Key, int] = {}


class Bus:
    """A channel that delays each message, and sometimes loses messages and reports the loss later."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._members: list[BusMember] = []
        self._under_way: set[asyncio.Task[None]] = set()

    def subscribe(
        self, table: str, on_keys: OnKeys, on_lost: Callable[[], None], on_sent: Callable[[int], None]
    ) -> "BusMember":
        member = BusMember(self, on_keys, on_lost)
        self._members.append(member)
        return member

    def publish(self, sender: object, keys: Sequence[Key]) -> None:
        for member in self._members:
            if member is not sender:
                task = asyncio.create_task(self._deliver(member, keys))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)

    async def turns(self) -> None:
        for _ in range(int(self._chance.random() * 5)):
            await asyncio.sleep(0)

    async def silent(self) -> None:
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _deliver(self, member: "BusMember", keys: Sequence[Key]) -> None:
        await self.turns()
        if self._chance.random() < 0.1:
            await self.turns()
            member.on_lost()
        else:
            member.on_keys(keys if self._chance.random() < 0.9 else None)


class BusMember:
    def __init__(self, bus: Bus, on_keys: OnKeys, on_lost: Callable[[], None]) -> None:
        self.bus, self.on_keys, self.on_lost = bus, on_keys, on_lost

    def publish(self, keys: Sequence[Key]) -> None:
        self.bus.publish(self, keys)

    async def flushed(self, until: float) -> None:
        await self.bus.turns()

    def leave(self) -> None:
        self.bus._members.remove(self)


def value_of(outcome: Outcome) -> bytes | None:
    return outcome.value if isinstance(outcome, Record) else None
