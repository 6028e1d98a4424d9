"""Contract tests: an update is one atomic step, with or without a default."""

import asyncio
from typing import Any

from tableside.core import updates
from tableside.core.errors import InvalidOperation, RecordNotFound, TooLarge
from tableside.core.operations import Delete, Get, Update, Written

from .opening import Open, Opens
from .words import etag, one, put, refused, same, update, value, written

REFUSED: list[tuple[Any, str]] = [
    ({"$inc": {"word": 1}}, "`$inc` at `word`: the field is a string, not a number"),
    ({"$inc": {"big": 1}}, "`$inc` at `big`: the sum is out of range"),
    ([{"$inc": {"n": 1.7e308}}, {"$inc": {"n": 1.7e308}}], "`$inc` at `n`: the sum is out of range"),
    ({"$push": {"n": 1}}, "`$push` at `n`: the field is a number, not an array"),
    ({"$max": {"word": 1}}, "`$max` at `word`: the field is a string, but the operand is a number"),
    ({"$set": {"list.x": 1}}, "`$set` at `list.x`: `list` is an array, not an object"),
    ({"$push": {"list.x.y": 1}}, "`$push` at `list.x.y`: `list` is an array, not an object"),
    ([{"$set": {"n": 99}}, {"$inc": {"word": 1}}], "`$inc` at `word`: the field is a string, not a number"),
    ({"$mul": {"big": 2}}, "`$mul` at `big`: the product is out of range"),
    ({"$pull": {"word": "x"}}, "`$pull` at `word`: the field is a string, not an array"),
    ([{"n": 99}, {"$addToSet": {"word": 1}}], "`$addToSet` at `word`: the field is a string, not an array"),
]
"""Updates that cannot be applied to the test's record, and the error message of every store."""


