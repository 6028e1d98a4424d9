"""Separate tables on the Redis server that all tests share."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tableside.core.store import TableSpec
from tableside.stores.redis.backend import RedisBackend
from tableside.stores.redis.settings import RedisSettings, RedisTableOptions


@asynccontextmanager
async def connected(url: str, **settings: Any) -> AsyncIterator[RedisBackend]:
    backend = await RedisBackend.open(RedisSettings.model_validate({"url": url, **settings}))
    try:
        yield backend
    finally:
        await backend.close()


def own(spec: TableSpec, **options: Any) -> TableSpec:
    prefix = f"{uuid.uuid4().hex}:"
    return msgspec.structs.replace(spec, options=RedisTableOptions.model_validate({"prefix": prefix, **options}))
