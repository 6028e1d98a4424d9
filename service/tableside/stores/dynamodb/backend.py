"""Opens DynamoDB, and defines the options of its tables."""

from collections.abc import Iterable

from pydantic import BaseModel, Field

from ...core import Clock, Connections, StoreUnavailable, TableError, TableSpec, Throttled, gather_bounded, now_ms
from .client import Client, DynamodbSettings
from .store import DynamodbStore
from .table_schema import TableSetup, table_faults

DESCRIBE_CONCURRENCY = 8


class DynamodbTableOptions(BaseModel, frozen=True, extra="forbid"):
    """The attribute for the time to live, and whether the table stores tokens."""

    ttl_attribute: str = Field(default="_ts_expires", min_length=1, max_length=255)
    tokens: bool = True


class DynamodbBackend:
    """Opens the tables of one account and region."""

    Settings = DynamodbSettings
    TableOptions = DynamodbTableOptions
    single_process = False

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tables = TableSetup(client)

    @classmethod
    async def open(cls, settings: DynamodbSettings, clock: Clock = now_ms) -> "DynamodbBackend":
        """Return a backend. It connects to DynamoDB when it is first used."""
        return cls(Client(settings), clock)

    @classmethod
    def table_faults(cls, settings: DynamodbSettings, spec: TableSpec) -> Iterable[TableError]:
        """Return the reasons why a table can never be opened."""
        return table_faults(spec, _options(spec).ttl_attribute)

    async def store(self, spec: TableSpec) -> DynamodbStore:
        """Return the store of one table. Create the table if it is absent and `create` is set."""
        options = _options(spec)
        try:
            table, layout = await self._tables.open_table(spec, options.ttl_attribute)
        except Throttled as error:
            raise StoreUnavailable(error.detail) from error
        return DynamodbStore(self._client, table, layout, self._clock, tokens=options.tokens)

    async def tables(self) -> list[str]:
        """Return the names of the tables with an unnamed key, the kind that `auto_create` creates."""
        try:
            names = await self._tables.names()
            unnamed = await gather_bounded([self._tables.has_unnamed_key(name) for name in names], DESCRIBE_CONCURRENCY)
        except Throttled as error:
            raise StoreUnavailable(error.detail) from error
        return sorted(name for name, is_unnamed in zip(names, unnamed, strict=True) if is_unnamed)

    async def ping(self) -> None:
        """Raise StoreUnavailable if DynamoDB cannot be reached. A rejected request shows that it can."""
        await self._client.ping()

    def connections(self) -> Connections:
        """Return the number of connections in use. The driver does not report idle ones."""
        return self._client.connections()

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()


def _options(spec: TableSpec) -> DynamodbTableOptions:
    return spec.options if isinstance(spec.options, DynamodbTableOptions) else DynamodbTableOptions()
