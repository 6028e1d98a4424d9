"""Combined policies: every combination gives the same outcomes, and over a failing store no write is lost."""

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from contract import PolicyContract, Time, put, update
from support.scripted import Fault, Scripted
from support.virtual_time import in_virtual_time
from tableside.catalog import CatalogMetrics, Environment
from tableside.catalog.open_stores import OpenStore
from tableside.catalog.stack import build_stack
from tableside.catalog.table import Table
from tableside.core import updates, values
from tableside.core.errors import StoreUnavailable, TableError, Throttled
from tableside.core.operations import Delete, Get, Operation, Record, Token, Update, Written
from tableside.core.store import Policy, Store
from tableside.settings import TableSettings
from tableside.stores.memory import MemoryBackend

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


def stack_around(store: Store, options: dict[str, Any], *, remote: bool = False) -> Policy:
    """Return the outermost policy around a store."""
    backend = MemoryBackend()
    backend.single_process = not remote
    open_store = OpenStore("s", "memory", backend, Environment(CatalogMetrics(CollectorRegistry())))
    return build_stack(store, TableSettings.model_validate(options), open_store, {}).policies[0]


class TestEveryPolicyTogether(PolicyContract):
    def around(self, inner: Store, time: Time) -> Policy:
        return stack_around(inner, EVERYTHING)


async def sizes_of_calls(store: Scripted, operations: Sequence[Operation], *, remote: bool, **batch: Any) -> list[int]:
    """Apply operations of different callers together, and return the number of operations in each call of the store."""
    store.gate = asyncio.Event()
    top = stack_around(store, {"store": "s", "batch": batch} if batch else {"store": "s"}, remote=remote)
    applied = asyncio.gather(*(top.apply([operation]) for operation in operations))
    for _ in range(5):
        await asyncio.sleep(0)
    store.gate.set()
    await applied
    return [len(call) for call in store.calls]


GETS: list[Operation] = [Get(key) for key in KEYS]
KINDS = put, Delete, lambda key: update(key, {"$inc": {"n": 1}}, {})
WRITES: list[list[Operation]] = [[of_kind(key) for key in KEYS] for of_kind in KINDS]


async def test_single_gets_of_remote_stores_share_calls() -> None:
    assert await sizes_of_calls(Scripted(), GETS, remote=True) == [12]
    assert await sizes_of_calls(Scripted(), GETS, remote=True, operations_max=50) == [12]
    assert await sizes_of_calls(Scripted(), GETS, remote=False, operations_max=50) == [1] * 12


@pytest.mark.parametrize("writes", WRITES)
async def test_single_writes_share_calls_if_the_store_shares_writes(writes: list[Operation]) -> None:
    shares_writes = Scripted()
    shares_writes.writes_per_call_max = 5  # type: ignore[attr-defined]
    assert await sizes_of_calls(shares_writes, writes, remote=True) == [5, 5, 2]
    assert await sizes_of_calls(Scripted(), writes, remote=True) == [1] * 12


def failing(chance: random.Random) -> Scripted:
    """Return a store that fails, throttles and delays calls at random."""

    def fault(operation: Operation, call: int) -> Fault:
        kind = chance.random()
        if kind < 0.15:
            return Throttled("busy", retry_after_s=0.001) if kind < 0.05 else StoreUnavailable("cut before it was sent")
        lost = kind < 0.2 and not isinstance(operation, Get)
        return StoreUnavailable("the answer was lost", applied="unknown") if lost else None

    store = Scripted()
    store.fault = fault
    store.takes_s = lambda operations: 0.001 * chance.random() if chance.random() < 0.1 else 0.0
    return store


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
    both = {name: value for each in on if each in ("retry", "rate") for name, value in OPTIONS[each].items()}
    options: dict[str, Any] = {"store": "s", "read": both, "write": both}
    for name in on:
        options |= OPTIONS[name] if name not in ("retry", "rate") else {}
    seed = f"the same for {on}"
    store = stack_around(failing(random.Random(seed)), options)
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
