"""Records in tables of a PostgreSQL database: as documents (one `jsonb` column) or as columns of an existing table.

Opening needs no network: connections are made as they are asked for, at most so many, and a table is looked at when
its store is first asked for.
"""

import asyncio
import contextlib
import logging
from typing import Literal

import asyncpg
import msgspec
from pydantic import BaseModel, Field, SecretStr, field_validator

from ...core import Clock, Connections, InvalidOperation, StoreUnavailable, TableError, TableNotFound, TableSpec, now_ms
from .errors import DRIVER_ERRORS, translated
from .framing import watched_loop
from .pool import Connection, Pool
from .schema import (
    EXPIRES,
    VALUE,
    WRITERS,
    Shape,
    checked_name,
    document_table,
    find,
    key_schema,
    make,
    side_name,
    side_table,
)
from .store import PostgresStore
from .value_columns import ColumnsForm, DocumentForm, ValueForm

log = logging.getLogger(__name__)

TEND_EVERY_S = 10.0
"""How often idle connections are let go of, and the least number is seen to."""

APPLICATION = "tableside"

_SESSION = """
SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO, YMD', false),
       set_config('IntervalStyle', 'iso_8601', false), set_config('jit', 'off', false),
       set_config('extra_float_digits', '1', false), set_config('array_nulls', 'on', false),
       set_config('default_transaction_isolation', 'read committed', false)
"""
_LEAVE_WITH_CLIENT = "SELECT set_config('client_connection_check_interval', '1s', false)"
"""A statement whose client has gone is ended, so that it holds no lock; PostgreSQL 14 and later know it."""


class PostgresSettings(BaseModel, frozen=True, extra="forbid"):
    """Where the database is, and how many connections it may have from one process; times in seconds."""

    dsn: SecretStr
    connections_max: int = Field(default=10, ge=1, le=1000)
    connections_min: int = Field(default=0, ge=0, le=1000)
    connect_timeout_s: float = Field(default=5.0, gt=0, le=300)
    table_schema: str | None = Field(default=None, alias="schema", min_length=1, max_length=63)
    sweep_every_s: float = Field(default=60.0, gt=0)

    @field_validator("dsn")
    @classmethod
    def _is_a_dsn(cls, dsn: SecretStr) -> SecretStr:
        if not dsn.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("begins with postgresql://")
        return dsn


class PostgresTableOptions(BaseModel, frozen=True, extra="forbid"):
    """How a table keeps values."""

    layout: Literal["document", "columns"] = "document"


