"""The measured kinds of store: the server and its durability, the service's settings, and the drivers."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers.dynamodb import dynamodb_local
from servers.postgres import postgres
from servers.redis import redis

from .drivers import Aioboto3, Asyncpg, BlockingRedisPy, Driver, RedisPy

REGION = "us-east-1"
AWS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": REGION}


@dataclass(frozen=True)
class Kind:
    """A kind of store. Its first driver is the baseline. `get_target` is for batches of gets per CPU second."""

    title: str
    server: Callable[[Path], AbstractContextManager[str]]
    entry: Callable[[str], Mapping[str, Any]]
    drivers: Mapping[str, type[Driver]]
    get_target: float


def _durable_postgres(folder: Path) -> AbstractContextManager[str]:
    return postgres(folder, arguments=("-c", "fsync=on", "-c", "full_page_writes=on"))


@contextmanager
def _dynamodb(folder: Path) -> Iterator[str]:
    """Run DynamoDB Local. It accepts any credentials, but the drivers need some in their environment."""
    before = dict(os.environ)
    os.environ.update(AWS)
    try:
        with dynamodb_local(folder) as url:
            yield url
    finally:
        os.environ.clear()
        os.environ.update(before)


KINDS = {
    "redis": Kind(
        "Redis, in memory",
        redis,
        lambda url: {"kind": "redis", "url": url},
        {"redis-py (asyncio)": RedisPy, "redis-py (blocking)": BlockingRedisPy},
        0.3,
    ),
    "postgres": Kind(
        "PostgreSQL, fsync on",
        _durable_postgres,
        lambda dsn: {"kind": "postgres", "dsn": dsn},
        {"asyncpg": Asyncpg},
        0.8,
    ),
    "dynamodb": Kind(
        "DynamoDB Local, in memory",
        _dynamodb,
        lambda url: {"kind": "dynamodb", "region": REGION, "endpoint_url": url},
        {"aioboto3": Aioboto3},
        0.9,
    ),
}
