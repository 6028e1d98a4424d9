"""What every store and every policy must pass: the promise of the seam, line by line.

A subclass says how a store is opened and inherits the tests. What a store cannot do is asked of its capabilities; a
store whose clock cannot be set says so with `clock_can_be_set = False`, and passes time by waiting for short times
and is not asked to pass long ones.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from tableside import updates, values
from tableside.errors import (
    InvalidOperation,
    PreconditionFailed,
    RecordNotFound,
    TableError,
    Unsupported,
)
from tableside.keys import KeyField, KeySchema
from tableside.operations import (
    ANY_ETAG,
    NO_EXPIRY,
    Delete,
    Get,
    Key,
    Operation,
    Outcome,
    Put,
    Record,
    Token,
    Update,
    Written,
)
from tableside.store import Page, Scan, Store, TableSpec, now_ms

STRINGS = KeySchema()
INTEGERS = KeySchema((KeyField("id", "integer"),))
COMPOSITE = KeySchema((KeyField("user", "string"), KeyField("day", "integer")))
THREE_PARTS = KeySchema((KeyField("shard", "integer"), KeyField("user", "string"), KeyField("item", "string")))

UNUSUAL_KEYS = [
    "a/b", "ü", "%", "%2F", " ", "a b ", "a?b#c", ".", "..", "x" * 1024, "ü" * 512, "🛫", "\x01", "\x7f", "\n", "'",
    '"', "\\", "*", "{}", "[", ":", "_ts", "$set", "A", "a", "null", "0", "-1", "\u2028", "\ufeff", "\U0010ffff",
]  # fmt: skip


class Time:
    """A clock that goes on only when a test says so, or for stores that ask another, the real one."""

    def __init__(self, *, real: bool) -> None:
        self._real = real
        self._now_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return now_ms() if self._real else self._now_ms

    async def passes(self, seconds: float) -> None:
        if not self._real:
            self._now_ms += round(seconds * 1000)
        elif seconds > 5:
            pytest.skip("the store's clock cannot be set, and the time is too long to wait for")
        else:
            await asyncio.sleep(seconds + 0.1)


Open = Callable[..., Awaitable[Store]]
"""Opens the store of a table: `await open_store()`, `await open_store(key=INTEGERS, ttl_s=60)`."""


# What tests say in few words


def text(**members: object) -> bytes:
    return values.encode(members)


def put(key: Key, value: dict[str, Any] | None = None, **rest: Any) -> Put:
    return Put(key, values.encode({} if value is None else value), **rest)


def update(key: Key, document: object, default: dict[str, Any] | None = None, **rest: Any) -> Update:
    return Update(key, updates.parse(document), None if default is None else values.encode(default), **rest)


async def one(store: Store, operation: Operation) -> Outcome:
    [outcome] = await store.apply([operation])
    return outcome


async def written(store: Store, operation: Operation) -> Written:
    outcome = await one(store, operation)
    assert isinstance(outcome, Written), outcome
    return outcome


async def record(store: Store, key: Key) -> Record:
    outcome = await one(store, Get(key))
    assert isinstance(outcome, Record), outcome
    return outcome


async def etag(store: Store, key: Key) -> str:
    return (await record(store, key)).etag


async def value(store: Store, key: Key) -> Any:
    return values.decode((await record(store, key)).value)


def same(one_value: object, other: object) -> bool:
    """Whether two values are the same JSON: `1`, `1.0` and `true` are three things, the order of members is nothing."""
    return orjson.dumps(one_value, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)


def refused(outcome: object, kind: type[TableError]) -> bool:
    """Whether the outcome says that the write was not done, and why."""
    assert isinstance(outcome, kind), outcome
    return outcome.applied == "no" and not outcome.retriable and bool(outcome.detail)


async def pages(store: Store, scan: Scan, pages_max: int = 10_000) -> list[Page]:
    """Go through a scan from page to page."""
    found = []
    for _ in range(pages_max):
        page = await store.scan(scan)
        found.append(page)
        if page.position is None:
            return found
        scan = msgspec.structs.replace(scan, position=page.position)
    raise AssertionError("the scan does not end")


def met_once(met: Sequence[Key], store: Store) -> list[str]:
    """Return the keys that a scan met, in order.

    Where a scan has no order it may meet a record twice, as Redis does while it rearranges what it holds.
    """
    keys = sorted(map(str, met))
    return keys if store.capabilities.sorted_scan else sorted({*keys})


async def scanned(store: Store, **scan: Any) -> list[Key]:
    """Return the keys of a scan, page by page."""
    given = Scan(**{"limit": 7, **scan})
    return [key for page in await pages(store, given) for key, _ in page.records]


def needs(store: Store, *capabilities: str) -> None:
    for name in capabilities:
        if not getattr(store.capabilities, name):
            pytest.skip(f"the store has no {name}")


NEEDED = {"Preconditions": ["if_match"], "Expiry": ["ttl"], "Tokens": ["tokens"]}
"""What a store must be able to do for a part of the contract."""


class Opens(ABC):
    """How a store is opened; what every part of the contract needs."""

    clock_can_be_set = True
    splits_have_several_parts = True
    """Whether a table of a thousand records is divided when several parts are asked for."""
    key_parts_max = 8

    @abstractmethod
    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        """Return a store with no records; it is closed with the context."""

    @pytest.fixture
    def time(self) -> Time:
        return Time(real=not self.clock_can_be_set)

    @pytest.fixture
    async def open_store(self, time: Time, tmp_path: Path) -> AsyncIterator[Open]:
        async with AsyncExitStack() as stack:

            async def open_one(key: KeySchema = STRINGS, ttl_s: float | None = None) -> Store:
                return await stack.enter_async_context(self.opened(TableSpec("t", key, None, ttl_s), time, tmp_path))

            yield open_one

    @pytest.fixture
    async def store(self, open_store: Open, request: pytest.FixtureRequest) -> Store:
        """A store that can do what the part of the contract is about."""
        store = await open_store()
        part = request.function.__qualname__.partition(".")[0]
        needs(store, *NEEDED.get(part, ()))
        return store


class Basics(Opens):
    """Promises 1, 3, 4 and 7: one outcome per operation, in order, each by itself, however many."""

    async def test_no_operations_have_no_outcomes(self, open_store: Open) -> None:
        store = await open_store()
        assert await store.apply([]) == []

    async def test_get_of_nothing_is_none(self, open_store: Open) -> None:
        store = await open_store()
        assert await one(store, Get("absent")) is None

    async def test_a_record_is_found_as_it_was_put(self, open_store: Open) -> None:
        store = await open_store()
        acknowledged = await written(store, put("a", {"n": 1, "s": "x"}))
        found = await record(store, "a")
        assert same(values.decode(found.value), {"n": 1, "s": "x"})
        assert found.etag == acknowledged.etag
        assert found.expires_ms == 0
        assert (acknowledged.created, acknowledged.replayed, acknowledged.value) == (False, False, None)

    async def test_a_put_replaces_the_whole_value(self, open_store: Open) -> None:
        store = await open_store()
        await written(store, put("a", {"x": 1, "y": {"z": 2}}))
        await written(store, put("a", {"y": {}}))
        assert same(await value(store, "a"), {"y": {}})

    async def test_an_empty_object_is_a_value(self, open_store: Open) -> None:
        store = await open_store()
        await written(store, put("a", {}))
        assert await value(store, "a") == {}

    async def test_a_deleted_record_is_absent_and_can_be_deleted_again(self, open_store: Open) -> None:
        store = await open_store()
        await written(store, put("a", {"n": 1}))
        first = await written(store, Delete("a"))
        assert (first.etag, first.created, first.replayed) == (None, False, False)
        assert await one(store, Get("a")) is None
        assert (await written(store, Delete("a"))).etag is None
        assert refused(await one(store, update("a", {"n": 2})), RecordNotFound)

    async def test_outcomes_come_in_the_order_of_operations(self, open_store: Open) -> None:
        store = await open_store()
        await store.apply([put(key, {"key": key}) for key in "fdb"])
        outcomes = await store.apply(
            [
                Get("f"),
                Get("e"),
                put("c"),
                Get("d"),
                Delete("x"),
                update("b", {"n": 1}),
                update("y", {"n": 1}),
                Get("z"),
            ]
        )
        found = [
            values.decode(outcome.value)["key"] if isinstance(outcome, Record) else outcome for outcome in outcomes
        ]
        assert found[0] == "f"
        assert found[1] is None
        assert isinstance(found[2], Written)
        assert found[3] == "d"
        assert isinstance(found[4], Written)
        assert found[4].etag is None
        assert isinstance(found[5], Written)
        assert isinstance(found[6], RecordNotFound)
        assert found[7] is None

    async def test_one_that_fails_leaves_the_others_standing(self, open_store: Open) -> None:
        store = await open_store()
        await store.apply([put("full", {"rich": "data"}), put("word", {"n": "x"})])
        outcomes = await store.apply(
            [
                update("full", {"$inc": {"n": 1}}),
                update("absent", {"$inc": {"n": 1}}),
                update("word", {"$inc": {"n": 1}}),
                put("there", {"n": 1}),
                update("new", {"$inc": {"n": 1}}, {"n": 10}),
                Get("absent"),
            ]
        )
        assert isinstance(outcomes[0], Written)
        assert refused(outcomes[1], RecordNotFound)
        assert refused(outcomes[2], InvalidOperation)
        assert isinstance(outcomes[3], Written)
        assert isinstance(outcomes[4], Written)
        assert outcomes[5] is None
        assert same(await value(store, "full"), {"rich": "data", "n": 1})
        assert same(await value(store, "word"), {"n": "x"})
        assert same(await value(store, "there"), {"n": 1})
        assert same(await value(store, "new"), {"n": 11})

    async def test_five_thousand_operations_in_one_call(self, open_store: Open) -> None:
        store, count = await open_store(), 5000
        outcomes = await store.apply([put(f"{index:05}", {"n": index}) for index in range(count)])
        assert {type(outcome) for outcome in outcomes} == {Written}
        mixed: list[Operation] = [
            (Get(f"{index:05}"), update(f"{index:05}", {"$inc": {"n": 1}}, returning=True), Delete(f"{index:05}"))[
                index % 3
            ]
            for index in range(count)
        ]
        for index, outcome in enumerate(await store.apply(mixed)):
            match index % 3:
                case 0:
                    assert isinstance(outcome, Record)
                    assert values.decode(outcome.value) == {"n": index}
                case 1:
                    assert isinstance(outcome, Written)
                    assert outcome.value is not None
                    assert values.decode(outcome.value) == {"n": index + 1}
                case _:
                    assert isinstance(outcome, Written)
                    assert outcome.etag is None
        for index, outcome in enumerate(await store.apply([Get(f"{index:05}") for index in range(count)])):
            kept = values.decode(outcome.value)["n"] if isinstance(outcome, Record) else outcome
            assert kept == (index, index + 1, None)[index % 3]

    async def test_many_bytes_in_one_call(self, open_store: Open) -> None:
        store = await open_store()
        long = "x" * 60_000
        outcomes = await store.apply([put(f"{index}", {"long": long, "n": index}) for index in range(400)])
        assert {type(outcome) for outcome in outcomes} == {Written}
        found = await store.apply([Get(f"{index}") for index in range(400)])
        assert [values.decode(one_found.value)["n"] for one_found in found if isinstance(one_found, Record)] == [
            *range(400)
        ]

    async def test_calls_side_by_side_do_not_disturb_each_other(self, open_store: Open) -> None:
        store = await open_store()

        async def own(worker: int) -> None:
            for turn in range(10):
                keys = [f"{worker}-{index}" for index in range(5)]
                await store.apply([put(key, {"w": worker, "t": turn}) for key in keys])
                for outcome in await store.apply([Get(key) for key in keys]):
                    assert isinstance(outcome, Record)
                    assert values.decode(outcome.value) == {"w": worker, "t": turn}

        await asyncio.gather(*(own(worker) for worker in range(8)))

    async def test_a_value_is_returned_where_it_is_asked_for(self, open_store: Open) -> None:
        store = await open_store()
        made = await written(store, put("a", {"n": 1}, returning=True))
        assert made.value is not None
        assert same(values.decode(made.value), {"n": 1})
        changed = await written(store, update("a", {"m": None, "k": "x"}, returning=True))
        assert changed.value is not None
        assert same(values.decode(changed.value), {"n": 1, "k": "x"})
        assert changed.etag == await etag(store, "a")
        assert (await written(store, update("a", {}))).value is None


class KeysAndValues(Opens):
    """Every legal key is told from every other, and a value comes back as it was."""

    async def test_unusual_keys(self, open_store: Open) -> None:
        store = await open_store()
        await store.apply([put(key, {"i": index}) for index, key in enumerate(UNUSUAL_KEYS)])
        found = await store.apply([Get(key) for key in UNUSUAL_KEYS])
        assert [values.decode(one_found.value)["i"] for one_found in found if isinstance(one_found, Record)] == [
            *range(len(UNUSUAL_KEYS))
        ]
        assert sorted(map(str, await scanned(store))) == sorted(UNUSUAL_KEYS)
        await store.apply([Delete(key) for key in UNUSUAL_KEYS[::2]])
        assert {key for key in UNUSUAL_KEYS if await one(store, Get(key)) is not None} == set(UNUSUAL_KEYS[1::2])

    async def test_integer_keys(self, open_store: Open) -> None:
        store = await open_store(key=INTEGERS)
        keys = [0, 1, -1, 9, 10, 2**53 + 1, 2**63 - 1, -(2**63)]
        await store.apply([put(key, {"i": str(key)}) for key in keys])
        for key in keys:
            assert await value(store, key) == {"i": str(key)}
        assert await one(store, Get(2**53)) is None
        found = await scanned(store)
        assert set(found) == set(keys)
        assert all(type(key) is int for key in found)
        if store.capabilities.sorted_scan:
            assert found == sorted(keys)

    async def test_composite_keys(self, open_store: Open) -> None:
        store = await open_store(key=COMPOSITE)
        keys: list[Key] = [("u", 1), ("u", -1), ("u", 2**63 - 1), ("ü", 1), ("u1", 1), ("a/b", 0), ("u\x01", 1)]
        await store.apply([put(key, {"i": index}) for index, key in enumerate(keys)])
        for index, key in enumerate(keys):
            assert await value(store, key) == {"i": index}
        assert await one(store, Get(("u", 0))) is None
        assert set(await scanned(store)) == set(keys)
        await written(store, Delete(("u", 1)))
        assert set(await scanned(store)) == {*keys} - {("u", 1)}

    async def test_keys_of_three_parts(self, open_store: Open) -> None:
        if self.key_parts_max < 3:
            pytest.skip("the store's keys have fewer parts")
        store = await open_store(key=THREE_PARTS)
        keys: list[Key] = [(1, "a", "b"), (1, "ab", "c"), (1, "a", "bc"), (2, "a", "b"), (-1, "z", "z")]
        await store.apply([put(key, {"i": index}) for index, key in enumerate(keys)])
        for index, key in enumerate(keys):
            assert await value(store, key) == {"i": index}
        assert set(await scanned(store)) == set(keys)

    async def test_a_value_does_not_contain_the_key(self, open_store: Open) -> None:
        store = await open_store(key=COMPOSITE)
        await written(store, put(("u", 1), {"n": 1}))
        await written(store, update(("u", 1), {"user": "u", "n": 2}))
        await written(store, update(("u", 2), {"$set": {"day": 2}}, {"n": 0}))
        assert await value(store, ("u", 1)) == {"n": 2}
        assert await value(store, ("u", 2)) == {"n": 0}
        assert refused(await one(store, update(("u", 1), {"user": "v"})), InvalidOperation)
        assert refused(await one(store, update(("u", 1), {"$set": {"day": True}})), InvalidOperation)
        assert await value(store, ("u", 1)) == {"n": 2}

    @pytest.mark.parametrize(
        "member",
        [
            9007199254740993, -9007199254740993, 2**63 - 1, -(2**63), 0, 1, 0.5, -0.1, 1e-7, 1e100, 123456789.123456789,
            0.1 + 0.2, 1.7976931348623157e120, 5e-120, True, False, None, "", "ü",
            "🛫 \u2028 \t\r\n \"quoted\" \\", "x" * 5000,
            [], {}, [[]], [{}], {"a": []}, {"a": {}}, {"a": None}, [None, True, 1, 0.5, "", [], {}], [1, 1, 1],
            {"a.b": 1, "$c": 2, " ": 3, "ü": 4, "_ts": 5}, "2026-11-20T00:00:00Z", "null", "1",
        ],
        ids=lambda member: str(member)[:20].encode("unicode_escape").decode(),
    )  # fmt: skip
    async def test_a_value_comes_back_as_it_was(self, open_store: Open, member: Any) -> None:
        store = await open_store()
        await written(store, put("a", {"member": member}))
        assert same(await value(store, "a"), {"member": member})
        await written(store, update("b", {"$set": {"x.member": member}}, {}))
        assert same(await value(store, "b"), {"x": {"member": member}})

    async def test_a_number_equal_to_an_integer_is_that_integer(self, open_store: Open) -> None:
        store = await open_store()
        await written(store, put("a", {"one": 1.0, "half": 0.5, "big": 1e18, "deep": [{"x": -0.0}]}))
        await written(store, update("a", {"$inc": {"half": 0.5}}))
        assert same(await value(store, "a"), {"one": 1, "half": 1, "big": 10**18, "deep": [{"x": 0}]})

    async def test_a_value_may_be_nested_thirty_deep(self, open_store: Open) -> None:
        store = await open_store()
        deep: Any = {}
        for _ in range(29):
            deep = {"d": deep}
        await written(store, put("a", deep))
        assert same(await value(store, "a"), deep)
        path = ".".join(["d"] * 30)
        await written(store, update("a", {"$set": {path: 1}}))
        wanted: Any = 1
        for _ in range(30):
            wanted = {"d": wanted}
        assert same(await value(store, "a"), wanted)

    async def test_names_of_members_may_be_unusual(self, open_store: Open) -> None:
        store = await open_store()
        names = [
            "a.b",
            " ",
            "ü",
            "🛫",
            "$",
            "#",
            ":",
            "key",
            "value",
            "etag",
            "ttl",
            "x_ts",
            "%",
            '"',
            "'",
            "\\",
            "\n",
            "N",
        ]
        await written(store, put("a", {name: index for index, name in enumerate(names)}))
        assert same(await value(store, "a"), {name: index for index, name in enumerate(names)})


class Updates(Opens):
    """Promise 6: an update is one atomic step, with or without a default."""

    async def test_an_update_of_nothing_is_refused_and_makes_nothing(self, open_store: Open) -> None:
        store = await open_store()
        assert refused(await one(store, update("a", {"n": 1})), RecordNotFound)
        assert refused(await one(store, update("a", {})), RecordNotFound)
        assert await one(store, Get("a")) is None

    async def test_an_update_of_nothing_starts_from_its_default(self, open_store: Open) -> None:
        store = await open_store()
        made = await written(store, update("a", {"$inc": {"n": 5}}, {"n": 10, "kept": True}))
        assert made.created
        assert made.etag == await etag(store, "a")
        assert same(await value(store, "a"), {"n": 15, "kept": True})

    async def test_the_default_is_not_looked_at_where_there_is_a_record(self, open_store: Open) -> None:
        store = await open_store()
        await written(store, put("a", {"n": 1}))
        assert not (await written(store, update("a", {"$inc": {"n": 1}}, {"n": 100, "x": 1}))).created
        assert same(await value(store, "a"), {"n": 2})

    async def test_an_empty_update_inserts_the_default(self, open_store: Open) -> None:
        store = await open_store()
        assert (await written(store, update("a", {}, {"n": 1}))).created
        assert (await written(store, update("b", [], {"n": 1}))).created
        assert same(await value(store, "a"), {"n": 1})
        assert not (await written(store, update("a", {}, {"n": 2}))).created
        assert same(await value(store, "a"), {"n": 1})

    async def test_a_default_that_the_update_does_not_fit_makes_nothing(self, open_store: Open) -> None:
        store = await open_store()
        assert refused(await one(store, update("a", {"$inc": {"n": 1}}, {"n": "x"})), InvalidOperation)
        assert await one(store, Get("a")) is None

    async def test_a_deleted_record_starts_from_the_default_again(self, open_store: Open) -> None:
        store = await open_store()
        await written(store, update("a", {"$inc": {"n": 1}}, {"n": 0}))
        await written(store, Delete("a"))
        assert (await written(store, update("a", {"$inc": {"n": 1}}, {"n": 0}))).created
        assert same(await value(store, "a"), {"n": 1})

    async def test_a_merge_patch_and_every_operator(self, open_store: Open) -> None:
        store = await open_store()
        await written(store, put("a", {"x": {"y": 1, "z": 2}, "n": 1, "s": "m", "l": [1], "gone": 1}))
        await written(store, update("a", {"x": {"y": None, "w": [1]}}))
        await written(
            store,
            update(
                "a",
                [
                    {"$set": {"x.v": {"deep": []}}, "$unset": ["gone"], "$inc": {"n": 2, "x.count": 1}},
                    {
                        "$min": {"s": "a"},
                        "$max": {"n": 10},
                        "$push": {"l": 1},
                        "$addToSet": {"t": {"$each": [1, 1, 2]}},
                    },
                ],
            ),
        )
        assert same(
            await value(store, "a"),
            {"x": {"z": 2, "w": [1], "v": {"deep": []}, "count": 1}, "n": 10, "s": "a", "l": [1, 1], "t": [1, 2]},
        )

    @pytest.mark.parametrize(
        "document",
        [
            {"$inc": {"word": 1}},
            {"$inc": {"big": 1}},
            [{"$inc": {"n": 1.7e308}}, {"$inc": {"n": 1.7e308}}],
            {"$push": {"n": 1}},
            {"$max": {"word": 1}},
            {"$set": {"list.x": 1}},
            [{"$set": {"n": 99}}, {"$inc": {"word": 1}}],
            [{"n": 99, "list": None}, {"$addToSet": {"word": 1}}],
        ],
        ids=str,
    )
    async def test_a_refused_update_leaves_the_record_exactly_as_it_was(self, open_store: Open, document: Any) -> None:
        store = await open_store()
        before = {"n": 1, "word": "x", "big": 2**63 - 1, "list": [1]}
        await written(store, put("a", before))
        version = await etag(store, "a")
        assert refused(await one(store, update("a", document)), InvalidOperation)
        assert same(await value(store, "a"), before)
        assert await etag(store, "a") == version

    async def test_first_updates_at_the_same_time_use_the_default_once(self, open_store: Open) -> None:
        store = await open_store()
        for turn in range(5):
            operation = update(f"k{turn}", {"$inc": {"n": 1}, "$push": {"seen": turn}}, {"n": 100})
            outcomes = await asyncio.gather(*(one(store, operation) for _ in range(64)))
            assert all(isinstance(outcome, Written) for outcome in outcomes), outcomes
            assert [outcome.created for outcome in outcomes if isinstance(outcome, Written)].count(True) == 1
            assert same(await value(store, f"k{turn}"), {"n": 164, "seen": [turn] * 64})

    async def test_updates_of_one_record_at_the_same_time_all_count(self, open_store: Open) -> None:
        store = await open_store()
        await written(store, put("a", {"n": 0}))
        increments = [update("a", {"$inc": {"n": 1}, "$set": {f"m{index}": index}}) for index in range(64)]
        outcomes = await asyncio.gather(*(one(store, increment) for increment in increments))
        assert all(isinstance(outcome, Written) for outcome in outcomes)
        assert len({outcome.etag for outcome in outcomes if isinstance(outcome, Written)}) == 64
        assert same(await value(store, "a"), {"n": 64, **{f"m{index}": index for index in range(64)}})

    async def test_puts_and_deletes_among_updates_lose_nothing_that_follows(self, open_store: Open) -> None:
        store = await open_store()
        await asyncio.gather(
            *(one(store, update("a", {"$inc": {"n": 1}}, {"n": 0})) for _ in range(20)),
            one(store, Delete("a")),
            *(one(store, update("a", {"$inc": {"n": 1}}, {"n": 0})) for _ in range(20)),
        )
        await written(store, put("a", {"n": 0}))
        await asyncio.gather(*(one(store, update("a", {"$inc": {"n": 1}}, {"n": 1000})) for _ in range(20)))
        assert same(await value(store, "a"), {"n": 20})


class Preconditions(Opens):
    """A write that asks for a version, or for absence, is done then or not at all."""

    async def test_every_write_changes_the_etag(self, store: Store) -> None:
        seen = [(await written(store, put("a", {"n": 0}))).etag]
        for document in ({"n": 1}, {"n": 2}, {"n": 1}, {"x": {"y": None}}, {"$push": {"l": 1}}):
            seen.append((await written(store, update("a", document))).etag)
            assert seen[-1] == await etag(store, "a")
        seen.append((await written(store, put("a", {"n": 1}))).etag)
        await written(store, Delete("a"))
        seen.append((await written(store, put("a", {"n": 2}))).etag)
        assert len(set(seen)) == len(seen)
        assert None not in seen

    async def test_an_etag_can_stand_in_a_header(self, store: Store) -> None:
        found = (await written(store, put("a"))).etag
        assert found is not None
        assert found.isascii()
        assert found.isprintable()
        assert '"' not in found
        assert " " not in found
        assert found != ANY_ETAG

    async def test_if_match_replaces_that_version_only(self, store: Store) -> None:
        first = (await written(store, put("a", {"n": 1}))).etag or ""
        second = (await written(store, put("a", {"n": 2}, if_match=(first,)))).etag or ""
        assert refused(await one(store, put("a", {"n": 3}, if_match=(first,))), PreconditionFailed)
        assert refused(await one(store, update("a", {"n": 3}, if_match=(first,))), PreconditionFailed)
        assert refused(await one(store, Delete("a", if_match=(first,))), PreconditionFailed)
        assert same(await value(store, "a"), {"n": 2})
        assert await etag(store, "a") == second
        third = (await written(store, update("a", {"n": 4}, if_match=(second,)))).etag or ""
        assert same(await value(store, "a"), {"n": 4})
        await written(store, Delete("a", if_match=(third,)))
        assert await one(store, Get("a")) is None

    async def test_if_match_takes_any_of_several(self, store: Store) -> None:
        version = (await written(store, put("a", {"n": 1}))).etag or ""
        assert refused(await one(store, put("a", {}, if_match=("x", "y"))), PreconditionFailed)
        assert refused(await one(store, put("a", {}, if_match=())), PreconditionFailed)
        await written(store, put("a", {"n": 2}, if_match=("x", version, "y")))
        assert same(await value(store, "a"), {"n": 2})

    async def test_if_match_of_anything_wants_a_record(self, store: Store) -> None:
        await written(store, put("a", {"n": 1}))
        for operation in (put("a", {"n": 2}, if_match=("*",)), update("a", {"n": 3}, if_match=("*",))):
            await written(store, operation)
        await written(store, Delete("a", if_match=("*",)))
        for absent in (
            put("a", {}, if_match=("*",)),
            update("a", {}, {}, if_match=("*",)),
            Delete("a", if_match=("*",)),
        ):
            assert refused(await one(store, absent), PreconditionFailed)
        assert await one(store, Get("a")) is None

    async def test_if_match_on_an_absent_record_fails_default_or_not(self, store: Store) -> None:
        assert refused(await one(store, update("a", {"n": 1}, if_match=("x",))), PreconditionFailed)
        assert refused(await one(store, update("a", {"n": 1}, {"n": 0}, if_match=("x",))), PreconditionFailed)
        assert refused(await one(store, Delete("a", if_match=("x",))), PreconditionFailed)
        assert refused(await one(store, put("a", {}, if_match=("x",))), PreconditionFailed)
        assert await one(store, Get("a")) is None

    async def test_if_absent_makes_a_record_once(self, store: Store) -> None:
        made = await written(store, put("a", {"n": 1}, if_absent=True))
        assert made.created
        assert refused(await one(store, put("a", {"n": 2}, if_absent=True)), PreconditionFailed)
        assert same(await value(store, "a"), {"n": 1})
        await written(store, Delete("a"))
        assert (await written(store, put("a", {"n": 3}, if_absent=True))).created
        assert same(await value(store, "a"), {"n": 3})

    async def test_of_many_that_make_a_record_at_the_same_time_one_does(self, store: Store) -> None:
        puts = [put("a", {"n": index}, if_absent=True) for index in range(32)]
        outcomes = await asyncio.gather(*(one(store, operation) for operation in puts))
        [winner] = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, Written)]
        assert all(refused(outcome, PreconditionFailed) for index, outcome in enumerate(outcomes) if index != winner)
        assert same(await value(store, "a"), {"n": winner})

    async def test_of_many_that_replace_a_version_at_the_same_time_one_does(self, store: Store) -> None:
        version = (await written(store, put("a", {"n": -1}))).etag or ""
        writes = [put("a", {"n": index}, if_match=(version,)) for index in range(16)]
        writes += [put("a", {"n": index}, if_match=("other", version)) for index in range(16, 32)]
        outcomes = await asyncio.gather(*(one(store, operation) for operation in writes))
        [winner] = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, Written)]
        assert all(refused(outcome, PreconditionFailed) for index, outcome in enumerate(outcomes) if index != winner)
        assert same(await value(store, "a"), {"n": winner})

    async def test_an_expired_record_is_absent_for_preconditions(self, open_store: Open, time: Time) -> None:
        store = await open_store()
        needs(store, "if_match", "ttl")
        version = (await written(store, put("a", {"n": 1}, ttl_s=1))).etag or ""
        await time.passes(1.0)
        assert refused(await one(store, put("a", {}, if_match=(version,))), PreconditionFailed)
        assert refused(await one(store, update("a", {}, {}, if_match=("*",))), PreconditionFailed)
        assert refused(await one(store, Delete("a", if_match=(version,))), PreconditionFailed)
        assert (await written(store, put("a", {"n": 2}, if_absent=True))).created
        assert same(await value(store, "a"), {"n": 2})


class Expiry(Opens):
    """When a record expires, and that an expired one is absent."""

    async def test_a_record_is_absent_from_the_moment_it_expires(self, store: Store, time: Time) -> None:
        await written(store, put("a", {"n": 1}, ttl_s=2))
        await time.passes(1.0)
        assert same(await value(store, "a"), {"n": 1})
        await time.passes(1.0)
        assert await one(store, Get("a")) is None
        assert refused(await one(store, update("a", {"n": 2})), RecordNotFound)
        assert await one(store, Get("a")) is None

    async def test_reads_and_writes_say_when_a_record_expires(self, store: Store, time: Time) -> None:
        around = time.now_ms() + 60_000
        acknowledged = await written(store, put("a", {}, ttl_s=60))
        assert abs(acknowledged.expires_ms - around) <= 2000
        assert (await record(store, "a")).expires_ms == acknowledged.expires_ms
        changed = await written(store, update("a", {"n": 1}, returning=True))
        assert changed.expires_ms == acknowledged.expires_ms

    async def test_a_put_sets_expiry_anew(self, store: Store, time: Time) -> None:
        await written(store, put("a", {"n": 1}, ttl_s=1))
        await written(store, put("a", {"n": 2}))
        await time.passes(1.5)
        assert same(await value(store, "a"), {"n": 2})
        assert (await record(store, "a")).expires_ms == 0

    async def test_an_update_keeps_expiry(self, store: Store, time: Time) -> None:
        expires_ms = (await written(store, put("a", {"n": 1}, ttl_s=2))).expires_ms
        await time.passes(1.0)
        await written(store, update("a", {"n": 2}))
        assert (await record(store, "a")).expires_ms == expires_ms
        await time.passes(1.0)
        assert await one(store, Get("a")) is None

    async def test_an_update_sets_expiry_where_it_says_so(self, store: Store, time: Time) -> None:
        await store.apply([put("a", {}, ttl_s=1), put("b", {}), put("c", {}, ttl_s=1)])
        await store.apply(
            [
                update("a", {}, ttl_s=3600),
                update("b", {}, ttl_s=1),
                update("c", {}, ttl_s=NO_EXPIRY),
                put("d", {}, ttl_s=1),
            ]
        )
        await time.passes(1.2)
        assert abs((await record(store, "a")).expires_ms - time.now_ms() - 3_600_000) <= 5000
        assert await one(store, Get("b")) is None
        assert (await record(store, "c")).expires_ms == 0
        assert await one(store, Get("d")) is None

    async def test_the_tables_default_holds_where_nothing_else_is_said(self, open_store: Open, time: Time) -> None:
        store = await open_store(ttl_s=100)
        needs(store, "ttl")
        made: list[Operation] = [
            put("put", {}),
            put("never", {}, ttl_s=NO_EXPIRY),
            put("own", {}, ttl_s=1000),
            update("default", {}, {}),
            update("default own", {}, {}, ttl_s=1000),
            update("default never", {}, {}, ttl_s=NO_EXPIRY),
        ]
        await store.apply(made)
        await written(store, update("never", {"n": 1}))
        wanted = {"put": 100, "never": None, "own": 1000, "default": 100, "default own": 1000, "default never": None}
        for key, ttl_s in wanted.items():
            expires_ms = (await record(store, key)).expires_ms
            assert (expires_ms == 0) == (ttl_s is None), key
            assert ttl_s is None or abs(expires_ms - time.now_ms() - ttl_s * 1000) <= 5000

    async def test_an_expired_record_starts_from_the_default_again(self, store: Store, time: Time) -> None:
        await written(store, put("a", {"n": 50}, ttl_s=1))
        await time.passes(1.0)
        assert (await written(store, update("a", {"$inc": {"n": 1}}, {"n": 0}))).created
        assert same(await value(store, "a"), {"n": 1})
        assert (await record(store, "a")).expires_ms == 0

    async def test_an_expired_record_is_not_in_scans(self, store: Store, time: Time) -> None:
        await store.apply([put(f"{index}", {}, ttl_s=1 if index % 2 else None) for index in range(20)])
        assert len(await scanned(store)) == 20
        await time.passes(1.0)
        assert sorted(map(str, await scanned(store))) == sorted(str(index) for index in range(0, 20, 2))
        assert sorted(map(str, await scanned(store, limit=1))) == sorted(str(index) for index in range(0, 20, 2))

    async def test_a_very_long_time_is_no_expiry(self, store: Store) -> None:
        await written(store, put("a", {"n": 1}, ttl_s=1e15))
        assert same(await value(store, "a"), {"n": 1})

    async def test_a_fraction_of_a_second_is_a_time_to_live(self, store: Store, time: Time) -> None:
        await written(store, put("a", {}, ttl_s=0.5))
        await time.passes(1.5)
        assert await one(store, Get("a")) is None


class Tokens(Opens):
    """A write that was seen is acknowledged and not done again."""

    async def test_a_store_that_keeps_no_tokens_refuses_them(self, open_store: Open) -> None:
        store = await open_store()
        if store.capabilities.tokens:
            pytest.skip("the store keeps tokens")
        token = Token("w", 1)
        for operation in (put("a", {}, token=token), update("a", {}, {}, token=token), Delete("a", token=token)):
            assert refused(await one(store, operation), Unsupported)
        assert await one(store, Get("a")) is None

    async def test_a_repeated_update_counts_once(self, store: Store) -> None:
        increment = update("a", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 5), returning=True)
        first = await written(store, increment)
        again = await written(store, increment)
        assert (first.replayed, first.created) == (False, True)
        assert (again.replayed, again.created) == (True, False)
        assert again.etag == first.etag
        assert again.value is not None
        assert same(values.decode(again.value), {"n": 1})
        assert same(await value(store, "a"), {"n": 1})
        assert await etag(store, "a") == first.etag

    async def test_a_sequence_that_is_not_greater_is_a_replay(self, store: Store) -> None:
        await written(store, put("a", {"n": 0}, token=Token("w", 5)))
        for sequence in (0, 4, 5):
            again = await written(store, put("a", {"n": sequence}, token=Token("w", sequence)))
            assert again.replayed
            assert again.value is None
        assert not (await written(store, update("a", {"$inc": {"n": 1}}, token=Token("w", 6)))).replayed
        assert not (await written(store, update("a", {"$inc": {"n": 1}}, token=Token("w", 2**63 - 1)))).replayed
        assert (await written(store, update("a", {"$inc": {"n": 1}}, token=Token("w", 2**63 - 1)))).replayed
        assert same(await value(store, "a"), {"n": 2})

    async def test_sequence_zero_is_a_sequence(self, store: Store) -> None:
        assert not (await written(store, update("a", {"$inc": {"n": 1}}, {}, token=Token("w", 0)))).replayed
        assert (await written(store, update("a", {"$inc": {"n": 1}}, {}, token=Token("w", 0)))).replayed
        assert same(await value(store, "a"), {"n": 1})

    async def test_writers_do_not_disturb_each_other(self, store: Store) -> None:
        names = ["w", "W", "w ", "ü" * 128, "🛫", "a/b", "%", "1"]
        for sequence in (1, 2):
            for name in names:
                increment = update("a", {"$inc": {"n": 1}}, {}, token=Token(name, sequence))
                assert not (await written(store, increment)).replayed
                assert (await written(store, increment)).replayed
        assert same(await value(store, "a"), {"n": 16})

    async def test_records_do_not_share_their_memory(self, store: Store) -> None:
        token = Token("w", 9)
        for key in ("a", "b"):
            assert not (await written(store, update(key, {"$inc": {"n": 1}}, {}, token=token))).replayed
        assert same(await value(store, "b"), {"n": 1})

    async def test_eight_writers_are_remembered_and_a_ninth_forgets_the_oldest(self, store: Store) -> None:
        async def replayed(writer: int, sequence: int = 1) -> bool:
            increment = update("a", {"$inc": {"n": 1}}, {"n": 0}, token=Token(f"w{writer}", sequence))
            return (await written(store, increment)).replayed

        assert [await replayed(writer) for writer in range(8)] == [False] * 8
        assert [await replayed(writer) for writer in range(8)] == [True] * 8
        assert not await replayed(0, 2)  # now writer 1 is the one that wrote longest ago
        assert not await replayed(8)
        assert [await replayed(writer) for writer in (2, 3, 4, 5, 6, 7, 8)] == [True] * 7
        assert await replayed(0, 2)
        assert same(await value(store, "a"), {"n": 10})
        assert not await replayed(1)  # forgotten
        assert same(await value(store, "a"), {"n": 11})

    async def test_a_token_is_looked_at_before_preconditions(self, store: Store) -> None:
        needs(store, "if_match")
        old = (await written(store, put("a", {"n": 0}, token=Token("w", 1)))).etag or ""
        replaced = put("a", {"n": 1}, if_match=(old,), token=Token("w", 2))
        assert not (await written(store, replaced)).replayed
        assert (await written(store, replaced)).replayed
        made = put("b", {}, if_absent=True, token=Token("w", 1))
        assert not (await written(store, made)).replayed
        again = await written(store, made)
        assert (again.replayed, again.created) == (True, False)
        assert (await written(store, Delete("a", if_match=(old,), token=Token("w", 2)))).replayed
        assert same(await value(store, "a"), {"n": 1})

    async def test_a_token_is_looked_at_before_the_update_itself(self, store: Store) -> None:
        await written(store, put("a", {"n": "text"}, token=Token("w", 1)))
        assert (await written(store, update("a", {"$inc": {"n": 1}}, token=Token("w", 1)))).replayed

    async def test_a_token_is_looked_at_before_absence(self, store: Store) -> None:
        await written(store, put("a", {"n": 1}, token=Token("w", 1)))
        gone = Delete("a", token=Token("w", 2))
        assert not (await written(store, gone)).replayed
        again = await written(store, gone)
        assert (again.replayed, again.etag) == (True, None)
        late = await written(store, update("a", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 2), returning=True))
        assert (late.replayed, late.etag, late.value, late.created) == (True, None, None, False)
        assert (await written(store, update("a", {"n": 1}, token=Token("w", 1)))).replayed
        assert await one(store, Get("a")) is None
        assert await scanned(store) == []

    async def test_a_refused_write_is_not_remembered(self, store: Store) -> None:
        token = Token("w", 7)
        assert refused(await one(store, update("a", {"n": 1}, token=token)), RecordNotFound)
        assert refused(await one(store, update("a", {"$inc": {"n": 1}}, {"n": ""}, token=token)), InvalidOperation)
        assert not (await written(store, put("a", {"n": 1}, token=token))).replayed
        token = Token("w", 8)
        assert refused(await one(store, put("a", {}, if_match=("x",), token=token)), PreconditionFailed)
        assert refused(await one(store, Delete("a", if_match=("x",), token=token)), PreconditionFailed)
        assert not (await written(store, update("a", {"$inc": {"n": 1}}, token=token))).replayed
        assert same(await value(store, "a"), {"n": 2})

    async def test_a_tokened_delete_keeps_the_memory_for_a_day(self, store: Store, time: Time) -> None:
        increment = update("a", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 1))
        await written(store, increment)
        await written(store, Delete("a", token=Token("v", 1)))
        assert await one(store, Get("a")) is None
        assert (await written(store, increment)).replayed
        await time.passes(23 * 3600.0)
        assert (await written(store, increment)).replayed
        assert (await written(store, Delete("a", token=Token("v", 1)))).replayed
        assert await one(store, Get("a")) is None

    async def test_a_tokened_delete_of_nothing_is_remembered(self, store: Store) -> None:
        assert not (await written(store, Delete("a", token=Token("w", 3)))).replayed
        assert (await written(store, put("a", {"n": 1}, token=Token("w", 3)))).replayed
        assert await one(store, Get("a")) is None
        assert not (await written(store, put("a", {"n": 1}, token=Token("w", 4)))).replayed
        assert same(await value(store, "a"), {"n": 1})

    async def test_what_a_delete_left_is_absent_for_preconditions_and_defaults(self, store: Store) -> None:
        await written(store, Delete("a", token=Token("w", 1)))
        assert refused(await one(store, update("a", {"n": 1})), RecordNotFound)
        assert refused(await one(store, put("a", {}, if_match=("*",))), PreconditionFailed)
        assert (await written(store, Delete("a"))).etag is None
        assert (await written(store, put("a", {"n": 1}, if_absent=True))).created
        assert (await written(store, put("a", {"n": 9}, token=Token("w", 1)))).replayed
        await written(store, Delete("a", token=Token("w", 2)))
        assert (await written(store, update("a", {"$inc": {"n": 1}}, {"n": 5}))).created
        assert same(await value(store, "a"), {"n": 6})
        assert (await record(store, "a")).expires_ms == 0

    async def test_writes_without_a_token_keep_the_memory(self, store: Store) -> None:
        increment = update("a", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 1))
        await written(store, increment)
        await written(store, put("a", {"n": 10}))
        await written(store, update("a", {"$inc": {"n": 5}}))
        assert (await written(store, increment)).replayed
        assert same(await value(store, "a"), {"n": 15})

    async def test_a_replay_does_not_change_expiry(self, store: Store, time: Time) -> None:
        needs(store, "ttl")
        operation = put("a", {"n": 1}, ttl_s=2, token=Token("w", 1))
        first = await written(store, operation)
        await time.passes(1.0)
        assert (await written(store, operation)).replayed
        assert (await record(store, "a")).expires_ms == first.expires_ms

    async def test_of_one_write_sent_many_times_at_once_one_counts(self, store: Store) -> None:
        increment = update("a", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 1))
        outcomes = await asyncio.gather(*(written(store, increment) for _ in range(32)))
        assert [outcome.replayed for outcome in outcomes].count(False) == 1
        assert same(await value(store, "a"), {"n": 1})

    async def test_writers_of_one_record_at_the_same_time_all_count(self, store: Store) -> None:
        async def writer(name: str) -> None:
            for sequence in range(10):
                increment = update("a", {"$inc": {"n": 1}}, {"n": 0}, token=Token(name, sequence))
                assert not (await written(store, increment)).replayed
                assert (await written(store, increment)).replayed

        await asyncio.gather(*(writer(f"w{index}") for index in range(8)))
        assert same(await value(store, "a"), {"n": 80})


class Scans(Opens):
    """A scan meets every record, in pages of a bounded size; splits divide a table."""

    @staticmethod
    async def filled(open_store: Open, keys: Sequence[Key], key: KeySchema = STRINGS) -> Store:
        store = await open_store(key=key)
        await store.apply([put(one_key, {"i": index}) for index, one_key in enumerate(keys)])
        return store

    async def test_a_scan_of_nothing_is_an_empty_last_page(self, open_store: Open) -> None:
        store = await open_store()
        assert await store.scan(Scan(10)) == Page([], None)

    async def test_pages_hold_every_record_once(self, open_store: Open) -> None:
        keys = [f"{index * 7919 % 101:03}" for index in range(101)]
        store = await self.filled(open_store, keys)
        for limit in (1, 7, 100, 101, 102, 10_000):
            found = await pages(store, Scan(limit))
            assert all(len(page.records) <= limit for page in found)
            met = [key for page in found for key, _ in page.records]
            assert met_once(met, store) == sorted(keys)
            if store.capabilities.sorted_scan:
                assert met == sorted(keys)

    async def test_a_scan_answers_what_a_get_does(self, open_store: Open) -> None:
        store = await open_store()
        ttls = (None, 100) if store.capabilities.ttl else (None,)
        await store.apply([put(f"{index}", {"n": index}, ttl_s=ttls[index % len(ttls)]) for index in range(10)])
        [page] = await pages(store, Scan(100))
        for key, found in page.records:
            gotten = await record(store, key)
            assert (found.etag, found.expires_ms) == (gotten.etag, gotten.expires_ms)
            assert same(values.decode(found.value), values.decode(gotten.value))

    async def test_keys_are_scanned_in_the_order_of_their_bytes(self, open_store: Open) -> None:
        store = await self.filled(open_store, UNUSUAL_KEYS)
        needs(store, "sorted_scan")
        assert await scanned(store, limit=3) == sorted(UNUSUAL_KEYS, key=lambda key: key.encode())

    async def test_a_prefix_limits_a_scan(self, open_store: Open) -> None:
        keys = ["a", "ab", "abc", "abd", "ac", "b", "A", "a\x7f", "aü", "aÿ", "\U0010ffff", "\U0010ffffx"]
        store = await self.filled(open_store, keys)
        needs(store, "prefix_scan")
        for prefix in ("", "a", "ab", "abc", "abcd", "x", "ü", "aü", "\U0010ffff", "A"):
            met = await scanned(store, prefix=prefix, limit=2)
            assert met_once(met, store) == sorted(key for key in keys if key.startswith(prefix)), prefix

    async def test_a_partition_limits_a_scan(self, open_store: Open) -> None:
        keys: list[Key] = [(user, day) for user in ("u", "u1", "ü", "a") for day in (-5, 10, 9, 0)]
        store = await self.filled(open_store, keys, COMPOSITE)
        for user in ("u", "u1", "ü", "nobody"):
            met = await scanned(store, partition=user, limit=3)
            assert set(met) == {key for key in keys if key[0] == user}  # type: ignore[index]  # composite
            if store.capabilities.sorted_scan:
                assert met == sorted(met)

    async def test_a_prefix_and_a_partition_together_limit_a_scan(self, open_store: Open) -> None:
        schema = KeySchema((KeyField("n", "integer"), KeyField("s", "string")))
        keys: list[Key] = [(n, s) for n in (-1, 0, 255, 2**63 - 1) for s in ("a", "ab", "b")]
        store = await self.filled(open_store, keys, schema)
        needs(store, "prefix_scan")
        for n in (-1, 0, 255, 2**63 - 1, 7):
            for prefix in ("", "a", "ab", "c"):
                met = await scanned(store, partition=n, prefix=prefix, limit=2)
                assert set(met) == {key for key in keys if key[0] == n and key[1].startswith(prefix)}  # type: ignore[index,union-attr]  # composite

    async def test_a_page_ends_where_its_bytes_do(self, open_store: Open) -> None:
        store = await open_store()
        await store.apply([put(f"{index:02}", {"long": "x" * 1000}) for index in range(40)])
        found = await pages(store, Scan(1000, bytes_max=5000))
        assert len(found) >= 6
        assert all(sum(len(one_found.value) for _, one_found in page.records) <= 5000 + 1100 for page in found)
        assert sorted(str(key) for page in found for key, _ in page.records) == [f"{index:02}" for index in range(40)]

    async def test_a_record_that_stays_is_met_while_others_come_and_go(self, open_store: Open) -> None:
        staying = [f"{index:03}" for index in range(0, 100, 2)]
        store = await self.filled(open_store, staying)
        met: list[Key] = []
        scan = Scan(5)
        for turn in range(1000):
            page = await store.scan(scan)
            met += [key for key, _ in page.records]
            if page.position is None:
                break
            await one(store, put(f"{(turn * 37) % 100 // 2 * 2 + 1:03}"))
            await one(store, Delete(f"{(turn * 11) % 100 // 2 * 2 + 1:03}"))
            scan = msgspec.structs.replace(scan, position=page.position)
        assert set(staying) <= set(met)

    @pytest.mark.parametrize("count_max", [1, 2, 3, 8, 64])
    async def test_splits_are_disjoint_and_cover_the_table(self, open_store: Open, count_max: int) -> None:
        keys = [f"user-{index * 7919 % 1000:04}" for index in range(1000)]
        store = await self.filled(open_store, keys)
        needs(store, "splits")
        parts = await store.splits(count_max)
        assert 1 <= len(parts) <= count_max
        assert len(set(parts)) == len(parts)
        if self.splits_have_several_parts and count_max > 1:
            assert len(parts) > 1
        met = [key for part in parts for key in await scanned(store, split=part, limit=97)]
        assert met_once(met, store) == sorted(keys)
        later = ["a", "user", "user-0500x", "user-9999", "zzz", "\U0010ffff"]
        await store.apply([put(key) for key in later])
        met = [key for part in parts for key in await scanned(store, split=part, limit=97)]
        assert met_once(met, store) == sorted(keys + later)

    @pytest.mark.parametrize("keys", [[], ["a"], ["a", "b"], ["a", "a\x01", "aa"], ["x" * 1024, "x" * 1023]], ids=len)
    async def test_splits_of_few_records_cover_them(self, open_store: Open, keys: list[str]) -> None:
        store = await self.filled(open_store, keys)
        needs(store, "splits")
        parts = await store.splits(8)
        assert 1 <= len(parts) <= 8
        met = [key for part in parts for key in met_once(await scanned(store, split=part), store)]
        assert sorted(met) == sorted(keys)

    async def test_splits_of_integer_keys_cover_them(self, open_store: Open) -> None:
        keys: list[Key] = [*range(-300, 300), 2**63 - 1, -(2**63)]
        store = await self.filled(open_store, keys, INTEGERS)
        needs(store, "splits")
        parts = await store.splits(5)
        met = [key for part in parts for key in await scanned(store, split=part, limit=100)]
        assert len(met_once(met, store)) == len(keys)
        assert set(met) == set(keys)

    async def test_splits_of_composite_keys_cover_them(self, open_store: Open) -> None:
        keys: list[Key] = [(f"u{index % 3}", index) for index in range(-100, 100)]
        store = await self.filled(open_store, keys, COMPOSITE)
        needs(store, "splits")
        met = [key for part in await store.splits(4) for key in await scanned(store, split=part, limit=30)]
        assert len(met_once(met, store)) == len(keys)
        assert set(met) == set(keys)

    async def test_a_split_can_be_limited_by_a_prefix(self, open_store: Open) -> None:
        keys = [f"{letter}{index:02}" for letter in "abc" for index in range(50)]
        store = await self.filled(open_store, keys)
        needs(store, "splits", "prefix_scan")
        parts = await store.splits(4)
        met = [key for part in parts for key in await scanned(store, split=part, prefix="b", limit=11)]
        assert met_once(met, store) == [key for key in keys if key.startswith("b")]


class StoreContract(Basics, KeysAndValues, Updates, Preconditions, Expiry, Tokens, Scans):
    """The whole of it: what a store's or a policy's own test class inherits."""
