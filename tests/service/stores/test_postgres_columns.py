"""The PostgreSQL store passes the shared suite on tables of columns, with a side table and without; and types."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from postgres_tables import database, new_name, psql
from store_contract import StoreContract, Time
from tableside.store import Store, TableSpec
from tableside.stores.postgres import PostgresTableOptions
from tableside.stores.postgres_shape import quoted

COLUMNS = PostgresTableOptions(layout="columns")

MEMBERS = [
    *"abcdhiklmnrstwxyz", "kept", "gone", "word", "big", "list", "seen", "member", "made", "rich", "long", "full",
    "one", "half", "deep", *(f"m{index}" for index in range(64)), "a.b", " ", "ü", "🛫", "$", "#", ":", "key", "value",
    "etag", "ttl", "x_ts", "%", '"', "'", "\\", "\n", "N",
]  # fmt: skip
"""Every name of a member in the shared suite: each is a column that takes any JSON."""


class TestColumns(StoreContract):
    null_is_a_value = False
    side = True

    @pytest.fixture(autouse=True)
    def _server(self, postgres_dsn: str) -> None:
        self.dsn = postgres_dsn

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Store]:
            name = new_name()
            await make(self.dsn, name, spec)
            async with database(self.dsn, time) as backend:
                yield await backend.store(
                    msgspec.structs.replace(spec, create=self.side, stored_as=name, options=COLUMNS)
                )

        return opened()


class TestColumnsAlone(TestColumns):
    """Without a side table: no tokens, no expiry."""

    side = False

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        if spec.ttl_s is not None:
            pytest.skip("a table that cannot keep expiry is refused a default for it")
        return super().opened(spec, time, directory)


async def make(dsn: str, name: str, spec: TableSpec) -> None:
    types = {"string": 'text COLLATE "C"', "integer": "bigint"}
    keys = {field.name or "the key": types[field.type] for field in spec.key.fields}
    columns = {**dict.fromkeys(MEMBERS, "jsonb"), **keys}
    defined = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns.items())
    primary = ", ".join(map(quoted, keys))
    async with psql(dsn) as connection:
        await connection.execute(f"CREATE TABLE {quoted(name)} ({defined}, PRIMARY KEY ({primary}))")
