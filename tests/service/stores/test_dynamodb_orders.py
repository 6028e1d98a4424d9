"""Orders as attributes of items: DynamoDB deletes an item only when its orders are no longer needed."""

from collections.abc import AsyncIterator

import pytest

from contract import Time, one, put, record, refused, same, update, value, written
from support.dynamodb_tables import fresh_table, get_item, opened, put_item
from tableside.core.errors import RecordUnreadable, TooLarge
from tableside.core.operations import Get, Token
from tableside.stores.dynamodb.client import Client

KEY = {"id": {"S": "a"}}


@pytest.fixture
async def name(dynamodb_client: Client) -> AsyncIterator[str]:
    async with fresh_table(dynamodb_client, {"id": "S"}) as name:
        yield name


@pytest.fixture
def time() -> Time:
    return Time(real=False)


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
