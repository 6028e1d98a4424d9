"""Opens PostgreSQL databases, whose tables store documents (one `jsonb` column) or typed columns.

Opening a backend needs no network. Connections are opened on demand, up to `connections_max`. The backend reads a
table's definition when it opens the table's store.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import Annotated, Literal
from weakref import WeakValueDictionary

import asyncpg
import msgspec
from pydantic import AfterValidator, BaseModel, Field, SecretStr

from ...core import (
    Clock,
    Connections,
    StoreMisconfigured,
    StoreUnavailable,
    TableError,
    TableNotFound,
    TableSpec,
    WriteHealth,
    now_ms,
    url_place,
)
from .columns import ColumnsLayout, DocumentLayout
from .connections import STATEMENTS_MAX, Connection, Pool, configure
from .dsn import Address, addresses, checked_dsn, parameters, without_hosts
from .errors import DRIVER_ERRORS, connection_fault, translate_error
from .framing import frame_checking_loop
from .schema import TableDefinition, document_table_ddl, document_tables, find_table, table_faults
from .store import DefinedTable, PostgresStore

log = logging.getLogger(__name__)

POOL_MAINTENANCE_EVERY_S = 10.0
"""How often the pool closes idle connections and opens connections up to the minimum."""

CREATE_ATTEMPTS = 5
"""How often a table that other replicas create at the same time is looked for."""

CREATED_CONCURRENTLY = (
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateColumnError,
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateObjectError,
)
"""The errors of a replica that creates a table or its columns at the same time as another one."""

CANNOT_ALTER = (asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError, asyncpg.LockNotAvailableError)
"""The errors if the service may not add columns, or other transactions use the table for too long."""


class PostgresSettings(BaseModel, frozen=True, extra="forbid"):
    """The database's address, and the connection limits of one process. Times are in seconds."""

    dsn: Annotated[SecretStr, AfterValidator(lambda dsn: SecretStr(checked_dsn(dsn.get_secret_value())))]
    connections_max: int = Field(default=10, ge=1, le=1000)
    connections_min: int = Field(default=0, ge=0, le=1000)
    connect_timeout_s: float = Field(default=5.0, gt=0, le=300)
    connection_age_max_s: float = Field(default=300.0, gt=0)
    table_schema: str | None = Field(default=None, alias="schema", min_length=1, max_length=63)
    sweep_every_s: float = Field(default=60.0, gt=0)

    @property
    def place(self) -> str:
        """Return the server's address and the database."""
        return url_place(self.dsn.get_secret_value())


class PostgresTableOptions(BaseModel, frozen=True, extra="forbid"):
    """How a table stores values: as documents or as columns."""

    layout: Literal["document", "columns"] = "document"