class PostgresBackend:
    """One database."""

    Settings = PostgresSettings
    TableOptions = PostgresTableOptions
    single_process = False

    def __init__(self, settings: PostgresSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._pool = Pool(self._connected, settings.connections_max, settings.connections_min)
        self._stores: dict[tuple[str, str], PostgresStore] = {}
        self._tasks = [asyncio.create_task(self._tend_forever()), asyncio.create_task(self._sweep_forever())]

    @classmethod
    async def open(cls, settings: PostgresSettings, clock: Clock = now_ms) -> "PostgresBackend":
        """Return a backend; whether the database can be reached shows when it is asked."""
        return cls(settings, clock)

    async def store(self, spec: TableSpec) -> PostgresStore:
        """Return the records of one table, made now if it is absent and may be.

        Raise StoreUnavailable, TableNotFound, or Unsupported if the table is not what the configuration says.
        """
        options = spec.options if isinstance(spec.options, PostgresTableOptions) else PostgresTableOptions()
        name = checked_name(spec.name_in_store)
        try:
            async with self._pool.connection() as connection:
                schema = await self._schema(connection)
                shape, form = await _opened(connection, schema, name, spec, options)
        except DRIVER_ERRORS as error:
            raise translated(error, spec.name, applied="no") from error
        spec = msgspec.structs.replace(spec, key=key_schema(shape, spec))
        store = PostgresStore(self._pool, spec, shape, form, self._clock)
        self._stores[shape.schema, shape.name] = store
        return store

    async def tables(self) -> list[str]:
        """Return the names of the tables of documents that have one string as their key, as `create` makes them."""
        try:
            async with self._pool.connection() as connection:
                rows = await connection.fetch(_OUR_TABLES, await self._schema(connection), [VALUE, EXPIRES, WRITERS])
        except DRIVER_ERRORS as error:
            raise translated(error, "", applied="no") from error
        return [row["name"] for row in rows]

    async def ping(self) -> None:
        """Return if the database answers, raise StoreUnavailable if not."""
        try:
            async with self._pool.connection() as connection:
                await connection.execute("SELECT 1")
        except DRIVER_ERRORS as error:
            failed = translated(error, "", applied="no")
            raise failed if isinstance(failed, StoreUnavailable) else StoreUnavailable(failed.detail) from error
        except TableError as error:
            raise StoreUnavailable(error.detail) from error

    def connections(self) -> Connections:
        """Return how many connections there are now."""
        return self._pool.connections()

    async def close(self) -> None:
        """Close every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._pool.close()

    async def _schema(self, connection: Connection) -> str:
        found: str | None = self._settings.table_schema or await connection.fetchval("SELECT current_schema()::text")
        if found is None:
            raise TableNotFound("PostgreSQL's search_path names no schema that exists: set the store's `schema`")
        return found

    async def _connected(self) -> Connection:
        """Return a new connection. Raise a TableError if there is none to be had."""
        timeout_s = self._settings.connect_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                connection = await asyncpg.connect(
                    self._settings.dsn.get_secret_value(),
                    timeout=timeout_s,
                    loop=watched_loop(),
                    server_settings={"application_name": APPLICATION},
                )
                await _settle_in(connection)
                return connection
        except TimeoutError:
            raise StoreUnavailable(f"PostgreSQL does not answer within {timeout_s:g} s") from None
        except (*DRIVER_ERRORS, ValueError) as error:
            raise translated(error, "", applied="no") from error

    async def _tend_forever(self) -> None:
        while True:
            with contextlib.suppress(TableError, *DRIVER_ERRORS):
                await self._pool.tend()
            await asyncio.sleep(TEND_EVERY_S)

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.sweep_every_s)
            for store in list(self._stores.values()):
                try:
                    await store.sweep()
                except TableError as error:
                    log.info("table %s: what has expired is removed later: %s", store.spec.name, error.detail)


async def _settle_in(connection: Connection) -> None:
    """Set what our statements rely on; the rest is the role's and the database's to say."""
    try:
        await connection.execute(_SESSION)
        if connection.get_server_version() >= (14,):
            await connection.execute(_LEAVE_WITH_CLIENT)
    except BaseException:
        connection.terminate()
        raise


async def _opened(
    connection: Connection, schema: str, name: str, spec: TableSpec, options: PostgresTableOptions
) -> tuple[Shape, ValueForm]:
    """Return what a table is and how it keeps values, made where that is allowed."""
    document = options.layout == "document"
    shape = await find(connection, schema, name, spec)
    if shape is None and document and spec.create:
        await make(connection, document_table(schema, name, spec.key))
        shape = await find(connection, schema, name, spec)
    if shape is None:
        raise TableNotFound(f"PostgreSQL has no table {name!r} in schema {schema!r}")
    if document:
        return shape, DocumentForm(shape)
    if any(field.name is None for field in spec.key.fields) and spec.key_given:
        raise InvalidOperation("the key of a table of columns has names")
    return await _with_side(connection, shape, spec), ColumnsForm(shape)


async def _with_side(connection: Connection, shape: Shape, spec: TableSpec) -> Shape:
    name = side_name(shape.name)
    found = await _side_found(connection, shape, name)
    if not found and spec.create:
        await make(connection, side_table(shape))
        found = await _side_found(connection, shape, name)
    return msgspec.structs.replace(shape, side=found)


async def _side_found(connection: Connection, shape: Shape, name: str) -> bool:
    query = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = $2"
    return await connection.fetchval(query, shape.schema, name) is not None


_OUR_TABLES = """
SELECT c.relname::text AS name
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary AND i.indnkeyatts = 1
JOIN pg_catalog.pg_attribute k ON k.attrelid = c.oid AND k.attnum = i.indkey[0] AND k.attname = 'key'
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND k.atttypid = 'text'::regtype
  AND (SELECT count(*) FROM pg_catalog.pg_attribute a
       WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attname = ANY($2::text[])) = 3
ORDER BY 1
"""
