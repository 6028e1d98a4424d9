"""The clients that the tests of a store share."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis

from support.dynamodb_tables import CREDENTIALS, settings
from support.postgres_tables import database, psql
from tableside.stores.dynamodb.client import Client
from tableside.stores.postgres.backend import PostgresBackend


@pytest.fixture(scope="session")
def aws_credentials() -> Iterator[None]:
    """Credentials that do not belong to any account."""
    with pytest.MonkeyPatch.context() as patch:
        for name, text in CREDENTIALS.items():
            patch.setenv(name, text)
        yield


@pytest.fixture(scope="session")
async def dynamodb_client(aws_credentials: None, dynamodb_url: str) -> AsyncIterator[Client]:
    """A client of Amazon's DynamoDB Local."""
    client = Client(settings(dynamodb_url))
    yield client
    await client.close()


@pytest.fixture
async def tool(redis_url: str) -> AsyncIterator[Any]:
    """Another tool that works with the same Redis."""
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
async def direct(postgres_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to PostgreSQL, like another tool's."""
    async with psql(postgres_dsn) as connection:
        yield connection


@pytest.fixture
async def backend(postgres_dsn: str) -> AsyncIterator[PostgresBackend]:
    """The PostgreSQL backend."""
    async with database(postgres_dsn) as opened:
        yield opened
