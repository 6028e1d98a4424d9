"""Contract tests: a retried write counts once."""

import asyncio

import pytest

from tableside.core import values
from tableside.core.errors import InvalidOperation, PreconditionFailed, RecordNotFound, Unsupported
from tableside.core.operations import Delete, Get, Token, Written
from tableside.core.store import Store

from .opening import Open, Opens, Time, needs
from .words import etag, one, put, record, refused, same, scanned, update, value, written


class Tokens(Opens):
    """A write whose token was seen before is acknowledged and not applied again."""

    async def test_a_store_without_tokens_rejects_them(self, open_store: Open) -> None:
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
        assert not (await written(store, put("a", {"n": 0}, token=Token("w", 0)))).replayed
        assert not (await written(store, put("a", {"n": 0}, token=Token("w", 5)))).replayed
        for sequence in (0, 4, 5):
            again = await written(store, put("a", {"n": sequence}, token=Token("w", sequence)))
            assert again.replayed
            assert again.value is None
        assert not (await written(store, update("a", {"$inc": {"n": 1}}, token=Token("w", 6)))).replayed
        assert not (await written(store, update("a", {"$inc": {"n": 1}}, token=Token("w", 2**63 - 1)))).replayed
        assert (await written(store, update("a", {"$inc": {"n": 1}}, token=Token("w", 2**63 - 1)))).replayed
        assert same(await value(store, "a"), {"n": 2})

    async def test_the_puts_of_a_batch_are_replays_each_for_itself(self, store: Store) -> None:
        before = {"none": "", "old": "w4", "same": "w5", "newer": "w6", "other": "v9", "both": "v1 w4", "last": "w6 v1"}
        for key, tokens in before.items():
            await written(store, put(key, {"n": 0}))
            for token in tokens.split():
                await written(store, put(key, {"n": 0}, token=Token(token[0], int(token[1]))))
        keys = [*before, "absent"]
        for replays in ({"same", "newer", "last"}, {*keys}):
            outcomes = await store.apply([put(key, {"n": 1}, token=Token("w", 5)) for key in keys])
            each = dict(zip(keys, outcomes, strict=True))
            applied = {key: outcome for key, outcome in each.items() if isinstance(outcome, Written)}
            assert {key for key, outcome in applied.items() if outcome.replayed} == replays
            assert applied.keys() == {*keys}
        assert [(await value(store, key))["n"] for key in before] == [1, 1, 0, 0, 1, 1, 0]
        for key in ("other", "both", "last"):
            assert (await written(store, put(key, {}, token=Token("v", 1)))).replayed

    async def test_writers_are_independent(self, store: Store) -> None:
        names = ["w", "W", "w ", "ü" * 128, "🛫", "a/b", "%", "1"]
        for sequence in (1, 2):
            for name in names:
                increment = update("a", {"$inc": {"n": 1}}, {}, token=Token(name, sequence))
                assert not (await written(store, increment)).replayed
                assert (await written(store, increment)).replayed
        assert same(await value(store, "a"), {"n": 16})
        assert not (await written(store, put("b", {"n": "text"}, token=Token("w", 1)))).replayed, "another record"
        refused_otherwise = update("b", {"$inc": {"n": 1}}, token=Token("w", 1))
        assert (await written(store, refused_otherwise)).replayed

    async def test_eight_writers_are_remembered_and_a_ninth_forgets_the_oldest(self, store: Store) -> None:
        async def replayed(writer: int, sequence: int = 1) -> bool:
            increment = update("a", {"$inc": {"n": 1}}, {"n": 0}, token=Token(f"w{writer}", sequence))
            return (await written(store, increment)).replayed

        assert [await replayed(writer) for writer in range(8)] == [False] * 8
        assert [await replayed(writer) for writer in range(8)] == [True] * 8
        assert not await replayed(0, 2)  # now writer 1 has the oldest write
        assert not await replayed(8)
        assert [await replayed(writer) for writer in (2, 3, 4, 5, 6, 7, 8)] == [True] * 7
        assert await replayed(0, 2)
        assert same(await value(store, "a"), {"n": 10})
        assert not await replayed(1)  # forgotten
        assert same(await value(store, "a"), {"n": 11})

    async def test_a_token_is_checked_before_preconditions(self, store: Store) -> None:
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

    async def test_a_token_is_checked_before_absence(self, store: Store) -> None:
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

    async def test_the_token_of_a_rejected_write_is_not_remembered(self, store: Store) -> None:
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

    async def test_a_tombstone_is_absent_for_preconditions_and_defaults(self, store: Store) -> None:
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
        await time.passes_within_lifetime(1.0)
        assert (await written(store, operation)).replayed
        assert (await record(store, "a")).expires_ms == first.expires_ms

    async def test_concurrent_copies_of_a_write_count_once(self, store: Store) -> None:
        increment = update("a", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 1))
        outcomes = await asyncio.gather(*(written(store, increment) for _ in range(32)))
        assert [outcome.replayed for outcome in outcomes].count(False) == 1
        assert same(await value(store, "a"), {"n": 1})

    async def test_concurrent_writers_of_one_record_all_count(self, store: Store) -> None:
        async def writer(name: str) -> None:
            for sequence in range(10):
                increment = update("a", {"$inc": {"n": 1}}, {"n": 0}, token=Token(name, sequence))
                assert not (await written(store, increment)).replayed
                assert (await written(store, increment)).replayed

        await asyncio.gather(*(writer(f"w{index}") for index in range(8)))
        assert same(await value(store, "a"), {"n": 80})
