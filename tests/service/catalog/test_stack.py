"""Combined policies: every combination gives the same outcomes, and over a failing store no write is lost."""

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from contract import (
    same,
    update,
)
from support.naive import Naive, Sent
from support.scripted import Scripted
from support.virtual_time import in_virtual_time
from tableside.catalog.stack import StackContext, StackMetrics, build_stack
from tableside.catalog.table import Table
from tableside.core import updates, values
from tableside.core.budget import NO_DEADLINE, Budget
from tableside.core.errors import StoreUnavailable, TableError, Throttled
from tableside.core.operations import Delete, Get, Operation, Outcome, Put, Record, Token, Update, Written
from tableside.core.store import Policy, Store, TableSpec
from tableside.settings import TableSettings
from tableside.stores.memory import MemoryStore

EVERYTHING: dict[str, Any] = {
    "store": "s",
    "read": {"rate_per_s": 1e6, "timeout_s": 5, "attempts_max": 3},
    "write": {"rate_per_s": 1e6, "timeout_s": 5, "attempts_max": 3},
    "batch": {"operations_max": 100, "bytes_max": 2**20},
    "cache": {"records_max": 100, "ttl_s": 60, "absent_ttl_s": 60},
    "concurrency_max": 8,
}

OPTIONS: dict[str, dict[str, Any]] = {
    "retry": {"attempts_max": 4},
    "rate": {"rate_per_s": 20_000, "burst": 50},
    "coalesce": {"batch": {"operations_max": 16, "bytes_max": 4096}},
    "cache": {"cache": {"records_max": 20, "ttl_s": 60, "absent_ttl_s": 60}},
    "bulkhead": {"concurrency_max": 2},
}

WRITERS = 8
KEYS = [f"k{index}" for index in range(12)]


def around(registry: CollectorRegistry) -> StackContext:
    return StackContext(StackMetrics(registry), remote=False)


def stacked(store: Store, options: dict[str, Any], registry: CollectorRegistry | None = None) -> Policy:
    settings = TableSettings.model_validate(options)
    return build_stack(store, settings, around(registry or CollectorRegistry())).policies[0]


@pytest.mark.parametrize(
    ("batch", "remote", "shares"),
    [
        ({}, True, True),
        ({"batch": {"operations_max": 50}}, True, True),
        ({}, False, False),
        ({"batch": {"operations_max": 50}}, False, False),
    ],
    ids=str,
)
async def test_single_gets_of_remote_stores_share_calls(batch: dict[str, Any], remote: bool, shares: bool) -> None:
    store = Scripted()
    store.gate = asyncio.Event()
    context = StackContext(StackMetrics(CollectorRegistry()), remote=remote)
    top = build_stack(store, TableSettings.model_validate({"store": "s", **batch}), context).top
    gets = asyncio.gather(*(top.apply([Get(key)]) for key in KEYS))
    for _ in range(5):
        await asyncio.sleep(0)
    store.gate.set()
    assert await gets == [[None]] * len(KEYS)
    assert len(store.calls) == (1 if shares else len(KEYS))


@pytest.mark.parametrize("share", [True, False])
async def test_single_updates_share_calls_if_the_store_shares_updates(share: bool) -> None:
    store = Scripted()
    if share:
        store.updates_per_call_max = 5  # type: ignore[attr-defined]  # makes it a SharesUpdates
    store.gate = asyncio.Event()
    context = StackContext(StackMetrics(CollectorRegistry()), remote=True)
    settings = TableSettings.model_validate({"store": "s"})
    top = build_stack(store, settings, context).top
    increments = asyncio.gather(*(top.apply([update(key, {"$inc": {"n": 1}}, {})]) for key in KEYS))
    for _ in range(5):
        await asyncio.sleep(0)
    store.gate.set()
    await increments
    sizes = [len(call) for call in store.calls]
    assert sizes == ([5, 5, 2] if share else [1] * len(KEYS))


class Failing(Policy):
    """A store that fails, throttles and delays calls at random."""

    def __init__(self, inner: Store, chance: random.Random) -> None:
        super().__init__(inner)
        self.chance = chance

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
        if self.chance.random() < 0.1:
            await asyncio.sleep(0.001 * self.chance.random())
        kinds = [self.chance.random() for _ in operations]
        done = [one for one, kind in zip(operations, kinds, strict=True) if kind > 0.15]
        outcomes = iter(await self._inner.apply(done, budget))
        return [
            self._refused(one, kind) if kind <= 0.15 else self._outcome_or_lost(one, kind, next(outcomes))
            for one, kind in zip(operations, kinds, strict=True)
        ]

    def _refused(self, operation: Operation, kind: float) -> TableError:
        return Throttled("busy", retry_after_s=0.001) if kind < 0.05 else StoreUnavailable("cut before it was sent")

    def _outcome_or_lost(self, operation: Operation, kind: float, outcome: Outcome) -> Outcome:
        lost = kind < 0.2 and not isinstance(operation, Get)
        return StoreUnavailable("the answer was lost", applied="unknown") if lost else outcome


