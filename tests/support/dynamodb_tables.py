"""DynamoDB for tests: clients with fake credentials and separate tables for each test."""

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from tableside.core.store import Store, TableSpec, now_ms
from tableside.stores.dynamodb.backend import DynamodbBackend, DynamodbTableOptions
from tableside.stores.dynamodb.client import Client, DynamodbSettings
from tableside.stores.dynamodb.store import DynamodbStore

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_EC2_METADATA_DISABLED": "true"}
ATTRIBUTE_TYPES = {"string": "S", "integer": "N"}

PATIENCE_S = 60.0
"""How long tests wait for a response: an emulator on a busy machine takes seconds for large items."""

_numbers = itertools.count()


def a_name() -> str:
    """Return a name that no other table has."""
    return f"t-{os.getpid()}-{next(_numbers)}"


def settings(url: str, **rest: Any) -> DynamodbSettings:
    return DynamodbSettings(region="eu-west-1", endpoint_url=url, **{"read_timeout_s": PATIENCE_S, **rest})


async def make(client: Client, name: str, keys: dict[str, str], **rest: Any) -> None:
    """Create a table like another tool, from the key attributes and their types (S, N or B)."""
    roles = zip(keys, ("HASH", "RANGE"), strict=False)
    description: dict[str, Any] = {
        "TableName": name,
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": kind} for key, kind in keys.items()],
        "KeySchema": [{"AttributeName": key, "KeyType": role} for key, role in roles],
        "BillingMode": "PAY_PER_REQUEST",
    }
    await client.call("create_table", {**description, **rest})


@asynccontextmanager
async def fresh_store(client: Client, spec: TableSpec, clock: Any, **options: Any) -> AsyncIterator[Store]:
    """Open a new table. DynamoDB's own expiry does not delete its items, so that the test controls the clock."""
    name = a_name()
    named = spec.key.has_names
    keys = {field.name or "_ts_key": ATTRIBUTE_TYPES[field.type] for field in spec.key.fields}
    await make(client, name, keys)
    wanted = replace(spec, stored_as=name, key_given=named, options=DynamodbTableOptions(**options))
    yield await DynamodbBackend(client, clock).store(wanted)
    await client.call("delete_table", {"TableName": name})


@asynccontextmanager
async def fresh_table(client: Client, keys: dict[str, str]) -> AsyncIterator[str]:
    """Create a table like another tool, and return its name."""
    name = a_name()
    await make(client, name, keys)
    yield name
    await client.call("delete_table", {"TableName": name})


async def opened(client: Client, name: str, clock: Any = now_ms, **rest: Any) -> DynamodbStore:
    """Open the store of an existing table."""
    return await DynamodbBackend(client, clock).store(TableSpec("t", stored_as=name, **rest))


async def put_item(client: Client, name: str, item: dict[str, Any]) -> None:
    """Write an item like another tool."""
    await client.call("put_item", {"TableName": name, "Item": item})


async def get_item(client: Client, name: str, key: dict[str, Any]) -> dict[str, Any]:
    """Read an item like another tool. Binary values are base64 text."""
    answer = await client.call("get_item", {"TableName": name, "Key": key, "ConsistentRead": True})
    item: dict[str, Any] = answer.get("Item", {})
    return item