class PostgresBackend:
    """Opens the tables of one database."""

    Settings = PostgresSettings
    TableOptions = PostgresTableOptions
    single_process = False

    def __init__(self, settings: PostgresSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._health = WriteHealth()
        self._dsn = settings.dsn.get_secret_value()
        self._addresses = addresses(self._dsn)
        self._parameters = parameters(self._dsn)
        self._is_pooled = False
        limits = settings.connections_max, settings.connections_min, settings.connection_age_max_s
        self._pool = Pool(self._connect, *limits)
        self._stores = WeakValueDictionary[tuple[str, str], PostgresStore]()  # of tables that are still open
        self._tasks = [asyncio.create_task(self._maintain_pool_forever()), asyncio.create_task(self._sweep_forever())]

    @classmethod
    async def open(cls, settings: PostgresSettings, clock: Clock = now_ms) -> "PostgresBackend":
        """Return a backend. It connects to the database when it is first used."""
        return cls(settings, clock)

    @classmethod
    def table_faults(cls, settings: PostgresSettings, spec: TableSpec) -> Iterable[TableError]:
        """Return the reasons why a table can never be opened."""
        return table_faults(spec, document=_is_document(spec))

    async def store(self, spec: TableSpec) -> PostgresStore:
        """Return the store of one table. Create the table if it is absent and the configuration allows it.

        Raise StoreUnavailable, TableNotFound, or Unsupported if the table differs from the configuration.
        """
        for fault in self.table_faults(self._settings, spec):
            raise fault
        table = await self._open(spec)
        existing = msgspec.structs.replace(spec, create=False)
        store = PostgresStore(table, lambda: self._open(existing), self._health)
        self._stores[table.definition.schema, table.definition.name] = store
        return store

    async def tables(self) -> list[str]:
        """Return the names of the document tables with one string key, the kind that `create` creates."""
        try:
            async with self._pool.connection() as connection:
                return await document_tables(connection, await self._schema(connection))
        except DRIVER_ERRORS as error:
            raise translate_error(error, "", applied="no") from error

    async def ping(self) -> None:
        """Raise StoreUnavailable if the database does not respond, or rejected the last writes."""
        try:
            async with self._pool.connection() as connection:
                await connection.execute("SELECT 1")
        except DRIVER_ERRORS as error:
            raise _unavailable(translate_error(error, "", applied="no")) from error
        except TableError as error:
            raise _unavailable(error) from error.__cause__
        self._health.check()

    def connections(self) -> Connections:
        """Return the current connection counts."""
        return self._pool.connections()

    async def close(self) -> None:
        """Close every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._pool.close()

    async def _open(self, spec: TableSpec) -> DefinedTable:
        try:
            table = await self._define(spec)
        except DRIVER_ERRORS as error:
            raise translate_error(error, spec.name, applied="no") from error
        layout = DocumentLayout(table) if _is_document(spec) else ColumnsLayout(table)
        return DefinedTable(self._pool, spec, table, layout, self._clock)

    async def _define(self, spec: TableSpec) -> TableDefinition:
        """Return a table's definition. Create what it lacks if the spec allows it.

        A table of documents whose columns cannot be added is used as it is.
        """
        for _ in range(CREATE_ATTEMPTS):
            async with self._pool.connection() as connection:
                schema = await self._schema(connection)
                table = await find_table(connection, schema, spec, side=not _is_document(spec))
            if not spec.create or not (ddl := _missing_ddl(schema, table, spec)):
                if table is None:
                    raise TableNotFound(f"PostgreSQL has no table {spec.name_in_store!r} in schema {schema!r}")
                return table
            try:
                async with self._pool.connection() as connection:
                    await connection.execute(ddl)
            except CANNOT_ALTER as error:
                if table is None or not _is_document(spec):
                    raise
                log.warning("table %s: cannot add the columns that remember writes and expiry: %s", spec.name, error)
                return table
            except CREATED_CONCURRENTLY:
                continue
        raise StoreUnavailable("other replicas are creating the table")

    async def _schema(self, connection: Connection) -> str:
        found: str | None = self._settings.table_schema or await connection.fetchval("SELECT current_schema()::text")
        if found is None:
            raise TableNotFound("PostgreSQL's search_path contains no existing schema: set the store's `schema`")
        return found

    async def _connect(self) -> Connection:
        """Open a connection to the first host of the DSN that accepts one. Raise a TableError if none does."""
        failure: TableError = StoreUnavailable("the DSN has no host")
        for address in list(self._addresses):
            try:
                return await self._connect_to(address)
            except StoreMisconfigured:
                raise
            except StoreUnavailable as error:
                failure = error
        raise failure

    async def _connect_to(self, address: Address) -> Connection:
        timeout_s = self._settings.connect_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await self._connect_to_session(address)
        except (asyncio.CancelledError, TimeoutError) as error:
            # Try other hosts before one that hangs, if any host with the required role may be used.
            if "target_session_attrs" in self._parameters:
                self._addresses.sort(key=lambda other: other == address)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise StoreUnavailable(f"PostgreSQL did not respond within {timeout_s:g} s") from None
        except (*DRIVER_ERRORS, ValueError) as error:
            raise connection_fault(error, self._parameters) from error

    async def _connect_to_session(self, address: Address) -> Connection:
        host, port = address
        connection: Connection = await asyncpg.connect(
            self._dsn if host is None else without_hosts(self._dsn),
            host=host,
            port=port,
            timeout=self._settings.connect_timeout_s,
            loop=frame_checking_loop(),
            server_settings={"application_name": "tableside"},
            connection_class=Connection,
            max_cacheable_statement_size=0,  # without a limit: a table has few statements, which list all its columns
            statement_cache_size=0 if self._is_pooled else STATEMENTS_MAX,
        )
        connection.is_pooled = self._is_pooled
        try:
            if self._is_pooled or await configure(connection):
                return connection
        except BaseException:
            connection.terminate()
            raise
        connection.terminate()
        self._is_pooled = True
        return await self._connect_to_session(address)

    async def _maintain_pool_forever(self) -> None:
        while True:
            with contextlib.suppress(TableError, *DRIVER_ERRORS):
                await self._pool.maintain()
            await asyncio.sleep(POOL_MAINTENANCE_EVERY_S)

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.sweep_every_s)
            await self._sweep()

    async def _sweep(self) -> None:
        # A function of its own, because a variable of the endless loop would keep the last store alive.
        for store in [*self._stores.values()]:
            try:
                await store.sweep()
            except TableError as error:
                log.info("table %s: expired records are deleted later: %s", store.spec.name, error.detail)


def _unavailable(error: TableError) -> StoreUnavailable:
    return error if isinstance(error, StoreUnavailable) else StoreUnavailable(error.detail)


def _is_document(spec: TableSpec) -> bool:
    return spec.options_of(PostgresTableOptions).layout == "document"


def _missing_ddl(schema: str, table: TableDefinition | None, spec: TableSpec) -> str:
    """Return the statements that create what a table lacks: the table, its columns for metadata, or its side table.

    Raise Unsupported if the table cannot store documents.
    """
    if not _is_document(spec):
        return "" if table is None or table.has_side_table else table.side_table_ddl()
    if table is None:
        return document_table_ddl(schema, spec.name_in_store, spec.key)
    table.key_schema(spec)
    DocumentLayout(table)
    return table.metadata_ddl()
