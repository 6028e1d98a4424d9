"""Contract tests: one independent outcome per operation, in order."""

from collections.abc import Callable

import pytest

from tableside.core import NOT_READ, Batch, Put, values
from tableside.core.errors import InvalidOperation, RecordNotFound
from tableside.core.keys import KeySchema
from tableside.core.operations import Delete, Get, Key, Operation, Outcome, Record, Token, Written

from .opening import Open, Opens
from .words import INTEGERS, STRINGS, etag, one, put, record, refused, same, text, update, value, written


def described(outcome: Outcome) -> object:
    """Return what a get shows of a record."""
    return (values.decode(outcome.value), outcome.etag, outcome.expires_ms) if isinstance(outcome, Record) else outcome


class Basics(Opens):
    """Promises 1, 3, 4, 7 and 8: each operation has one independent outcome, in order, in batches of any size."""

    async def test_no_operations_have_no_outcomes(self, open_store: Open) -> None:
        store = await open_store()
        assert await store.apply([]) == []
        assert list(await store.apply(Batch(Get, {"key": []}))) == []
        assert list(await store.apply(Batch(Put, {"key": [], "value": []}))) == []

    async def test_a_put_record_is_returned_unchanged(self, open_store: Open) -> None:
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

    async def test_a_deleted_record_is_absent_and_can_be_deleted_again(self, open_store: Open) -> None:
        store = await open_store()
        await written(store, put("a", {"n": 1}))
        first = await written(store, Delete("a"))
        assert (first.etag, first.created, first.replayed) == (None, False, False)
        assert await one(store, Get("a")) is None
        assert (await written(store, Delete("a"))).etag is None
        assert refused(await one(store, update("a", {"n": 2})), RecordNotFound)

    async def test_outcomes_have_the_order_of_operations(self, open_store: Open) -> None:
        store = await open_store()
        await store.apply([put(key, {"key": key}) for key in "fdb"])
        first = await store.apply([Get("f"), Get("e"), put("c"), Get("d"), Delete("x")])
        second = await store.apply([update("b", {"n": 1}), update("y", {"n": 1}), Get("z"), Get("c"), put("w")])
        found = [
            values.decode(outcome.value).get("key") if isinstance(outcome, Record) else outcome and type(outcome)
            for outcome in [*first, *second]
        ]
        assert found == ["f", None, Written, "d", Written, Written, RecordNotFound, None, None, Written]

    async def test_a_failed_operation_does_not_affect_the_others(self, open_store: Open) -> None:
        store = await open_store()
        await store.apply([put("full", {"rich": "data"}), put("word", {"n": "x"})])
        outcomes = await store.apply(
            [
                update("full", {"$inc": {"n": 1}}),
                update("absent", {"$inc": {"n": 1}}),
                update("word", {"$inc": {"n": 1}}),
                put("there", {"n": 1}),
                update("new", {"$inc": {"n": 1}}, {"n": 10}),
                Get("nothing"),
            ]
        )
        assert isinstance(outcomes[0], Written)
        assert refused(outcomes[1], RecordNotFound)
        assert refused(outcomes[2], InvalidOperation)
        assert isinstance(outcomes[3], Written)
        assert isinstance(outcomes[4], Written)
        assert outcomes[5] is None
        assert await one(store, Get("absent")) is None
        assert same(await value(store, "full"), {"rich": "data", "n": 1})
        assert same(await value(store, "word"), {"n": "x"})
        assert same(await value(store, "there"), {"n": 1})
        assert same(await value(store, "new"), {"n": 11})

    async def test_five_thousand_operations_in_one_call(self, open_store: Open) -> None:
        store, count = await open_store(), 5000
        outcomes = await store.apply([put(f"{index:05}", {"n": index}) for index in range(count)])
        assert {type(outcome) for outcome in outcomes} == {Written}
        kinds: list[Callable[[str], Operation]] = [
            Get,
            lambda key: update(key, {"$inc": {"n": 1}}, returning=True),
            Delete,
        ]
        outcomes = await store.apply([kinds[index % 3](f"{index:05}") for index in range(count)])
        for index, outcome in enumerate(outcomes):
            assert isinstance(outcome, Written if index % 3 else Record)
            told = None if outcome.value is None else values.decode(outcome.value)
            assert told == ({"n": index}, {"n": index + 1}, None)[index % 3]
        for index, outcome in enumerate(await store.apply([Get(f"{index:05}") for index in range(count)])):
            kept = values.decode(outcome.value)["n"] if isinstance(outcome, Record) else outcome
            assert kept == (index, index + 1, None)[index % 3]

    @pytest.mark.parametrize("key", [STRINGS, INTEGERS], ids=["strings", "integers"])
    async def test_columns_of_puts_and_of_gets_have_the_outcomes_of_single_ones(
        self, open_store: Open, key: KeySchema
    ) -> None:
        store = await open_store(key=key)
        numbers = [index * 7919 % 200 - 100 for index in range(200)]
        keys: list[Key] = [f"ü{number}" for number in numbers] if key == STRINGS else [*numbers]
        token = Token("w", 5) if store.capabilities.tokens else None
        ttl_s = 3600 if store.capabilities.ttl else None
        await store.apply([put(one_key, {"n": 1}, token=token, ttl_s=ttl_s) for one_key in keys[::3]])
        await store.apply([put(one_key, {"n": 1}, ttl_s=ttl_s) for one_key in keys[2::3]])
        texts = [text(key=str(one_key), s="ü" * (index % 5)) for index, one_key in enumerate(keys[:150])]
        outcomes = await store.apply(Batch(Put, {"key": keys[:150], "value": texts}))
        found = [*map(described, await store.apply(Batch(Get, {"key": keys})))]
        assert found == [described(await one(store, Get(one_key))) for one_key in keys]
        assert [at for at, outcome in enumerate(found) if outcome is None] == [*range(151, 200, 3)]
        for outcome, acknowledged, written_text in zip(found[:150], outcomes, texts, strict=True):
            assert isinstance(acknowledged, Written)
            assert outcome == (values.decode(written_text), acknowledged.etag, 0)
        forgetful = [index for index in range(len(keys)) if index % 3]
        again = await store.apply(Batch(Get, {"key": [keys[index] for index in forgetful]}))
        assert [*map(described, again)] == [found[index] for index in forgetful]
        for one_key in keys[::30] if token else ():
            assert (await written(store, put(one_key, {"n": 3}, token=token))).replayed

    async def test_a_large_call_succeeds_and_gets_beyond_its_limit_succeed_in_the_next_call(
        self, open_store: Open
    ) -> None:
        store = await open_store()
        long = "x" * 60_000
        outcomes = await store.apply([put(f"{index}", {"long": long, "n": index}) for index in range(400)])
        assert {type(outcome) for outcome in outcomes} == {Written}
        waiting, found = [*range(400)], {}
        while waiting:
            outcomes = await store.apply([Get(f"{index}") for index in waiting])
            read = {index: outcome for index, outcome in zip(waiting, outcomes, strict=True) if outcome is not NOT_READ}
            assert read, "each call reads at least one record"
            found.update(read)
            waiting = [index for index in waiting if index not in read]
        assert all(isinstance(one, Record) and values.decode(one.value)["n"] == n for n, one in found.items())

    async def test_a_value_is_returned_on_request(self, open_store: Open) -> None:
        store = await open_store()
        made = await written(store, put("a", {"n": 1}, returning=True))
        assert made.value is not None
        assert same(values.decode(made.value), {"n": 1})
        changed = await written(store, update("a", {"m": None, "k": "x"}, returning=True))
        assert changed.value is not None
        assert same(values.decode(changed.value), {"n": 1, "k": "x"})
        assert changed.etag == await etag(store, "a")
        assert (await written(store, update("a", {}))).value is None
