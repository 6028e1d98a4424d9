"""Orders as attributes of items: DynamoDB deletes an item only when its orders are no longer needed."""

from collections.abc import AsyncIterator, Sequence

import pytest

from contract import Time, one, put, record, refused, same, update, value, written
from support.dynamodb_tables import fresh_table, get_item, opened, put_item
from tableside.core.errors import RecordUnreadable, TooLarge
from tableside.core.operations import Delete, Get, Token, Write
from tableside.stores.dynamodb.client import Client

KEY = {"id": {"S": "a"}}
DAY_S = 86_400


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
