"""Random batches compared with a naive table, on memory and RocksDB, while time passes and the store reopens."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from contract import same, scanned
from support.naive import Naive, NaiveOutcome, Sent
from tableside.catalog.table import Table
from tableside.core import updates, values
from tableside.core.backend import Backend
from tableside.core.errors import InvalidOperation, TableError
from tableside.core.operations import Delete, Get, Operation, Outcome, Put, Record, Token, Update, Written
from tableside.core.store import TableSpec
from tableside.stores.memory import MemoryBackend
from tableside.stores.rocksdb import RocksdbBackend, RocksdbSettings

Result = TypeVar("Result")

KEYS = ["a", "b", "a/b", "ü"]

names = st.sampled_from(["x", "x", "y", "z", 'it\'s "#x"'])
edges = [2**63 - 1, -(2**63), 2**53 + 1, 1e100, -2.5e-100, 1e-7]
scalars = st.none() | st.booleans() | st.sampled_from([0, 1, -1, 7, 0.5, -1.5, *edges, "", "s", "ü\n"])
members = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2), max_leaves=3
)
objects = st.dictionaries(names, members, max_size=3)
paths = st.lists(names, min_size=1, max_size=2).map(".".join)
elements = members | st.builds(lambda each: {"$each": each}, st.lists(members, max_size=2))
numbers = st.sampled_from([1, -1, 5, 0.5, 2**62])
operators: dict[str, st.SearchStrategy[Any]] = {
    "$set": st.dictionaries(paths, members, min_size=1, max_size=2),
    "$unset": st.lists(paths, min_size=1, max_size=2, unique=True),
    "$inc": st.dictionaries(paths, numbers, min_size=1, max_size=2),
    "$min": st.dictionaries(paths, numbers | st.sampled_from(["s", "u"]), min_size=1, max_size=2),
    "$max": st.dictionaries(paths, numbers | st.sampled_from(["s", "u"]), min_size=1, max_size=2),
    "$push": st.dictionaries(paths, elements, min_size=1, max_size=1),
    "$addToSet": st.dictionaries(paths, elements, min_size=1, max_size=1),
}


def legal(document: Any) -> bool:
    with contextlib.suppress(InvalidOperation):
        updates.parse(document)
        return True
    return False


counting = st.sampled_from([{"$inc": {"x": 1}}, {"$inc": {"x": 1}, "$push": {"y": 1}}])
one_change = counting | objects | st.one_of(*(st.fixed_dictionaries({name: each}) for name, each in operators.items()))
two_operators = st.sampled_from([("$inc", "$push"), ("$set", "$unset"), ("$max", "$addToSet")]).flatmap(
    lambda pair: st.fixed_dictionaries({name: operators[name] for name in pair})
)
changes = (one_change | two_operators | st.lists(one_change, max_size=3)).filter(legal)

keys = st.sampled_from(KEYS)
etags = st.none() | st.none() | st.sampled_from(["current", "older", "*", "bogus"])
ttls = st.sampled_from([None, None, None, -1, 1, 30, 100])
tokens = st.none() | st.builds(Token, st.sampled_from([f"w{index}" for index in range(10)]), st.integers(0, 4))
flags = st.sampled_from([False, False, True])
rarely = st.integers(0, 19).map(lambda number: number == 0)
orders = st.integers(1, 6) | st.sampled_from([-(2**63), 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1])
flat = st.dictionaries(names, scalars | st.lists(members, max_size=2), max_size=3)
operands = {"$set": st.dictionaries(names, members, max_size=2), "$unset": st.lists(names, max_size=2, unique=True)}
one_ordered = flat | st.one_of(*(st.fixed_dictionaries({name: each}) for name, each in operands.items()))
ordered_changes = (one_ordered | st.lists(one_ordered, max_size=2)).filter(legal)


@st.composite
def operations(draw: st.DrawFn) -> tuple[Sent, str | None]:
    """Generate an operation and the etag that it requires, which is resolved only when the operation is sent."""
    key, etag = draw(keys), draw(etags)
    kind = draw(
        st.sampled_from(["get", "put", "plain update", "update", "update", "delete", "forget", *["ordered"] * 5])
    )
    match kind:
        case "get":
            return Sent(Get(key)), None
        case "put":
            value, absent = draw(objects), etag is None and draw(flags)
            put = Put(key, values.encode(value), None, absent, draw(ttls), draw(tokens), draw(flags))
            return Sent(put, value), etag
        case "plain update":
            document = {"update": draw(changes), "default": draw(st.none() | objects)}
            return Sent(updating(key, document), document), None
        case "update":
            document = {"update": draw(changes), "default": draw(st.none() | objects)}
            update = updating(key, document, ttl_s=draw(ttls), token=draw(tokens), returning=draw(flags))
            return Sent(update, document), etag
        case "forget":
            return Sent(Delete(key, forget=draw(flags))), None
        case "ordered":
            return draw(ordered(key)), etag if draw(rarely) else None
        case _:
            return Sent(Delete(key, None, draw(tokens))), etag


@st.composite
def ordered(draw: st.DrawFn, key: str) -> Sent:
    """Generate a write with an order. A few of them cannot have one."""
    token, order = draw(tokens) if draw(flags) else None, draw(orders)
    kind = draw(st.sampled_from(["put", "put", "update", "update", "update", "delete"]))
    if kind == "delete":
        return Sent(Delete(key, None, token, order))
    rest: dict[str, Any] = {"ttl_s": draw(ttls), "token": token, "returning": draw(flags), "order": order}
    if kind == "put":
        value = draw(objects)
        return Sent(Put(key, values.encode(value), if_absent=draw(rarely), **rest), value)
    document = {
        "update": draw(changes if draw(rarely) else ordered_changes),
        "default": draw(objects) if draw(rarely) else None,
    }
    return Sent(updating(key, document, **rest), document)


def updating(key: str, document: dict[str, Any], **rest: Any) -> Update:
    default = None if document["default"] is None else values.encode(document["default"])
    return Update(key, updates.parse(document["update"]), default, **rest)


def as_naive(outcome: Outcome) -> NaiveOutcome:
    """Return an outcome in the terms of the naive table."""
    match outcome:
        case None:
            return NaiveOutcome("absent")
        case Record(value, _, expires_ms):
            return NaiveOutcome("found", values.decode(value), until_ms=expires_ms or None)
        case Written(etag, created, replayed, value, _, superseded):
            returned = None if value is None else values.decode(value)
            return NaiveOutcome("done", returned, created, replayed, superseded, etag is not None)
        case TableError():
            assert outcome.applied == "no"
            return NaiveOutcome(outcome.code)


class Machine(RuleBasedStateMachine):
    """Sends random batches to a table in memory and to the naive table, and compares the outcomes."""

    clock_error_ms = 0
    """The maximum difference between the test's clock and that of the store."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = Path(tempfile.mkdtemp())
        self.now = 1_700_000_000_000
        self.seen: dict[str, list[str]] = {key: [] for key in KEYS}

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)

    async def opened(self) -> Backend:
        return MemoryBackend(lambda: self.now)

    @initialize(ttl_s=st.sampled_from([None, None, 50.0]))
    def start(self, ttl_s: float | None) -> None:
        self.naive = Naive(ttl_s)
        self.spec = TableSpec("t", ttl_s=ttl_s)
        self.backend = self.run(self.opened())
        self.table = Table(self.run(self.backend.store(self.spec)))

    @rule(batch=st.lists(operations(), min_size=1, max_size=12))
    def batch(self, batch: list[tuple[Sent, str | None]]) -> None:
        sent = [self.with_etag(self.adapted(asked), etag) for asked, etag in batch]
        answers = self.run(self.table.batch([asked.operation for asked in sent]))
        for asked, answer in zip(sent, answers, strict=True):
            found, wanted = as_naive(answer), self.naive.do(asked, self.now)
            assert replace(found, value=None, until_ms=None) == replace(wanted, value=None, until_ms=None), asked
            assert abs((found.until_ms or 0) - (wanted.until_ms or 0)) <= self.clock_error_ms, asked
            assert same(found.value, wanted.value), asked
            if isinstance(answer, Written) and answer.etag is not None:
                self.seen[str(asked.operation.key)].append(answer.etag)

    def adapted(self, asked: Sent) -> Sent:
        """Return an operation as this store can execute it in a test."""
        return asked

    @rule(key=keys, document=changes, count=st.integers(2, 40))
    def the_same_update_many_times_at_once(self, key: str, document: Any, count: int) -> None:
        asked = Sent(updating(key, {"update": document, "default": {}}), {"update": document, "default": {}})

        async def together() -> list[Outcome]:
            return await asyncio.gather(*(self.table.one(asked.operation) for _ in range(count)))

        answers = sorted(repr(as_naive(answer)) for answer in self.run(together()))
        assert answers == sorted(repr(self.naive.do(asked, self.now)) for _ in range(count))

    @rule(seconds=st.sampled_from([1, 29, 49, 100, 23 * 3600, 24 * 3600, 6 * 86400]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * 1000

    @invariant()
    def records_are_the_same(self) -> None:
        if not hasattr(self, "table"):
            return
        wanted = self.naive.records(self.now)
        for key, answer in zip(KEYS, self.run(self.table.batch([Get(key) for key in KEYS])), strict=True):
            assert isinstance(answer, Record) == (key in wanted)
            if isinstance(answer, Record):
                assert same(values.decode(answer.value), wanted[key])
                self.naive.held[key] = replace(self.naive.held[key], version=answer.etag)
                self.seen[key].append(answer.etag)
        scan: Any = scanned(cast("Any", self.table), limit=100)  # a page may end early
        met = [str(key) for key in self.run(scan)]
        assert (met if self.table.capabilities.sorted_scan else sorted(met)) == sorted(wanted)

    def with_etag(self, asked: Sent, etag: str | None) -> Sent:
        operation: Operation = asked.operation
        if etag is None or isinstance(operation, Get):
            return asked
        held, older = self.naive.held.get(operation.key), self.seen[str(operation.key)]
        current = held.version if held is not None and held.value is not None else "none"
        chosen = {
            "current": (current,),
            "older": (older[len(older) // 2],) if older else ("none",),
            "*": ("*",),
            "bogus": ("bogus", f"{current}.0"),
        }[etag]
        rest: dict[str, Any] = {name: getattr(operation, name) for name in operation.__struct_fields__}
        return replace(asked, operation=type(operation)(**{**rest, "if_match": chosen}))

    def teardown(self) -> None:
        if hasattr(self, "backend"):
            self.run(self.backend.close())
        self.loop.close()
        shutil.rmtree(self.directory)


class RocksdbMachine(Machine):
    """RocksDB, which is sometimes closed and reopened."""

    async def opened(self) -> Backend:
        settings = RocksdbSettings(path=str(self.directory), sweep_every_s=0.01)
        return await RocksdbBackend.open(settings, lambda: self.now)

    @precondition(lambda self: hasattr(self, "backend"))
    @rule()
    def reopen(self) -> None:
        self.run(self.backend.close())
        self.backend = self.run(self.opened())
        self.table = Table(self.run(self.backend.store(self.spec)))


@pytest.mark.parametrize(("machine", "examples"), [(Machine, 20), (RocksdbMachine, 7)])
def test_a_store_equals_the_naive_table(machine: type[Machine], examples: int, full: bool) -> None:
    check(machine, 3 * examples if full else examples, steps=30)


def check(machine: type[Machine], examples: int, steps: int) -> None:
    bounds = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=bounds)
