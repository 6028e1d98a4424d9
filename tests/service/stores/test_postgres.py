"""The PostgreSQL store passes the shared suite on tables of documents; and what is its own."""

import itertools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from store_contract import StoreContract, Time
from tableside.store import Store, TableSpec
from tableside.stores.postgres import PostgresBackend, PostgresSettings, PostgresTableOptions

numbers = itertools.count()


class TestDocuments(StoreContract):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_dsn: str) -> None:
        self.dsn = postgres_dsn

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Store]:
            named = spec.key.fields[0].name is not None
            async with database(self.dsn, time) as backend:
                yield await backend.store(
                    msgspec.structs.replace(spec, create=True, key_given=named, stored_as=new_name())
                )

        return opened()


@asynccontextmanager
async def database(dsn: str, time: Time | None = None, **settings: Any) -> AsyncIterator[PostgresBackend]:
    backend = await PostgresBackend.open(
        PostgresSettings(dsn=dsn, **settings),
        (time or Time(real=True)).now_ms,  # type: ignore[arg-type]  # as pydantic reads it
    )
    try:
        yield backend
    finally:
        await backend.close()


def new_name() -> str:
    return f"Table-{next(numbers)}.x"
