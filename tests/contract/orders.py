"""Contract tests: the ordered write with the highest order wins, whatever arrives last."""

import asyncio
import random
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import msgspec
import pytest

from tableside.core.errors import InvalidOperation, Unsupported
from tableside.core.operations import NO_EXPIRY, Delete, Get, Record, Token, Written
from tableside.core.store import Store
from tableside.core.values import decode

from .opening import Open, Opens, Time, needs
from .ordered_writes import BY_HAND, CONVERGING, LAST, REFUSED, SUPERSEDED, Asked, deleting, putting, updating
from .words import COMPOSITE, etag, one, put, record, refused, same, scanned, update, value, written


async def found(store: Store, keys: Sequence[str]) -> list[Any]:
    """Return the values of records, None for absent ones."""
    outcomes = await store.apply([Get(key) for key in keys])
    assert all(isinstance(outcome, Record | None) for outcome in outcomes), outcomes
    return [decode(outcome.value) if isinstance(outcome, Record) else None for outcome in outcomes]


async def state(store: Store, key: str) -> tuple[Any, str | None]:
    """Return the value and the etag of a record, None for each if it is absent."""
    outcome = await one(store, Get(key))
    return (decode(outcome.value), outcome.etag) if isinstance(outcome, Record) else (None, None)


class Orders(Opens):
    """A write with an order changes only what no write with a higher order has written."""

    async def test_a_store_without_tokens_rejects_orders(self, open_store: Open) -> None:
        store = await open_store()
        if store.capabilities.tokens:
            pytest.skip("the store keeps tokens")
        for asked in (putting(1, {}), updating(1, {}), deleting(1)):
            assert refused(await one(store, asked("a")), Unsupported)
        assert await one(store, Get("a")) is None

    @pytest.mark.parametrize("name", CONVERGING)
    async def test_every_sequence_of_writes_leaves_the_same_record(self, store: Store, name: str) -> None:
        writes, wanted = CONVERGING[name]
        sequences = {f"k{number}": sequence for number, sequence in enumerate(permutations(writes))}
        again = {f"{key}-again": (*sequence, *reversed(sequence)) for key, sequence in sequences.items()}
        for each in (sequences, again):
            for step in zip(*each.values(), strict=True):
                outcomes = await store.apply([asked(key) for key, asked in zip(each, step, strict=True)])
                assert all(isinstance(outcome, Written) for outcome in outcomes), outcomes
            for key, met in zip(each, await found(store, [*each]), strict=True):
                assert same(met, wanted), key
        assert len({*await scanned(store)}) == (0 if wanted is None else len(sequences) + len(again))

    @pytest.mark.parametrize("name", SUPERSEDED)
    async def test_a_write_that_changes_nothing_is_superseded(self, store: Store, name: str) -> None:
        before, asked, superseded = SUPERSEDED[name]
        for earlier in before:
            await store.apply([earlier("a"), earlier("b")])
        present = await state(store, "a")
        plain = await written(store, asked("a"))
        assert (plain.superseded, plain.replayed, plain.value) == (superseded, False, None)
        assert not superseded or await state(store, "a") == present
        assert plain.etag == (await state(store, "a"))[1]
        if isinstance(operation := asked("b"), Delete):
            return
        returned = await written(store, msgspec.structs.replace(operation, returning=True))
        assert returned.superseded == superseded
        assert (None if returned.value is None else decode(returned.value), returned.etag) == await state(store, "b")

    async def test_only_an_update_creates(self, store: Store) -> None:
        assert not (await written(store, putting(5, {})("a"))).created
        assert (await written(store, updating(5, {"a": 1})("b"))).created
        assert not (await written(store, updating(6, {"a": 1})("b"))).created
        await written(store, deleting(7)("b"))
        assert not (await written(store, updating(6, {})("b"))).created
        assert (await written(store, updating(8, {})("b"))).created

    async def test_a_member_that_repeats_the_key_is_not_a_member_of_the_value(self, open_store: Open) -> None:
        store = await open_store(key=COMPOSITE)
        needs(store, "tokens")
        key = ("ada", 7)
        await written(store, update(key, {"a": 7, "user": "ada", "day": 7}, order=7))
        older = update(key, {"$set": {"a": 6, "user": "ada"}, "$unset": ["day"]}, order=6, returning=True)
        answer = await written(store, older)
        assert answer.superseded
        assert same(decode(answer.value or b""), {"a": 7})
        for order in (6, 8):
            assert refused(await one(store, update(key, {"a": 8, "user": "grace"}, order=order)), InvalidOperation)
        assert same(await value(store, key), {"a": 7})

    async def test_the_value_after_an_ordered_write_is_returned(self, store: Store) -> None:
        await written(store, updating(7, {"a": 7})("a"))
        put_answer = await written(store, putting(5, {"a": 5, "b": 5}, returning=True)("a"))
        assert same(decode(put_answer.value or b""), {"a": 7, "b": 5})
        update_answer = await written(store, updating(6, {"a": 6, "b": 6}, returning=True)("a"))
        assert same(decode(update_answer.value or b""), {"a": 7, "b": 6})
        delete_answer = await written(store, deleting(6)("a"))
        assert (delete_answer.etag, delete_answer.value) == (await etag(store, "a"), None)
        assert same(await value(store, "a"), {"a": 7})

    @pytest.mark.parametrize("name", REFUSED)
    async def test_what_cannot_be_ordered_is_rejected(self, store: Store, name: str) -> None:
        await written(store, putting(5, {"a": 1, "b": [], "n": 1})("a"))
        present = await state(store, "a")
        assert refused(await one(store, REFUSED[name]("a")), InvalidOperation)
        assert refused(await one(store, REFUSED[name]("absent")), InvalidOperation)
        assert await state(store, "a") == present
        assert await one(store, Get("absent")) is None
        assert not (await written(store, updating(5, {"a": 2})("a"))).superseded, "its order is not remembered"

    @pytest.mark.parametrize("name", BY_HAND)
    async def test_a_write_without_an_order_stays_until_one_that_is_not_older(self, store: Store, name: str) -> None:
        by_hand, wanted = BY_HAND[name]
        cases: list[tuple[Asked, bool]] = [
            (putting(6, {"p": 1}), True),
            (deleting(6), True),
            (updating(4, {"h": 2}), True),
            (putting(7, {"p": 1}), False),
            (updating(8, {"u": 1}), False),
        ]
        keys = [f"k{number}" for number in range(len(cases))]
        for earlier in (putting(7, {"a": {}, "b": 1}), by_hand):
            await store.apply([earlier(key) for key in keys])
        assert all(same(met, wanted) for met in await found(store, keys))
        for key, (asked, superseded) in zip(keys, cases, strict=True):
            assert (await written(store, asked(key))).superseded == superseded, key
        assert all(same(met, wanted) for met in await found(store, keys[:3]))
        assert same(await value(store, keys[3]), {"p": 1})
        assert same(await value(store, keys[4]), {**(wanted or {}), "u": 1})

    async def test_a_write_without_an_order_keeps_the_orders_of_members(self, store: Store) -> None:
        for asked in (putting(5, {"a": 5, "b": 5}), updating(8, {"a": 8}), putting(None, {"a": 0, "b": 0})):
            await written(store, asked("a"))
        assert not (await written(store, updating(7, {"a": 7, "b": 7})("a"))).superseded
        assert same(await value(store, "a"), {"a": 0, "b": 7})
        await written(store, putting(9, {"b": 9})("a"))
        assert same(await value(store, "a"), {"b": 9})

    @pytest.mark.parametrize("ends", ["deleted", "expired"])
    async def test_a_record_that_ends_without_an_order_is_made_only_by_a_write_that_is_not_older(
        self, store: Store, time: Time, ends: str
    ) -> None:
        needs(store, "ttl")
        await written(store, putting(5, {"b": 5}, ttl_s=time.short_s if ends == "expired" else None)("a"))
        await written(store, updating(7, {"a": 7})("a"))
        if ends == "expired":
            await time.passes(time.short_s)
        else:
            await written(store, Delete("a"))
        for older in (putting(6, {"b": 6}), updating(6, {"b": 6}), updating(6, {"b": 6}, ttl_s=50), deleting(6)):
            answer = await written(store, older("a"))
            assert (answer.superseded, answer.etag) == (True, None)
        assert await one(store, Get("a")) is None
        assert (await written(store, updating(7, {"b": 7})("a"))).created
        assert same(await value(store, "a"), {"b": 7})
        assert (await record(store, "a")).expires_ms == 0

    # Memory

    @pytest.mark.parametrize("leaves", ["an ordered delete", "a delete without an order", "expiry"])
    async def test_an_absent_record_keeps_its_orders_for_a_time(
        self, open_store: Open, time: Time, leaves: str
    ) -> None:
        memory_s = time.short_s * 7
        store = await open_store(delete_memory_s=memory_s)
        needs(store, "tokens", "ttl")
        ttl_s = time.short_s if leaves == "expiry" else None
        await written(store, putting(5, {"a": 5}, ttl_s=ttl_s, token=Token("w", 1))("a"))
        if leaves == "expiry":
            await time.passes(time.short_s)
        else:
            await written(store, deleting(6 if leaves == "an ordered delete" else None)("a"))
        olders = {putting(4, {"a": 4}): True, updating(4, {"a": 4}): True, updating(4, {}): False, deleting(4): True}
        for older, superseded in olders.items():
            answer = await written(store, older("a"))
            assert (answer.etag, answer.superseded) == (None, superseded)
        assert await one(store, Get("a")) is None
        await time.passes(memory_s)
        assert not (await written(store, putting(4, {"a": 4})("a"))).superseded
        assert same(await value(store, "a"), {"a": 4})

    async def test_an_absent_record_keeps_its_orders_for_seven_days_by_default(self, store: Store, time: Time) -> None:
        await written(store, deleting(5, token=Token("w", 1))("a"))
        await time.passes(6.9 * 86_400)
        assert (await written(store, putting(4, {})("a"))).superseded
        await time.passes(0.2 * 86_400)
        assert not (await written(store, putting(4, {})("a"))).superseded

    async def test_an_expired_record_can_be_written_without_an_order(self, store: Store, time: Time) -> None:
        needs(store, "ttl")
        for key in "abc":
            await written(store, putting(5, {"a": 5}, ttl_s=time.short_s)(key))
        await time.passes(time.short_s)
        await store.apply([put("a", {"h": 1}), update("b", {"h": 1}, {"d": 1})])
        assert (await written(store, updating(6, {"u": 1})("c"))).created
        for key, wanted in (("a", {"h": 1}), ("b", {"h": 1, "d": 1}), ("c", {"u": 1})):
            assert (await written(store, putting(4, {})(key))).superseded
            assert same(await value(store, key), wanted)
            assert (await record(store, key)).expires_ms == 0

    async def test_forget_removes_tokens_and_orders(self, store: Store) -> None:
        for key, removed in (("a", None), ("b", deleting(9)), ("c", deleting(None))):
            await written(store, putting(9, {}, token=Token("w", 9))(key))
            if removed is not None:
                await written(store, removed(key))
            for _ in range(2):
                assert (await written(store, Delete(key, forget=True))).etag is None
                assert await one(store, Get(key)) is None
            answer = await written(store, putting(1, {"a": 1}, token=Token("w", 1))(key))
            assert (answer.superseded, answer.replayed) == (False, False)
            assert same(await value(store, key), {"a": 1})
        assert (await written(store, Delete("absent", forget=True))).etag is None

    async def test_a_thousand_members_may_be_newer_than_the_newest_put(self, store: Store) -> None:
        rest = {f"m{number:04}": number for number in range(1, 1000)}
        members = {"m0000": 0, **rest}
        for key, first in (("a", putting(5, {"p": 1})), ("b", deleting(5)), ("c", None)):
            if first is not None:
                await written(store, first(key))
            await written(store, updating(LAST - 1, members)(key))
            present = await state(store, key)
            assert refused(await one(store, updating(LAST - 1, {"more": 1})(key)), InvalidOperation)
            assert await state(store, key) == present
            await written(store, updating(LAST, {"m0000": None})(key))
            assert refused(await one(store, updating(7, {"more": 1})(key)), InvalidOperation)
            await written(store, putting(LAST - 1, members)(key))
            assert not (await written(store, updating(LAST, {"more": 1})(key))).superseded
            assert same(await value(store, key), {**rest, "more": 1})

    # Expiry

    async def test_the_expiry_belongs_to_the_newest_write_that_gives_one(self, open_store: Open, time: Time) -> None:
        store = await open_store(ttl_s=100)
        needs(store, "ttl", "tokens")
        newest = updating(7, {"a": 7}, ttl_s=3000)
        cases: list[tuple[list[Asked], int | None]] = [
            ([putting(5, {})], 100),
            ([putting(5, {}, ttl_s=1000)], 1000),
            ([putting(5, {}, ttl_s=NO_EXPIRY)], None),
            ([putting(5, {}, ttl_s=1000), updating(7, {"a": 7})], 1000),
            ([updating(7, {"a": 7}), putting(5, {}, ttl_s=1000)], 1000),
            ([updating(7, {"a": 7}), putting(5, {}, ttl_s=1000), putting(6, {})], 100),
            ([updating(7, {"a": 7})], 100),
            ([updating(7, {})], 100),
            ([putting(5, {}, ttl_s=1000), deleting(6), updating(7, {"a": 7})], 100),
            ([putting(5, {}, ttl_s=1000), newest], 3000),
            ([newest, putting(5, {}, ttl_s=1000)], 3000),
            ([newest, deleting(6)], 3000),
            ([newest, updating(6, {"b": 6}, ttl_s=1000)], 3000),
            ([newest, updating(8, {"b": 8}, ttl_s=NO_EXPIRY), putting(6, {})], None),
            ([newest, putting(8, {}, ttl_s=1000)], 1000),
            ([updating(7, {"a": 7}), updating(6, {"a": 6}, ttl_s=1000)], 1000),
            ([putting(5, {}), updating(8, {"b": 8}), updating(7, {}, ttl_s=1000), putting(6, {}, ttl_s=500)], 1000),
            ([newest, putting(None, {}, ttl_s=50), putting(6, {}, ttl_s=1000)], 50),
            ([newest, updating(None, {"a": 0}, ttl_s=50), updating(7, {"a": 7}, ttl_s=1000)], 1000),
        ]
        for number, (writes, ttl_s) in enumerate(cases):
            for asked in writes:
                answer = await written(store, asked(f"k{number}"))
            expires_ms = (await record(store, f"k{number}")).expires_ms
            assert answer.expires_ms == expires_ms, number
            assert (expires_ms == 0) == (ttl_s is None), number
            assert ttl_s is None or abs(expires_ms - time.now_ms() - ttl_s * 1000) <= 5000, number

    async def test_an_update_may_change_only_the_expiry(self, store: Store, time: Time) -> None:
        needs(store, "ttl")
        await written(store, updating(8, {"a": 8})("a"))
        answer = await written(store, updating(7, {"a": 7}, ttl_s=60, token=Token("w", 1), returning=True)("a"))
        assert answer.superseded
        assert same(decode(answer.value or b""), {"a": 8})
        assert answer.etag == await etag(store, "a")
        assert abs((await record(store, "a")).expires_ms - time.now_ms() - 60_000) <= 5000
        assert not (await written(store, updating(9, {"a": 9}, token=Token("w", 1))("a"))).replayed

    # Tokens

    async def test_a_token_is_checked_before_the_order(self, store: Store) -> None:
        await written(store, updating(7, {"a": 7}, token=Token("w", 2))("a"))
        for asked in (updating(9, {"a": 9}), updating(6, {"a": 6}), updating(9, {"$inc": {"a": 1}}), deleting(9)):
            answer = await written(store, msgspec.structs.replace(asked("a"), token=Token("w", 2)))
            assert (answer.replayed, answer.superseded) == (True, False)
        assert same(await value(store, "a"), {"a": 7})

    async def test_a_superseded_write_uses_up_no_token(self, store: Store) -> None:
        token = Token("w", 5)
        for key, present in (("a", putting(9, {"a": 9})), ("b", deleting(9)), ("c", updating(9, {"a": 9}))):
            await written(store, present(key))
            for _ in range(2):
                answer = await written(store, updating(8, {"a": 8}, token=token)(key))
                assert (answer.superseded, answer.replayed) == (True, False)
            assert not (await written(store, updating(10, {"a": 10}, token=token)(key))).replayed
            assert (await written(store, updating(11, {"a": 11}, token=token)(key))).replayed
            assert same(await value(store, key), {"a": 10})

    async def test_an_ordered_delete_remembers_its_token(self, store: Store) -> None:
        await written(store, deleting(5, token=Token("w", 1))("a"))
        assert (await written(store, putting(6, {}, token=Token("w", 1))("a"))).replayed
        assert (await written(store, put("a", {}, token=Token("w", 1)))).replayed
        assert not (await written(store, putting(6, {}, token=Token("w", 2))("a"))).replayed

    # Several at once

    async def test_a_batch_mixes_writes_with_and_without_orders(self, store: Store) -> None:
        keys = [f"k{number:03}" for number in range(300)]
        orders = [(None, 4, 5, 6)[number % 4] for number in range(len(keys))]
        for kind in (putting, updating):
            await store.apply([putting(5, {"n": 0})(key) for key in keys])
            rows = enumerate(zip(keys, orders, strict=True))
            asked = [kind(order, {"n": 1}, returning=bool(number % 3))(key) for number, (key, order) in rows]
            outcomes = [outcome for outcome in await store.apply(asked) if isinstance(outcome, Written)]
            assert [outcome.superseded for outcome in outcomes] == [order == 4 for order in orders]
            values = [{"n": 0 if order == 4 else 1} for order in orders]
            assert await found(store, keys) == values
            returned = [outcome.value and decode(outcome.value) for outcome in outcomes]
            assert returned == [one if number % 3 else None for number, one in enumerate(values)]
            await store.apply([Delete(key, forget=True) for key in keys])

    async def test_concurrent_writes_leave_what_the_newest_wrote(self, store: Store) -> None:
        writes = [putting(order, {"p": order}) for order in range(0, 32, 3)]
        writes += [updating(order, {"abc"[order % 3]: order}) for order in range(1, 32, 3)]
        writes += [deleting(order) for order in range(2, 33, 3)]
        random.Random(1).shuffle(writes)
        await asyncio.gather(*(written(store, asked("a")) for asked in writes))
        assert await one(store, Get("a")) is None
        assert (await written(store, updating(31, {"a": 31})("a"))).superseded
        assert (await written(store, updating(33, {"a": 33})("a"))).created
