"""The measured kinds of store with the durability of their servers, and services whose tables are all in one store."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from examples.demo.service import Service, running

from servers.dynamodb import dynamodb_local
from servers.postgres import postgres
from servers.redis import redis

from .cases import Case
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
        with dynamodb_local(folder, compilation=()) as url:
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

Tables = Mapping[str, Mapping[str, Any]]
"""The settings of tables by name, without the store."""


def serving(
    folder: Path,
    store: Mapping[str, Any],
    tables: Tables,
    *,
    workers: int = 1,
    environment: Mapping[str, str] | None = None,
) -> AbstractContextManager[Service]:
    """Run a service with its files in a new folder."""
    folder.mkdir()
    config = {
        "stores": {"measured": dict(store)},
        "tables": {name: {"store": "measured", "create": True, **settings} for name, settings in tables.items()},
    }
    file = folder / "tableside.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    return running(folder, config=file, workers=workers, environment=environment)


def tables_of(cases: Iterable[Case]) -> Tables:
    """Return a table for each case."""
    return {case.table: case.settings for case in cases}
