"""Orders as attributes of items: DynamoDB deletes an item only when its orders are no longer needed."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from contract import Time, one, put, record, refused, same, scanned, update, value, written
from support.dynamodb_tables import fresh_table, get_item, opened, put_item
from tableside.core.errors import RecordNotFound, RecordUnreadable, TooLarge
from tableside.core.operations import Delete, Get, Operation, Token, Write, Written
from tableside.stores.dynamodb.client import Client

KEY = {"id": {"S": "a"}}
DAY_S = 86_400
LATEST = 2**63 - 1


@pytest.fixture
async def name(dynamodb_client: Client) -> AsyncIterator[str]:
    async with fresh_table(dynamodb_client, {"id": "S"}) as name:
        yield name


@pytest.fixture
def time() -> Time:
    return Time(real=False)


DELETED_AT: dict[str, tuple[Sequence[Write], float | None, int | None]] = {
    "put": ([put("a", ttl_s=60.5, order=5)], 60.5, 7 * DAY_S + 61),
    "put without order": ([put("a", order=5), put("a", ttl_s=60)], 60, 7 * DAY_S + 60),
    "update without order": ([put("a", order=5), update("a", {"n": 1}, ttl_s=60)], 60, 7 * DAY_S + 60),
    "increment": ([put("a", order=5), update("a", {"$inc": {"n": 1}}, ttl_s=60)], 60, 7 * DAY_S + 60),
    "first order": ([put("a", ttl_s=60), update("a", {"n": 1}, order=5)], 60, 7 * DAY_S + 60),
    "expiry alone": ([put("a", {"n": 1}, order=5), update("a", {}, ttl_s=60, order=6)], 60, 7 * DAY_S + 60),
    "kept": ([put("a", ttl_s=60, order=5), update("a", {"n": 1})], 60, 7 * DAY_S + 60),
    "removed by update": ([put("a", ttl_s=60, order=5), update("a", {}, ttl_s=-1)], None, None),
    "removed by put": ([put("a", ttl_s=60, order=5), put("a")], None, None),
    "delete without order": ([put("a", order=5), Delete("a")], 7 * DAY_S, 7 * DAY_S),
    "delete": ([put("a", ttl_s=60, order=4), Delete("a", order=5)], 7 * DAY_S, 7 * DAY_S),
    "forgotten": ([put("a", ttl_s=60, order=5), Delete("a", forget=True), put("a", ttl_s=60)], 60, 60),
}
"""Writes, and in how many seconds the item expires, and DynamoDB deletes it."""


@pytest.mark.parametrize(("writes", "expires_s", "deleted_s"), DELETED_AT.values(), ids=DELETED_AT)
async def test_dynamodb_deletes_an_item_when_its_orders_are_no_longer_needed(
    dynamodb_client: Client,
    name: str,
    time: Time,
    writes: Sequence[Write],
    expires_s: float | None,
    deleted_s: int | None,
) -> None:
    store = await opened(dynamodb_client, name, time.now_ms)
    for write in writes:
        await written(store, write)
    item, now = await get_item(dynamodb_client, name, KEY), time.now_ms()
    assert item.get("_ts_x") == (None if expires_s is None else {"N": f"{now + round(1000 * expires_s)}"})
    assert item.get("_ts_expires") == (None if deleted_s is None else {"N": f"{now // 1000 + deleted_s}"})


async def test_an_expired_item_is_absent_and_keeps_its_orders(dynamodb_client: Client, name: str, time: Time) -> None:
    store = await opened(dynamodb_client, name, time.now_ms)
    keys = [f"{index}" for index in range(6)]
    await store.apply([put(key, {"n": 1}, ttl_s=60, order=LATEST) for key in keys])
    await time.passes(60)
    assert await store.apply([Get(key) for key in keys]) == [None] * 6
    assert await scanned(store) == []
    assert refused(await one(store, update("0", {"n": 2})), RecordNotFound)
    made: list[Operation] = [
        update("0", {"n": 2}, {"m": 1}),
        update("1", {"n": 2}, {"m": 1}, ttl_s=60),
        put("2", {"n": 2, "m": 1}, if_absent=True),
        put("3", {"n": 2, "m": 1}),
    ]
    assert [outcome.created for outcome in await store.apply(made) if isinstance(outcome, Written)] == [
        *[True, True, True, False]
    ]
    older = await store.apply([put(key, order=LATEST - 1) for key in keys])
    assert [outcome.superseded for outcome in older if isinstance(outcome, Written)] == [True] * 6
    for key in keys[:4]:
        assert same(await value(store, key), {"n": 2, "m": 1})
    await time.passes(7 * DAY_S)
    assert not (await written(store, put("4", order=LATEST - 1))).superseded
    assert (await written(store, put("3", order=LATEST - 1))).superseded


@pytest.mark.parametrize("count", [1, 20], ids=["alone", "many"])
async def test_writes_without_an_order_keep_the_orders(dynamodb_client: Client, name: str, count: int) -> None:
    store = await opened(dynamodb_client, name)
    keys, lowest = [f"{index}" for index in range(count)], -(2**63)
    for token in (Token("w", 1), None):
        await store.apply([put(key, order=LATEST, token=token) for key in keys])
    for write in (put, update, Delete):
        document = () if write is Delete else ({"n": 1},)
        await store.apply([write(key, *document) for key in keys])
        older = await store.apply([put(key, {"n": 2}, order=LATEST - 1) for key in keys])
        assert [outcome.superseded for outcome in older if isinstance(outcome, Written)] == [True] * count
    await store.apply([Delete(key, forget=True) for key in keys])
    for key in keys:
        assert await get_item(dynamodb_client, name, {"id": {"S": key}}) == {}
    await store.apply([put(key, {"n": 3}, order=lowest) for key in keys])
    assert same(await value(store, keys[-1]), {"n": 3})
    assert not (await written(store, put(keys[0], token=Token("w", 1)))).replayed


async def test_an_update_of_an_item_with_orders_is_one_call(
    dynamodb_client: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(dynamodb_client, name)
    await written(store, put("a", ttl_s=60, order=5))
    calls: list[str] = []
    write = store._calls.write

    async def counted(verb: str, *rest: Any) -> Any:
        calls.append(verb)
        return await write(verb, *rest)

    monkeypatch.setattr(store._calls, "write", counted)
    await written(store, update("a", {"n": 1}))
    assert calls == ["update_item"]
    assert (await written(store, put("a", order=4))).superseded


async def test_orders_count_for_the_size_of_an_item(dynamodb_client: Client, name: str) -> None:
    store = await opened(dynamodb_client, name)
    fits = {"s": "x" * (400 * 1024 - 100)}
    long, alone = "y" * 1000, {"s": "x" * (400 * 1024 - 40)}
    await store.apply([put("a", fits, order=1), put("b", alone)])
    for write in (
        update("a", {"$unset": [long]}, order=2),
        put("a", fits, order=2, token=Token(long, 1)),
        put("b", alone, order=LATEST),
    ):
        assert refused(await one(store, write), TooLarge), write.key
    assert [same(await value(store, "a"), fits), same(await value(store, "b"), alone)] == [True, True]
    assert not (await written(store, put("a", {}, order=1))).superseded


async def test_another_tool_can_change_an_item_with_orders(dynamodb_client: Client, name: str, time: Time) -> None:
    store = await opened(dynamodb_client, name, time.now_ms)
    await written(store, put("a", {"n": 1}, ttl_s=60, order=5))
    item, soon = await get_item(dynamodb_client, name, KEY), time.now_ms() // 1000 + 30
    await put_item(dynamodb_client, name, {**item, "_ts_expires": {"N": f"{soon}"}})
    assert (await record(store, "a")).expires_ms == soon * 1000
    await put_item(dynamodb_client, name, {**item, "n": {"S": "nul \0"}})
    assert refused(await one(store, Get("a")), RecordUnreadable)
    await written(store, put("a", {"n": 2}))
    assert (await written(store, put("a", {"n": 1}, order=4))).superseded
    assert same(await value(store, "a"), {"n": 2})
