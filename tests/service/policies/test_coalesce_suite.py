"""Coalesce passes the shared suite with all options, and concurrent operations on one key have one order."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from prometheus_client import CollectorRegistry

from contract import PolicyContract, Time, update
from support.waiting import WAIT_MAX_S
from tableside.core import values
from tableside.core.budget import NO_DEADLINE, Budget
from tableside.core.errors import DeadlineExceeded, StoreUnavailable, TableError
from tableside.core.operations import Get, Operation, Outcome, Record, Written
from tableside.core.store import Policy, Store, TableSpec
from tableside.policies.coalesce import Coalesce
from tableside.policies.metrics import PolicyMetrics
from tableside.stores.memory import MemoryStore


class Suite(PolicyContract):
    """The contract with the options of a subclass."""

    options: ClassVar[dict[str, Any]]

    def around(self, inner: Store, time: Time) -> Policy:
        return Coalesce(inner, **self.options)


class TestOneTurn(Suite):
    options: ClassVar[dict[str, Any]] = {"operations_max": 1000, "bytes_max": 2**22, "linger_s": 0.0}


class TestSmallCalls(Suite):
    options: ClassVar[dict[str, Any]] = {"operations_max": 3, "bytes_max": 100, "linger_s": 0.0}


class TestLingering(Suite):
    options: ClassVar[dict[str, Any]] = {
        "operations_max": 400,
        "bytes_max": 2**22,
        "linger_s": 0.001,
        "metrics": PolicyMetrics(CollectorRegistry()),
    }


class TestCutOnly(Suite):
    options: ClassVar[dict[str, Any]] = {"operations_max": 7, "bytes_max": 1000, "linger_s": None}


# Concurrent callers


class Erratic(Policy):
    """A store that applies operations after a random delay, returns after another, and may fail before or after."""

    def __init__(self, chance: random.Random, *, fails: bool) -> None:
        super().__init__(MemoryStore(TableSpec("t")))
        self._chance = chance
        self._fails = fails

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
        assert len({operation.key for operation in operations}) == len(operations)
        await self._turns()
        chosen = [self._chance.random() if self._fails else 1.0 for _ in operations]
        lost = [operation for operation, how in zip(operations, chosen, strict=True) if how >= 0.1]
        outcomes = iter(await self._inner.apply(lost, budget))
        await self._turns()
        return [
            StoreUnavailable("before") if how < 0.1 else self._seen(operation, next(outcomes), how)
            for operation, how in zip(operations, chosen, strict=True)
        ]

    @staticmethod
    def _seen(operation: Operation, outcome: Outcome, how: float) -> Outcome:
        if how < 0.2 and isinstance(outcome, Written):
            return StoreUnavailable("after", applied="unknown")
        return outcome

    async def _turns(self) -> None:
        for _ in range(self._chance.choice([0, 0, 1, 3, 10])):
            await asyncio.sleep(0)


OPTIONS: list[dict[str, Any]] = [
    {"operations_max": 1000, "bytes_max": 2**20, "linger_s": 0.0},
    {"operations_max": 8, "bytes_max": 200, "linger_s": 0.0},
    {"operations_max": 4, "bytes_max": 30, "linger_s": 0.0},
    {"operations_max": 60, "bytes_max": 2**20, "linger_s": 0.0005},
]
KEYS = [f"k{index}" for index in range(12)]
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.full) for seed in (2, 3, 4))]


@pytest.mark.parametrize("options", [*OPTIONS, {**OPTIONS[1], "linger_s": None}], ids=str)
@pytest.mark.parametrize("seed", SEEDS[:3])
async def test_failures_and_cancellations_lose_and_repeat_no_write(options: dict[str, Any], seed: int) -> None:
    chance = random.Random(seed)
    store = Erratic(chance, fails=True)
    coalesce = Coalesce(store, **options)
    sure, possible = dict.fromkeys(KEYS, 0), dict.fromkeys(KEYS, 0)

    async def caller(number: int) -> None:
        keys = chance.sample(KEYS, chance.choice([1, 1, 1, 3, 12]))
        increments: list[Operation] = [update(key, {"$inc": {"n": 1}}, {"n": 0}) for key in keys]
        for _ in range(number % 40):
            await asyncio.sleep(0)
        limit_s = chance.choice([0.0, 0.0005, 0.002, 10.0, 10.0, 10.0])
        task = asyncio.create_task(coalesce.apply(increments, Budget(asyncio.get_running_loop().time() + limit_s)))
        if chance.random() < 0.2:
            for _ in range(chance.randrange(10)):
                await asyncio.sleep(0)
            task.cancel()
        [outcomes] = await asyncio.gather(task, return_exceptions=True)
        for index, key in enumerate(keys):
            outcome = None if isinstance(outcomes, BaseException) else outcomes[index]
            assert outcome is None or isinstance(outcome, (Written, StoreUnavailable, DeadlineExceeded)), outcome
            done = isinstance(outcome, Written)
            sure[key] += done
            possible[key] += done or outcome is None or (isinstance(outcome, TableError) and outcome.applied != "no")

    async with asyncio.timeout(WAIT_MAX_S):
        await asyncio.gather(*(caller(number) for number in range(400)))
        await coalesce.close()
    for key in KEYS:
        [found] = await store._inner.apply([Get(key)])
        count: Any = values.decode(found.value)["n"] if isinstance(found, Record) else 0
        assert sure[key] <= count <= possible[key]
        assert sure[key] > 0
