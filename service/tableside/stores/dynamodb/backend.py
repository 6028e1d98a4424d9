"""Opens DynamoDB, defines the options of its tables, and finds or creates tables.

A table's key and time to live (TTL) are checked when it is opened.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from pydantic import BaseModel, Field

from ...core import (
    Clock,
    Connections,
    InvalidOperation,
    KeyField,
    KeySchema,
    PartType,
    StoreUnavailable,
    TableError,
    TableNotFound,
    TableSpec,
    Throttled,
    Unsupported,
    gather_bounded,
    now_ms,
)
from .client import Client, DynamodbSettings
from .errors import ResourceInUse
from .items import UNNAMED_KEY, ItemLayout, KeyAttribute
from .store import DynamodbStore

log = logging.getLogger(__name__)

DESCRIBE_CONCURRENCY = 8
POLL_S = 0.5
POLLS_MAX = 240

_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_ATTRIBUTE_TYPES: dict[PartType, str] = {"string": "S", "integer": "N"}
_PART_TYPES: dict[str, PartType] = {"S": "string", "N": "integer"}


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

    @classmethod
    async def open(cls, settings: DynamodbSettings, clock: Clock = now_ms) -> "DynamodbBackend":
        """Return a backend. It connects to DynamoDB when it is first used."""
        return cls(Client(settings), clock)

    @classmethod
    def table_faults(cls, settings: DynamodbSettings, spec: TableSpec) -> Iterable[TableError]:
        """Return the reasons why a table can never be opened."""
        return _table_faults(spec)

    async def store(self, spec: TableSpec) -> DynamodbStore:
        """Return the store of one table. Create the table if it is absent and `create` is set.

        Raise StoreUnavailable, TableNotFound, or Unsupported or InvalidOperation if the table does not fit the spec.
        """
        for fault in _table_faults(spec):
            raise fault
        options, name = spec.options_of(DynamodbTableOptions), spec.name_in_store
        try:
            if await self._describe(name) is None:
                if not spec.create:
                    raise TableNotFound(f"DynamoDB has no table {name!r}, and create is false")
                await self._create(spec)
            keys, schema = _table_key(spec, await self._wait_until_active(name, create=spec.create))
            await self._check_ttl(name, options.ttl_attribute, create=spec.create)
        except Throttled as error:
            raise StoreUnavailable(error.detail) from error
        if options.ttl_attribute in {key.name for key in keys}:
            raise InvalidOperation(f"table {name!r}: ttl_attribute is a key attribute")
        spec = msgspec.structs.replace(spec, key=schema)
        layout = ItemLayout(keys, spec, options.ttl_attribute)
        return DynamodbStore(self._client, spec, layout, self._clock, tokens=options.tokens)

    async def tables(self) -> list[str]:
        """Return the names of the tables with an unnamed key, the kind that `auto_create` creates."""
        names, start = list[str](), dict[str, Any]()
        try:
            while True:
                response = await self._client.call("list_tables", start)
                names += response["TableNames"]
                if "LastEvaluatedTableName" not in response:
                    break
                start = {"ExclusiveStartTableName": response["LastEvaluatedTableName"]}
            unnamed = await gather_bounded([self._has_unnamed_key(name) for name in names], DESCRIBE_CONCURRENCY)
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

    # Tables

    async def _has_unnamed_key(self, name: str) -> bool:
        found = await self._describe(name)
        return found is not None and [key["AttributeName"] for key in found["KeySchema"]] == [UNNAMED_KEY]

    async def _describe(self, name: str) -> dict[str, Any] | None:
        try:
            response = await self._client.call("describe_table", {"TableName": name})
        except TableNotFound:
            return None
        found: dict[str, Any] = response["Table"]
        return found

    async def _wait_until_active(self, name: str, *, create: bool) -> dict[str, Any]:
        """Wait until a table is active, and return its description. One that is being deleted is absent."""
        for _ in range(POLLS_MAX):
            found = await self._describe(name)
            match found and found["TableStatus"]:
                case "ACTIVE" | "UPDATING":
                    assert found is not None
                    return found
                case None | "CREATING":
                    await asyncio.sleep(POLL_S)
                case "DELETING" if not create:
                    raise TableNotFound(f"DynamoDB: table {name!r} is being deleted")
                case status:
                    raise StoreUnavailable(f"DynamoDB: table {name!r} is {status}")
        raise StoreUnavailable(f"DynamoDB: table {name!r} is still being created")

    async def _create(self, spec: TableSpec) -> None:
        fields = spec.key.fields if spec.key_given else KeySchema().fields
        keys = [KeyAttribute(field.name or UNNAMED_KEY, _ATTRIBUTE_TYPES[field.type]) for field in fields]
        roles = zip(keys, ("HASH", "RANGE"), strict=False)
        description = {
            "TableName": spec.name_in_store,
            "AttributeDefinitions": [{"AttributeName": key.name, "AttributeType": key.kind} for key in keys],
            "KeySchema": [{"AttributeName": key.name, "KeyType": role} for key, role in roles],
            "BillingMode": "PAY_PER_REQUEST",
        }
        log.info("DynamoDB: creating table %s", spec.name_in_store)
        with contextlib.suppress(ResourceInUse):  # another replica is creating the table
            await self._client.call("create_table", description, writes=True)

    async def _check_ttl(self, name: str, wanted: str, *, create: bool) -> None:
        """Check that a table's TTL attribute is the configured one. Turn TTL on if the table may be created."""
        try:
            response = await self._client.call("describe_time_to_live", {"TableName": name})
        except TableError as error:
            log.warning("DynamoDB: table %s: cannot read its time to live settings: %s", name, error.detail)
            return
        found = response["TimeToLiveDescription"]
        if found["TimeToLiveStatus"] in ("ENABLED", "ENABLING"):
            if found.get("AttributeName", wanted) != wanted:
                raise InvalidOperation(
                    f"table {name!r}: its TTL attribute in DynamoDB is not {wanted!r}: "
                    f"set ttl_attribute to {found['AttributeName']!r}"
                )
        elif create:
            specification = {"Enabled": True, "AttributeName": wanted}
            try:
                await self._client.call(
                    "update_time_to_live", {"TableName": name, "TimeToLiveSpecification": specification}
                )
            except (ResourceInUse, TableError) as error:
                # Another replica turned it on, or DynamoDB requires an hour between changes. Reads do not depend on it.
                log.warning("DynamoDB: table %s: cannot turn on time to live: %s", name, error)
        else:
            log.warning("DynamoDB: table %s: time to live is off, so expired records are hidden but not deleted", name)


