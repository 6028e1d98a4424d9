"""Separate tables on the Redis server that all tests share, and users with few permissions."""

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
from redis.asyncio import Redis

from tableside.core.backend import WriteHealth
from tableside.core.store import Capabilities, TableSpec
from tableside.stores.redis.backend import RedisBackend
from tableside.stores.redis.keys import KeyNames
from tableside.stores.redis.settings import RedisSettings, RedisTableOptions, create_servers
from tableside.stores.redis.store import RedisStore

PASSWORD = "geheim"


@asynccontextmanager
async def connected(url: str, **settings: Any) -> AsyncIterator[RedisBackend]:
    backend = await RedisBackend.open(RedisSettings.model_validate({"url": url, **settings}))
    try:
        yield backend
    finally:
        await backend.close()


@asynccontextmanager
async def table(url: str, spec: TableSpec | None = None, **settings: Any) -> AsyncIterator[Any]:
    """Open the store of a new table. With `options` in its spec, the table has this place."""
    async with connected(url, **settings) as backend:
        spec = spec or TableSpec("t")
        yield await backend.store(spec if isinstance(spec.options, RedisTableOptions) else own(spec))


@contextmanager
def unopened(url: str, **settings: Any) -> Iterator[RedisStore]:
    """Yield the store of a table without a call of the server, which may not respond."""
    servers = create_servers(RedisSettings.model_validate({"url": url, **settings}))
    spec = TableSpec("t")
    try:
        yield RedisStore(servers, spec, KeyNames("t:", spec.key), None, WriteHealth(), Capabilities())
    finally:
        servers.close()


def own(spec: TableSpec, **options: Any) -> TableSpec:
    prefix = f"{uuid.uuid4().hex}:"
    return msgspec.structs.replace(spec, options=RedisTableOptions.model_validate({"prefix": prefix, **options}))


def redis_key(store: Any, key: str) -> str:
    """Return the name of the Redis key of a record."""
    return f"{store.spec.options.prefix}{key}"


@asynccontextmanager
async def user(url: str, commands: str, keys: Sequence[str] = ("*",)) -> AsyncIterator[dict[str, Any]]:
    """Create a user with permissions such as `+@all -zadd`, and yield the settings of a connection as this user."""
    async with Redis.from_url(url) as tool:
        await tool.acl_setuser("u", enabled=True, passwords=[f"+{PASSWORD}"], keys=keys, commands=commands.split())
        try:
            yield {"username": "u", "password": PASSWORD}
        finally:
            await tool.acl_deluser("u")


@asynccontextmanager
async def configured(url: str, **configuration: str) -> AsyncIterator[Any]:
    async with Redis.from_url(url) as client:
        before = {setting: (await client.config_get(setting))[setting] for setting in configuration}
        for setting, given in configuration.items():
            await client.config_set(setting, given)
        try:
            yield client
        finally:
            for setting, earlier in before.items():
                await client.config_set(setting, earlier or "")