@pytest.mark.parametrize(
    "on",
    [
        pytest.param(on, marks=pytest.mark.full if count in (3, 4) else ())
        for count in range(6)
        for on in itertools.combinations(OPTIONS, count)
    ],
    ids=lambda on: "+".join(on) or "none",
)
@in_virtual_time
async def test_over_a_failing_store_each_write_counts_once(on: tuple[str, ...], full: bool) -> None:
    writes = 64 if full else 32
    options: dict[str, Any] = {"store": "s"}
    for name in on:
        both = name in ("retry", "rate")
        more = (
            {side: {**options.get(side, {}), **OPTIONS[name]} for side in ("read", "write")} if both else OPTIONS[name]
        )
        options |= more
    seed = f"the same for {on}"
    store = stacked(Failing(MemoryStore(TableSpec("t")), random.Random(seed)), options)
    table = Table(store, deadline_s=30)
    created = await asyncio.gather(*(count(table, writer, planned(seed, writer, writes)) for writer in range(WRITERS)))
    await store.close()
    wanted: dict[str, int] = {}
    for writer in range(WRITERS):
        for key in planned(seed, writer, writes):
            wanted[key] = wanted.get(key, 0) + 1
    assert sum(wanted.values()) == WRITERS * writes
    found = {key: await gotten(table, key) for key in wanted}
    assert {key: record["n"] for key, record in found.items()} == wanted
    assert all(record["from"] == "the default" for record in found.values())
    assert sum(created) <= len(wanted)


def planned(seed: str, writer: int, writes: int) -> list[str]:
    chance = random.Random(f"{seed} {writer}")
    return [chance.choice(KEYS) for _ in range(writes)]


async def count(table: Table, writer: int, keys: list[str]) -> int:
    """Increment these keys, and retry each write until it is acknowledged. Return how often a default was used."""
    created = 0
    for sequence, key in enumerate(keys):
        default = values.encode({"n": 0, "from": "the default"})
        update = Update(key, updates.parse({"$inc": {"n": 1}}), default, token=Token(f"w{writer}", sequence))
        created += (await acknowledged(table, update)).created
        before = (await gotten(table, key))["n"]
        assert before >= 1
    return created


async def acknowledged(table: Table, operation: Operation) -> Written:
    while True:
        outcome = await table.one(operation)
        if isinstance(outcome, Written):
            return outcome
        assert isinstance(outcome, TableError), outcome
        assert outcome.retriable, outcome
        await asyncio.sleep(0)


async def gotten(table: Table, key: str) -> Any:
    while True:
        outcome = await table.one(Get(key))
        if isinstance(outcome, Record):
            return values.decode(outcome.value)
        assert isinstance(outcome, TableError), outcome
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(4))
async def test_any_combination_of_policies_gives_the_same_outcomes(seed: int) -> None:
    """Compare the outcomes of one caller's batches, over a healthy store, with those of the naive table."""
    chance = random.Random(seed)
    table, naive = Table(stacked(MemoryStore(TableSpec("t")), EVERYTHING)), Naive(None)
    for _ in range(60):
        batch = [operation(chance) for _ in range(chance.choice([1, 3, 30]))]
        answers = await table.batch([asked.operation for asked in batch])
        for asked, answer in zip(batch, answers, strict=True):
            wanted = naive.do(asked, 0)
            code = "found" if isinstance(answer, Record) else "absent" if answer is None else "done"
            assert (answer.code if isinstance(answer, TableError) else code) == wanted.code
            if isinstance(answer, Record):
                assert same(values.decode(answer.value), wanted.value)


def operation(chance: random.Random) -> Sent:
    key, value = chance.choice(KEYS), {"n": chance.randrange(100)}
    match chance.randrange(5):
        case 0 | 1:
            return Sent(Get(key))
        case 2:
            return Sent(Put(key, values.encode(value), if_absent=chance.random() < 0.3), value)
        case 3:
            return Sent(Delete(key))
        case _:
            default = {"n": 0} if chance.random() < 0.5 else None
            text = None if default is None else values.encode(default)
            document = {"update": {"$inc": {"n": 1}}, "default": default}
            return Sent(Update(key, updates.parse({"$inc": {"n": 1}}), text), document)
