"""Tables in DynamoDB: the backend, which is one client, and what it and its tables may be told."""

from pydantic import BaseModel, Field

from ...core import Clock, Connections, StoreUnavailable, TableSpec, Throttled, gather_bounded, now_ms
from .client import Client, DynamodbSettings
from .store import DynamodbStore
from .table_schema import Tables

DESCRIBED_AT_ONCE = 8


class DynamodbTableOptions(BaseModel, frozen=True, extra="forbid"):
    """What else a table may be told: the attribute of its time to live, and whether it keeps tokens."""

    ttl_attribute: str = Field(default="_ts_expires", min_length=1, max_length=255)
    tokens: bool = True


class DynamodbBackend:
    """The tables of one account and region."""

    Settings = DynamodbSettings
    TableOptions = DynamodbTableOptions
    single_process = False

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tables = Tables(client)

    @classmethod
    async def open(cls, settings: DynamodbSettings, clock: Clock = now_ms) -> "DynamodbBackend":
        """Return a backend; DynamoDB is first asked when something is."""
        return cls(Client(settings), clock)

    async def store(self, spec: TableSpec) -> DynamodbStore:
        """Return the records of one table, made now if `create` says so."""
        options = spec.options if isinstance(spec.options, DynamodbTableOptions) else DynamodbTableOptions()
        try:
            found, layout = await self._tables.opened(spec, options.ttl_attribute)
        except Throttled as error:
            raise StoreUnavailable(error.detail) from error
        return DynamodbStore(self._client, found, layout, self._clock, tokens=options.tokens)

    async def tables(self) -> list[str]:
        """Return the names of the tables whose key was not named, as those are that `auto_create` makes."""
        try:
            names = await self._tables.names()
            unnamed = await gather_bounded([self._tables.has_unnamed_key(name) for name in names], DESCRIBED_AT_ONCE)
        except Throttled as error:
            raise StoreUnavailable(error.detail) from error
        return sorted(name for name, is_unnamed in zip(names, unnamed, strict=True) if is_unnamed)

    async def ping(self) -> None:
        """Return if DynamoDB answers, be it that it refuses us."""
        await self._client.ping()

    def connections(self) -> Connections:
        """Return how many connections calls use; how many rest beside them only the driver knows."""
        return self._client.connections()

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()
