"""Contract tests: keys and values of all kinds."""

from typing import Any

import pytest

from tableside.core import values
from tableside.core.errors import InvalidOperation
from tableside.core.operations import Delete, Get, Key, Record

from .opening import Open, Opens
from .words import (
    COMPOSITE,
    INTEGERS,
    THREE_PARTS,
    UNUSUAL_KEYS,
    one,
    put,
    refused,
    same,
    scanned,
    update,
    value,
    written,
)

MEMBERS: list[Any] = [
    9007199254740993, -9007199254740993, 2**63 - 1, -(2**63), 0, 1, 0.5, -0.1, 1e-7, 1e100, 123456789.123456789,
    0.1 + 0.2, 1.7976931348623157e120, 5e-120, True, False, None, "", "ü",
    "🛫 \u2028 \t\r\n \"quoted\" \\", "x" * 5000,
    [], {}, [[]], [{}], {"a": []}, {"a": {}}, {"a": None}, [None, True, 1, 0.5, "", [], {}], [1, 1, 1],
    {"a.b": 1, "$c": 2, " ": 3, "ü": 4, "_ts": 5}, "2026-11-20T00:00:00Z", "null", "1",
]  # fmt: skip
"""Values that a store could confuse with others."""


def nested(depth: int, innermost: Any) -> Any:
    return {"d": nested(depth - 1, innermost)} if depth else innermost


class KeysAndValues(Opens):
    """Every legal key is distinct from all others, and a value is returned unchanged."""

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
        keys: list[Key] = [("u", 1), ("u", -1), ("u", 2**63 - 1), ("ü", 1), ("u:", 1), ("u%3A", 1), ("u\x01", 1)]
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

    async def test_a_value_is_returned_unchanged(self, open_store: Open) -> None:
        store = await open_store()
        await store.apply([put(f"{index}", {"member": member}) for index, member in enumerate(MEMBERS)])
        for index, member in enumerate(MEMBERS):
            assert same(await value(store, f"{index}"), {"member": member}), member
            await written(store, update("updated", {"$set": {"x.member": member}}, {}))
            assert same(await value(store, "updated"), {"x": {"member": member}}), member

    async def test_a_number_equal_to_an_integer_is_that_integer(self, open_store: Open) -> None:
        store = await open_store()
        await written(store, put("a", {"one": 1.0, "half": 0.5, "big": 1e18, "deep": [{"x": -0.0}]}))
        await written(store, update("a", {"$inc": {"half": 0.5}}))
        assert same(await value(store, "a"), {"one": 1, "half": 1, "big": 10**18, "deep": [{"x": 0}]})

    async def test_a_value_may_be_nested_thirty_deep(self, open_store: Open) -> None:
        store = await open_store()
        deep, deeper = nested(29, {}), nested(30, 1)
        await written(store, put("a", deep))
        assert same(await value(store, "a"), deep)
        await written(store, update("a", {"$set": {".".join(["d"] * 30): 1}}))
        assert same(await value(store, "a"), deeper)

    async def test_names_of_members_may_be_unusual(self, open_store: Open) -> None:
        store = await open_store()
        names = [
            "a.b", " ", "ü", "🛫", "$", "#", ":", "key", "value", "etag", "ttl", "x_ts", "%", '"', "'", "\\", "\n", "N",
        ]  # fmt: skip
        await written(store, put("a", {name: index for index, name in enumerate(names)}))
        assert same(await value(store, "a"), {name: index for index, name in enumerate(names)})
