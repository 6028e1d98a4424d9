"""A drop of a table in Redis removes records, side keys and indexes, and leaves the keys of other tables and tools."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster

from contract import COMPOSITE, INTEGERS, STRINGS, put, scanned, written
from support.redis_tables import connected, own, table, user
from tableside.core.errors import StoreMisconfigured
from tableside.core.keys import KeySchema
from tableside.core.operations import Delete, Key, Token
from tableside.core.store import TableSpec
from tableside.stores.redis.settings import RedisTableOptions

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def redis_cluster_urls(own_redis_cluster_urls: list[str]) -> list[str]:
    return own_redis_cluster_urls


@pytest.fixture(params=["single", "cluster"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[tuple[dict[str, Any], Any]]:
    """The settings of a store, and the client of another tool."""
    if request.param == "single":
        url = request.getfixturevalue("own_redis_url")
        async with Redis.from_url(url) as client:
            yield {"url": url}, client
    else:
        [url, *_] = request.getfixturevalue("redis_cluster_urls")
        async with RedisCluster.from_url(url) as client:
            yield {"url": url, "cluster": True}, client


async def every_name(client: Any) -> set[bytes]:
    return {name async for name in client.scan_iter("*")}


STRING_KEYS: list[Key] = ["a", "b", "}{x", "{x}", "a:b", "_ts", "ü"]
VISITS: list[Key] = [(f"u{user}", day) for user in range(9) for day in range(3)]


@pytest.mark.parametrize(
    ("schema", "keys", "options", "others"),
    [
        (STRINGS, STRING_KEYS, {"prefix": "pl*n?s[1]:"}, ["plans1:a", "_ts:{plans1:a}", "8@pl*n?s[1]:a"]),
        (STRINGS, STRING_KEYS, {"prefix": "{drop}:"}, ["{drop}", "_tst:{drop}", "8@{drop}:a", "_tst:8@{drop}:a"]),
        (STRINGS, STRING_KEYS, {"prefix": "drop}:"}, ["_tss:{1}8@drop}:a", "_ts:{drop}:a}"]),
        (INTEGERS, [*range(-5, 5)], {"prefix": "drop:"}, ["drop:meta", "drop:01", "_ts:{drop:meta}"]),
        (COMPOSITE, VISITS, {"prefix": "drop:"}, ["drop:u:1:x", "_tsi:drop:u:1:", "_tsx:8@drop:u:", "_tsc:8@drop:"]),
        (COMPOSITE, VISITS, {"prefix": "drop:", "hash_tag": True, "exclusive": True}, ["_tsc:{1}8@drop:"]),
    ],
    ids=lambda given: str(given) if isinstance(given, dict) else "",
)
async def test_a_drop_removes_exactly_the_keys_of_the_table(
    server: tuple[dict[str, Any], Any], schema: KeySchema, keys: list[Key], options: dict[str, Any], others: list[str]
) -> None:
    settings, client = server
    spec = TableSpec("t", schema, options=RedisTableOptions.model_validate(options))
    async with table(spec=spec, **settings) as store:
        for name in others:
            await client.set(name, "{}")
        before = await every_name(client)
        await store.apply([put(key) for key in keys])
        for at, key in enumerate(keys[:6]):
            await written(store, put(key, token=Token("w", 1), ttl_s=3600 if at % 2 else None))
        for key in keys[4:]:
            await written(store, Delete(key, order=1))
        if schema is COMPOSITE:
            await scanned(store, partition="u1")
        assert len(await every_name(client) - before) > len(keys)
        await store.drop()
        assert await every_name(client) - before == set()
        assert {name.encode() for name in others} <= await every_name(client)
        for name in others:
            await client.delete(name)


async def test_a_user_without_a_generations_keys_gets_an_error(redis_url: str) -> None:
    spec = own(TableSpec("t", generation=8))
    async with (
        user(redis_url, "+@all", [f"{spec.options.prefix}*", "_ts*"]) as given,
        connected(redis_url, **given) as backend,
    ):
        [outcome] = await (await backend.store(spec)).apply([put("a")])
        assert isinstance(outcome, StoreMisconfigured)
        assert "~*@PREFIX*" in outcome.detail