class Updates(Opens):
    """Promise 6: an update is one atomic step, with or without a default."""

    async def test_an_update_of_an_absent_record_fails_and_creates_nothing(self, open_store: Open) -> None:
        store = await open_store()
        assert refused(await one(store, update("a", {"n": 1})), RecordNotFound)
        assert refused(await one(store, update("a", {})), RecordNotFound)
        assert await one(store, Get("a")) is None

    async def test_an_update_of_an_absent_record_starts_from_its_default(self, open_store: Open) -> None:
        store = await open_store()
        made = await written(store, update("a", {"$inc": {"n": 5}}, {"n": 10, "kept": True}))
        assert made.created
        assert made.etag == await etag(store, "a")
        assert same(await value(store, "a"), {"n": 15, "kept": True})
        assert not (await written(store, update("a", {"$inc": {"n": 1}}, {"n": 100}))).created
        assert same(await value(store, "a"), {"n": 16, "kept": True})
        await written(store, Delete("a"))
        assert refused(await one(store, update("a", {"$inc": {"n": 1}}, {"n": "x"})), InvalidOperation)
        assert await one(store, Get("a")) is None
        assert (await written(store, update("a", {"$inc": {"n": 1}}, {"n": 0}))).created
        assert same(await value(store, "a"), {"n": 1})

    async def test_members_may_have_names_that_begin_with_a_dollar(self, open_store: Open) -> None:
        store = await open_store()
        await written(store, put("a", {"$schema": "s", "$set": {"$ref": 1}, "$n": 1, "$gone": 0, "$": [0]}))
        patch = updates.parse_merge_patch({"$schema": "t", "$gone": None, "$ref": {"$id": 1, "$no": None}})
        await written(store, Update("a", patch, b"{}"))
        changed = {"$schema": "t", "$set": {"$ref": 1}, "$n": 1, "$": [0], "$ref": {"$id": 1}}
        assert same(await value(store, "a"), changed)
        await written(store, update("a", {"$inc": {"$n": 1}, "$set": {"$set.$ref": 2}, "$push": {"$": 1}}))
        await written(store, update("a", {"$unset": ["$schema"], "$max": {"$n": 9}, "$min": {"$ref.$id": 0}}))
        assert same(await value(store, "a"), {"$set": {"$ref": 2}, "$n": 9, "$": [0, 1], "$ref": {"$id": 0}})
        assert (await written(store, Update("b", patch, b'{"$schema":"s","$n":1}'))).created
        assert same(await value(store, "b"), {"$schema": "t", "$n": 1, "$ref": {"$id": 1}})

    async def test_an_empty_update_inserts_the_default(self, open_store: Open) -> None:
        store = await open_store()
        assert (await written(store, update("a", {}, {"n": 1}))).created
        assert (await written(store, update("b", [], {"n": 1}))).created
        assert same(await value(store, "a"), {"n": 1})
        assert not (await written(store, update("a", {}, {"n": 2}))).created
        assert same(await value(store, "a"), {"n": 1})

    async def test_a_merge_patch_and_every_operator(self, open_store: Open) -> None:
        store = await open_store()
        await written(store, put("a", {"x": {"y": 1, "z": 2}, "n": 1, "s": "m", "l": [1], "gone": 1}))
        await written(store, update("a", {"x": {"y": None, "w": [1]}}))
        first = {"$set": {"x.v": {"deep": []}}, "$unset": ["gone"], "$inc": {"n": 2, "x.count": 1}}
        second = {"$min": {"s": "a"}, "$max": {"n": 10}, "$push": {"l": 1}, "$addToSet": {"t": {"$each": [1, 1, 2]}}}
        await written(store, update("a", [first, second]))
        assert same(
            await value(store, "a"),
            {"x": {"z": 2, "w": [1], "v": {"deep": []}, "count": 1}, "n": 10, "s": "a", "l": [1, 1], "t": [1, 2]},
        )

    async def test_operators_of_recent_lists_and_first_writes(self, open_store: Open) -> None:
        store = await open_store()
        newest_first = {"$each": [{"at": 2}, {"at": 3}], "$slice": 2, "$sort": {"at": -1}}
        event = {"$setOnInsert": {"first": 1}, "$mul": {"n": 3}, "$pull": {"tags": {"$in": ["a", "b"]}}}
        first = update("a", {**event, "$push": {"log": newest_first}}, {"n": 2, "tags": ["b", "c"], "log": [{"at": 1}]})
        assert (await written(store, first)).created
        assert same(await value(store, "a"), {"first": 1, "n": 6, "tags": ["c"], "log": [{"at": 3}, {"at": 2}]})
        await written(store, update("a", {"$unset": ["first"]}))
        again = update("a", {**event, "$push": {"log": {"$each": [{"at": 4}], "$slice": -2}}}, {})
        assert not (await written(store, again)).created
        assert same(await value(store, "a"), {"n": 18, "tags": ["c"], "log": [{"at": 2}, {"at": 4}]})

    async def test_a_refused_update_leaves_the_record_unchanged(self, open_store: Open) -> None:
        store = await open_store()
        before = {"n": 1, "word": "x", "big": 2**63 - 1, "list": [1]}
        await written(store, put("a", before))
        version = await etag(store, "a")
        for document, detail in REFUSED:
            assert refused(outcome := await one(store, update("a", document)), InvalidOperation), document
            assert isinstance(outcome, InvalidOperation)
            assert outcome.detail == detail
            assert same(await value(store, "a"), before), document
            assert await etag(store, "a") == version, document

    async def test_an_update_may_not_leave_a_longer_value_than_the_limit(self, open_store: Open) -> None:
        store = await open_store()
        await written(store, put("a", {"n": 1}))
        growing = {"$set": {"text": "x" * store.spec.value_bytes_max}}
        assert refused(await one(store, update("a", growing)), TooLarge)
        assert refused(await one(store, update("b", growing, {})), TooLarge)
        assert same(await value(store, "a"), {"n": 1})
        assert await one(store, Get("b")) is None

    async def test_concurrent_first_updates_use_the_default_once(self, open_store: Open) -> None:
        store = await open_store()
        for turn in range(3):
            operation = update(f"k{turn}", {"$inc": {"n": 1}, "$push": {"seen": turn}}, {"n": 100})
            outcomes = await asyncio.gather(*(one(store, operation) for _ in range(64)))
            assert all(isinstance(outcome, Written) for outcome in outcomes), outcomes
            assert [outcome.created for outcome in outcomes if isinstance(outcome, Written)].count(True) == 1
            assert same(await value(store, f"k{turn}"), {"n": 164, "seen": [turn] * 64})

    async def test_concurrent_updates_of_one_record_all_count(self, open_store: Open) -> None:
        store = await open_store()
        await written(store, put("a", {"n": 0}))
        increments = [update("a", {"$inc": {"n": 1}, "$set": {f"m{index}": index}}) for index in range(64)]
        outcomes = await asyncio.gather(*(one(store, increment) for increment in increments))
        assert all(isinstance(outcome, Written) for outcome in outcomes)
        assert len({outcome.etag for outcome in outcomes if isinstance(outcome, Written)}) == 64
        assert same(await value(store, "a"), {"n": 64, **{f"m{index}": index for index in range(64)}})

    async def test_concurrent_updates_of_one_large_record_all_count(self, open_store: Open) -> None:
        store = await open_store()
        text = "x" * 2**17
        await written(store, put("a", {"n": 0, "kept": text}))
        increments = [update("a", {"$inc": {"n": 1}, "$set": {f"m{index}": index}}) for index in range(16)]
        outcomes = await asyncio.gather(*(one(store, increment) for increment in increments))
        assert all(isinstance(outcome, Written) for outcome in outcomes), outcomes
        assert same(await value(store, "a"), {"n": 16, "kept": text, **{f"m{index}": index for index in range(16)}})

    async def test_puts_and_deletes_among_updates_lose_no_later_update(self, open_store: Open) -> None:
        store = await open_store()
        await asyncio.gather(
            *(one(store, update("a", {"$inc": {"n": 1}}, {"n": 0})) for _ in range(20)),
            one(store, Delete("a")),
            *(one(store, update("a", {"$inc": {"n": 1}}, {"n": 0})) for _ in range(20)),
        )
        await written(store, put("a", {"n": 0}))
        await asyncio.gather(*(one(store, update("a", {"$inc": {"n": 1}}, {"n": 1000})) for _ in range(20)))
        assert same(await value(store, "a"), {"n": 20})
