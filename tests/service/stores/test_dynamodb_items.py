"""Items that other tools wrote, as the DynamoDB store reads them, and its own items, as other tools read them."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from contract import Time, freed_at_once, one, put, record, refused, same, scanned, update, value, written
from contract.foreign import ForeignRecords
from contract.ordered_writes import KEPT_FOR_S, MEMORY_S
from support.dynamodb_tables import fresh_table, get_item, make, opened, put_item
from tableside.core.errors import InvalidOperation, RecordNotFound, RecordUnreadable, TooLarge
from tableside.core.operations import Get, Token, Written
from tableside.core.store import Scan, Store, now_ms
from tableside.stores.dynamodb.backend import DynamodbTableOptions
from tableside.stores.dynamodb.client import Client

KEY = {"id": {"S": "a"}}

OF_OTHERS = {
    "text": {"S": "x"},
    "whole": {"N": "5"},
    "exact": {"N": "0.1234567890123456789012345678901234567"},
    "large": {"N": "1E+30"},
    "strings": {"SS": ["b", "a"]},
    "numbers": {"NS": ["10", "9", "0.5"]},
    "bytes": {"B": "AP8="},
    "several": {"BS": ["Yg==", "YQ=="]},
    "nested": {"M": {"tags": {"SS": ["t"]}, "blob": {"B": "IQ=="}, "n": {"N": "1"}}},
    "list": {"L": [{"SS": ["t"]}, {"NULL": True}, {"BOOL": False}]},
}
AS_VALUE = {
    "text": "x",
    "whole": 5,
    "exact": 0.12345678901234568,
    "large": 1e30,
    "strings": ["a", "b"],
    "numbers": [0.5, 9, 10],
    "bytes": "AP8=",
    "several": ["YQ==", "Yg=="],
    "nested": {"tags": ["t"], "blob": "IQ==", "n": 1},
    "list": [["t"], None, False],
}


def sorted_sets(attribute: Any) -> Any:
    """Return an attribute with sorted sets."""
    if isinstance(attribute, list):
        return [sorted_sets(one) for one in attribute]
    if not isinstance(attribute, dict):
        return attribute
    return {name: sorted(one) if name in ("SS", "NS", "BS") else sorted_sets(one) for name, one in attribute.items()}


@pytest.fixture
async def name(dynamodb_client: Client) -> AsyncIterator[str]:
    async with fresh_table(dynamodb_client, {"id": "S"}) as name:
        yield name


async def test_the_members_of_a_value_are_attributes(dynamodb_client: Client, name: str) -> None:
    store = await opened(dynamodb_client, name)
    await written(store, put("a", {"n": 1, "half": 0.5, "s": "x", "l": [None, True], "o": {"p": {}}}, ttl_s=60))
    item = await get_item(dynamodb_client, name, KEY)
    side_attributes = {attribute: item.pop(attribute) for attribute in list(item) if attribute.startswith("_ts")}
    assert item == {
        "id": {"S": "a"},
        "n": {"N": "1"},
        "half": {"N": "0.5"},
        "s": {"S": "x"},
        "l": {"L": [{"NULL": True}, {"BOOL": True}]},
        "o": {"M": {"p": {"M": {}}}},
    }
    assert side_attributes.keys() == {"_ts_v", "_ts_x", "_ts_expires"}
    assert 0 < int(side_attributes["_ts_expires"]["N"]) - now_ms() // 1000 <= 61


@pytest.mark.parametrize("what", KEPT_FOR_S)
async def test_dynamodb_keeps_an_item_with_orders_for_longer(dynamodb_client: Client, name: str, what: str) -> None:
    writes, kept_for_s = KEPT_FOR_S[what]
    store = await opened(dynamodb_client, name, delete_memory_s=MEMORY_S)
    for asked in writes:
        await written(store, asked("a"))
    item = await get_item(dynamodb_client, name, KEY)
    assert ("_ts_expires" in item) == (kept_for_s is not None)
    assert kept_for_s is None or abs(int(item["_ts_expires"]["N"]) - now_ms() // 1000 - kept_for_s) <= 5


async def test_an_item_of_another_tool_is_read(dynamodb_client: Client, name: str) -> None:
    await put_item(dynamodb_client, name, KEY | OF_OTHERS)
    store = await opened(dynamodb_client, name)
    assert same(await value(store, "a"), AS_VALUE)
    found = await record(store, "a")
    assert found.etag == (await record(store, "a")).etag
    [(key, scanned_record)] = (await store.scan(Scan(10))).records
    assert (key, scanned_record) == ("a", found)


async def test_an_update_preserves_the_types_of_other_members(dynamodb_client: Client, name: str) -> None:
    await put_item(dynamodb_client, name, KEY | OF_OTHERS)
    before = await get_item(dynamodb_client, name, KEY)
    store = await opened(dynamodb_client, name)
    for turn in range(2):  # the first by compare and set, the second by expression
        await written(store, update("a", {"text": f"{turn}", "nested": {"n": turn}}))
        await written(store, update("a", {"$push": {"list": turn}}))
    after = await get_item(dynamodb_client, name, KEY)
    before["text"] = {"S": "1"}
    before["nested"]["M"]["n"] = {"N": "1"}
    before["list"]["L"] += [{"N": "0"}, {"N": "1"}]
    assert "_ts_v" in after
    del after["_ts_v"]
    assert sorted_sets(after) == sorted_sets(before)


async def test_a_change_of_another_tool_changes_the_etag_and_is_not_overwritten(
    dynamodb_client: Client, name: str
) -> None:
    store = await opened(dynamodb_client, name)
    first = (await written(store, put("a", {"n": 1, "m": 1}))).etag
    assert first is not None
    change = {
        "TableName": name,
        "Key": KEY,
        "UpdateExpression": "SET n = :n",
        "ExpressionAttributeValues": {":n": {"N": "7"}},
    }
    await dynamodb_client.call("update_item", change)
    assert (await record(store, "a")).etag != first
    assert await one(store, put("a", {}, if_match=(first,))) is not None
    assert same(await value(store, "a"), {"n": 7, "m": 1})
    await written(store, update("a", {"$inc": {"n": 1}}))
    assert same(await value(store, "a"), {"n": 8, "m": 1})


@pytest.mark.parametrize("ours", [True, False], ids=["our item", "theirs"])
async def test_a_change_of_another_tool_between_read_and_write_is_detected(
    dynamodb_client: Client, name: str, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(dynamodb_client, name)
    if ours:
        await written(store, put("a", {"n": 1, "list": [1]}))
    else:
        await put_item(dynamodb_client, name, {**KEY, "n": {"N": "1"}, "list": {"L": [{"N": "1"}]}})
    call = store._calls.call
    turns: list[int] = []

    async def late(verb: str, parameters: dict[str, Any], until: float, *, writes: bool = False) -> Any:
        if writes and not turns:
            turns.append(1)
            change = {"Key": KEY, "UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": {"N": "10"}}}
            await dynamodb_client.call("update_item", {"TableName": name, **change})
        return await call(verb, parameters, until, writes=writes)

    monkeypatch.setattr(store._calls, "call", late)
    await written(store, update("a", {"$inc": {"m": 1}, "$set": {"n": 2}, "$push": {"list": 1}}))
    assert same(await value(store, "a"), {"n": 2, "m": 1, "list": [1, 1]})
    turns.clear()
    await written(store, update("a", {"$inc": {"n": 1}}))
    assert same(await value(store, "a"), {"n": 13, "m": 1, "list": [1, 1]})


class TestForeignRecords(ForeignRecords):
    valid: Any = {"n": {"N": "1.0"}, "s": {"S": "x"}}  # noqa: RUF012  # it is not changed
    invalid: Any = ({"x": {"S": "nul \0"}}, {"x": {"M": {"x": {"S": "\0"}}}})

    @pytest.fixture(autouse=True)
    def _table(self, dynamodb_client: Client, name: str) -> None:
        self.client, self.name = dynamodb_client, name

    @asynccontextmanager
    async def containing(self, records: Mapping[str, Any]) -> AsyncIterator[Store]:
        for key, item in records.items():
            await put_item(self.client, self.name, {"id": {"S": key}, **item})
        yield await opened(self.client, self.name)


@pytest.mark.parametrize(
    ("keys", "item", "named"),
    [
        ({"id": "N"}, {"id": {"N": "1.5"}}, "`1.5`: another tool wrote the item, and its 'id' is not a valid integer"),
        ({"id": "S"}, {"id": {"S": "k" * 1025}}, "'id' is not a valid string of a key"),
        ({"id": "S", "at": "N"}, {"id": {"S": "a"}, "at": {"N": "0.5"}}, r'`\["a","0.5"\]`: .* its \'at\' is not'),
    ],
    ids=["fraction", "long", "composite"],
)
async def test_a_scan_names_a_key_that_no_record_can_have(
    dynamodb_client: Client, keys: dict[str, str], item: dict[str, Any], named: str
) -> None:
    async with fresh_table(dynamodb_client, keys) as name:
        await put_item(dynamodb_client, name, item | {"n": {"N": "1"}})
        store = await opened(dynamodb_client, name)
        with pytest.raises(RecordUnreadable, match="the scan cannot continue at the key ") as caught:
            await store.scan(Scan(10))
        assert re.search(named, caught.value.detail), caught.value.detail


async def test_an_item_that_another_tool_lets_expire_does(dynamodb_client: Client, name: str) -> None:
    time = Time(real=False)
    store = await opened(dynamodb_client, name, time.now_ms)
    seconds = time.now_ms() // 1000
    for key, expires in {"soon": seconds + 5, "past": seconds - 5, "mistaken": 0, "later": seconds + 100}.items():
        await put_item(dynamodb_client, name, {"id": {"S": key}, "n": {"N": "1"}, "_ts_expires": {"N": str(expires)}})
    assert await one(store, Get("past")) is None
    assert set(await scanned(store)) == {"soon", "mistaken", "later"}
    assert (await record(store, "soon")).expires_ms == (seconds + 5) * 1000
    assert (await record(store, "mistaken")).expires_ms == 0
    assert refused(await one(store, update("past", {"n": 2})), RecordNotFound)
    assert (await written(store, update("past", {"$inc": {"n": 1}}, {"n": 10}))).created
    assert await value(store, "past") == {"n": 11}
    await written(store, update("later", {"n": 2}))
    await time.passes(5)
    assert await one(store, Get("soon")) is None
    assert (await written(store, put("soon", {"n": 3}, if_absent=True))).created
    assert (await record(store, "later")).expires_ms == (seconds + 100) * 1000


async def test_the_attribute_of_expiry_can_have_any_name_and_is_no_member(dynamodb_client: Client, name: str) -> None:
    store = await opened(dynamodb_client, name, options=DynamodbTableOptions(ttl_attribute="end.s"))
    await written(store, put("a", {"n": 1}, ttl_s=60))
    assert "end.s" in await get_item(dynamodb_client, name, KEY)
    assert await value(store, "a") == {"n": 1}
    clash = {"end.s": 1}
    for write in (put("a", clash), put("b", clash, if_absent=True), update("a", clash), update("c", {"n": 1}, clash)):
        assert refused(await one(store, write), InvalidOperation), write
    many = await store.apply([put("a", clash), *(put(f"{index}") for index in range(10))])
    assert refused(many[0], InvalidOperation)
    assert {type(outcome) for outcome in many[1:]} == {Written}
    assert await value(store, "a") == {"n": 1}


@pytest.mark.parametrize("number", [1e126, -1e300, 1e-131, 5e-324])
async def test_numbers_outside_dynamodbs_range_are_rejected(dynamodb_client: Client, name: str, number: float) -> None:
    store = await opened(dynamodb_client, name)
    await written(store, put("a", {"n": 1}))
    for write in (
        put("a", {"x": [number]}),
        put("b", {"x": number}, if_absent=True),
        update("a", {"x": number}),
        update("a", {"$inc": {"y": number}}),
        update("b", {"x": 1}, {"y": number}),
    ):
        assert refused(await one(store, write), InvalidOperation)
    outcomes = [*await store.apply([put(f"{index}", {"n": number if index == 3 else 1}) for index in range(8)])]
    assert [isinstance(outcome, Written) for outcome in outcomes] == [index != 3 for index in range(8)]
    assert freed_at_once(outcomes)
    assert same(await value(store, "a"), {"n": 1})


async def test_an_item_of_400_kb_is_written_and_a_larger_one_rejected(dynamodb_client: Client, name: str) -> None:
    store = await opened(dynamodb_client, name)
    fits, beyond = "x" * (400 * 1024 - 60), "x" * (400 * 1024 - 3)
    await written(store, put("a", {"s": fits}))
    for write in (
        put("a", {"s": beyond}),
        put("b", {"s": beyond}, if_absent=True),
        put("a", {"s": beyond}, if_match=("*",)),
        put("b", {"s": beyond}, token=Token("w", 1)),
        update("a", {"more": "x" * 1000}),
        update("a", {"$set": {"more": "x" * 1000}}, if_match=("*",)),
        update("b", {"n": 1}, {"s": beyond}),
    ):
        assert refused(await one(store, write), TooLarge), write.key
    outcomes = await store.apply([put(f"{index}", {"s": beyond if index == 3 else "x"}) for index in range(8)])
    assert [isinstance(outcome, Written) for outcome in outcomes] == [index != 3 for index in range(8)]
    assert await value(store, "a") == {"s": fits}
    assert await one(store, Get("b")) is None


async def test_an_item_that_dynamodb_rejects_does_not_affect_its_batch(dynamodb_client: Client) -> None:
    """Only the item is rejected whose attribute has another type than the table's index declares."""
    name = "t-index"
    index = {
        "IndexName": "by-n",
        "KeySchema": [{"AttributeName": "n", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    types = [{"AttributeName": "id", "AttributeType": "S"}, {"AttributeName": "n", "AttributeType": "N"}]
    await make(dynamodb_client, name, {"id": "S"}, AttributeDefinitions=types, GlobalSecondaryIndexes=[index])
    store = await opened(dynamodb_client, name)
    outcomes = await store.apply([put(f"{turn}", {"n": "text" if turn == 7 else turn}) for turn in range(60)])
    assert refused(outcomes[7], InvalidOperation)
    assert [isinstance(outcome, Written) for outcome in outcomes].count(False) == 1
    assert len(await scanned(store)) == 59
    await dynamodb_client.call("delete_table", {"TableName": name})


# Orders


async def test_orders_count_for_the_size_of_an_item(dynamodb_client: Client, name: str) -> None:
    store = await opened(dynamodb_client, name)
    fits = {"s": "x" * (400 * 1024 - 100)}
    long, alone = "y" * 1000, {"s": "x" * (400 * 1024 - 40)}
    await store.apply([put("a", fits, order=1), put("b", alone)])
    for write in (
        update("a", {"$unset": [long]}, order=2),
        put("a", fits, order=2, token=Token(long, 1)),
        put("b", alone, order=2**63 - 1),
    ):
        assert refused(await one(store, write), TooLarge), write.key
    assert [same(await value(store, "a"), fits), same(await value(store, "b"), alone)] == [True, True]
    assert not (await written(store, put("a", {}, order=1))).superseded