def _table_faults(spec: TableSpec) -> Iterator[TableError]:
    table = f"table {spec.name_in_store!r}"
    if not _NAME.fullmatch(spec.name_in_store):
        yield InvalidOperation(f"{table}: names in DynamoDB have 3 to 255 characters of A-Z a-z 0-9 _ . -")
    if len(spec.key.fields) > 2:
        yield Unsupported(f"{table}: keys in DynamoDB have one or two parts")
    if spec.options_of(DynamodbTableOptions).ttl_attribute in spec.key.names:
        yield InvalidOperation(f"{table}: ttl_attribute is a key attribute")


def _table_key(spec: TableSpec, table: dict[str, Any]) -> tuple[tuple[KeyAttribute, ...], KeySchema]:
    """Return the key of a table that DynamoDB describes. Raise a TableError if it differs from the configuration."""
    kinds = {found["AttributeName"]: found["AttributeType"] for found in table["AttributeDefinitions"]}
    in_order = sorted(table["KeySchema"], key=lambda key: str(key["KeyType"]))  # HASH, RANGE
    keys = tuple(KeyAttribute(key["AttributeName"], kinds[key["AttributeName"]]) for key in in_order)
    for key in keys:
        if key.kind not in _PART_TYPES:
            raise Unsupported(f"table {table['TableName']!r}: its key attribute {key.name!r} is binary")
    fields = [KeyField(None if key.name == UNNAMED_KEY else key.name, _PART_TYPES[key.kind]) for key in keys]
    schema = KeySchema(tuple(fields))
    if spec.key_given and schema != spec.key:
        has = ", ".join(f"{key.name}: {_PART_TYPES[key.kind]}" for key in keys)
        raise InvalidOperation(
            f"table {spec.name_in_store!r} has the key {{{has}}} in DynamoDB, which differs from the configuration"
        )
    return keys, schema
