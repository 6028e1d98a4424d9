"""The PostgreSQL store passes the shared suite on tables of documents; and what is its own."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from postgres_tables import database, new_name
from store_contract import StoreContract, Time
from tableside.store import Store, TableSpec


class TestDocuments(StoreContract):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_dsn: str) -> None:
        self.dsn = postgres_dsn

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Store]:
            made = msgspec.structs.replace(
                spec, create=True, key_given=spec.key.fields[0].name is not None, stored_as=new_name()
            )
            async with database(self.dsn, time) as backend:
                yield await backend.store(made)

        return opened()
