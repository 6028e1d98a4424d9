"""Fixtures for tests of the PostgreSQL store: a backend, direct connections, and manually created tables."""

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from contract import Time
from tableside.stores.postgres.backend import PostgresBackend, PostgresSettings

_numbers = itertools.count()


def new_name() -> str:
    """Return a unique table name. Table names may have capitals, dots and hyphens."""
    return f"Table-{os.getpid()}.{next(_numbers)}"


def settings(dsn: str, **rest: Any) -> PostgresSettings:
    return PostgresSettings.model_validate({"dsn": dsn, **rest})


@asynccontextmanager
async def database(dsn: str, time: Time | None = None, **rest: Any) -> AsyncIterator[PostgresBackend]:
    backend = await PostgresBackend.open(settings(dsn, **rest), (time or Time(real=True)).now_ms)
    try:
        yield backend
    finally:
        await backend.close()


@asynccontextmanager
async def psql(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A direct connection, like another tool's."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def role(dsn: str, *rights: str) -> AsyncIterator[str]:
    """Create a role with these rights, such as `SELECT ON t`, and yield the connection string for it."""
    name = f"role_{os.getpid()}_{next(_numbers)}"
    async with psql(dsn) as direct:
        await direct.execute(f"CREATE ROLE {name} LOGIN")
        for right in rights:
            await direct.execute(f"GRANT {right} TO {name}")
        try:
            parts = urlsplit(dsn)
            yield urlunsplit(parts._replace(netloc=f"{name}@{parts.hostname}:{parts.port}"))
        finally:
            await direct.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
