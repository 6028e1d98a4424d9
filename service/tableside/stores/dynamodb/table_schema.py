"""DynamoDB's tables: what keys one has, whether it expires items, and how one is made.

Knows nothing of records.
"""

import asyncio
import contextlib
import logging
import re
from typing import Any

import msgspec

from ...core import (
    InvalidOperation,
    KeyField,
    KeySchema,
    PartType,
    StoreUnavailable,
    TableError,
    TableNotFound,
    TableSpec,
    Unsupported,
)
from .client import AlreadyThere, Client
from .items import UNNAMED_KEY, KeyAttribute, Layout

log = logging.getLogger(__name__)

POLL_S = 0.5
POLLS_MAX = 240

_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_KINDS: dict[PartType, str] = {"string": "S", "integer": "N"}
_TYPES: dict[str, PartType] = {"S": "string", "N": "integer"}


class Tables:
    """The tables of one account and region."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def opened(self, spec: TableSpec, ttl_attribute: str) -> tuple[TableSpec, Layout]:
        """Return a table's layout and its description with the key that it has, made now if it may be.

        Raise TableNotFound, or Unsupported or InvalidOperation for what the configuration asks and the table is not.
        """
        name = spec.name_in_store
        if not _NAME.fullmatch(name):
            raise InvalidOperation(f"table {name!r}: in DynamoDB a name has 3 to 255 of A-Z a-z 0-9 _ . -")
        _check_parts(spec)
        found = await self._described(name)
        if found is None:
            if not spec.create:
                raise TableNotFound(f"DynamoDB has no table {name!r}, and create is false")
            await self._make(spec)
        keys = _keys(await self._active(name))
        schema = _schema(spec, keys)
        await self._see_to_expiry(name, ttl_attribute, create=spec.create)
        if ttl_attribute in {key.name for key in keys}:
            raise InvalidOperation(f"table {name!r}: ttl_attribute is an attribute of its key")
        return msgspec.structs.replace(spec, key=schema), Layout.of(keys, schema, ttl_attribute)

    async def names(self) -> list[str]:
        """Return the names of all tables."""
        names: list[str] = []
        start: dict[str, Any] = {}
        while True:
            answer = await self._client.call("list_tables", start)
            names += answer["TableNames"]
            if "LastEvaluatedTableName" not in answer:
                return names
            start = {"ExclusiveStartTableName": answer["LastEvaluatedTableName"]}

    async def has_unnamed_key(self, name: str) -> bool:
        """Whether a table is one that was made here without naming its key."""
        found = await self._described(name)
        return found is not None and [key["AttributeName"] for key in found["KeySchema"]] == [UNNAMED_KEY]

    async def _described(self, name: str) -> dict[str, Any] | None:
        try:
            answer = await self._client.call("describe_table", {"TableName": name})
        except TableNotFound:
            return None
        found: dict[str, Any] = answer["Table"]
        return found

    async def _active(self, name: str) -> dict[str, Any]:
        """Wait until a table can be used."""
        for _ in range(POLLS_MAX):
            found = await self._described(name)
            match found and found["TableStatus"]:
                case "ACTIVE" | "UPDATING":
                    assert found is not None
                    return found
                case None | "CREATING":
                    await asyncio.sleep(POLL_S)
                case status:
                    raise StoreUnavailable(f"DynamoDB: table {name!r} is {status}")
        raise StoreUnavailable(f"DynamoDB: table {name!r} is still being made")

    async def _make(self, spec: TableSpec) -> None:
        keys = _wanted(spec)
        log.info("DynamoDB: table %s is made", spec.name_in_store)
        with contextlib.suppress(AlreadyThere):  # another replica was first
            await self._client.call(
                "create_table",
                {
                    "TableName": spec.name_in_store,
                    "AttributeDefinitions": [{"AttributeName": key.name, "AttributeType": key.kind} for key in keys],
                    "KeySchema": [
                        {"AttributeName": key.name, "KeyType": role}
                        for key, role in zip(keys, ("HASH", "RANGE"), strict=False)
                    ],
                    "BillingMode": "PAY_PER_REQUEST",
                },
                writes=True,
            )

    async def _see_to_expiry(self, name: str, wanted: str, *, create: bool) -> None:
        """Have DynamoDB delete what expires, where we make tables; elsewhere see that it does not by another name."""
        try:
            answer = await self._client.call("describe_time_to_live", {"TableName": name})
        except TableError as error:
            log.warning("DynamoDB: table %s: whether it deletes what expires is not known: %s", name, error.detail)
            return
        found = answer["TimeToLiveDescription"]
        if found["TimeToLiveStatus"] in ("ENABLED", "ENABLING"):
            if found.get("AttributeName", wanted) != wanted:
                raise InvalidOperation(
                    f"table {name!r}: DynamoDB expires its items by another attribute than {wanted!r}: "
                    f"set ttl_attribute to {found['AttributeName']!r}"
                )
        elif create:
            await self._enable_expiry(name, wanted)
        else:
            log.warning("DynamoDB: table %s: time to live is off, so what expires is hidden and not deleted", name)

    async def _enable_expiry(self, name: str, attribute: str) -> None:
        how = {"Enabled": True, "AttributeName": attribute}
        try:
            await self._client.call("update_time_to_live", {"TableName": name, "TimeToLiveSpecification": how})
        except (AlreadyThere, TableError) as error:
            # Another replica was first, or DynamoDB wants an hour between changes. Reads do not depend on it.
            log.warning("DynamoDB: table %s: time to live could not be turned on: %s", name, error)


def _check_parts(spec: TableSpec) -> None:
    if len(spec.key.fields) > 2:
        raise Unsupported(f"table {spec.name_in_store!r}: a key in DynamoDB has one part or two")


def _wanted(spec: TableSpec) -> tuple[KeyAttribute, ...]:
    if not spec.key_given:
        return (KeyAttribute(UNNAMED_KEY, "S"),)
    return tuple(KeyAttribute(field.name or UNNAMED_KEY, _KINDS[field.type]) for field in spec.key.fields)


def _keys(table: dict[str, Any]) -> tuple[KeyAttribute, ...]:
    kinds = {found["AttributeName"]: found["AttributeType"] for found in table["AttributeDefinitions"]}
    in_order = sorted(table["KeySchema"], key=lambda key: str(key["KeyType"]))  # HASH, RANGE
    keys = tuple(KeyAttribute(key["AttributeName"], kinds[key["AttributeName"]]) for key in in_order)
    for key in keys:
        if key.kind not in _TYPES:
            raise Unsupported(f"table {table['TableName']!r}: its key {key.name!r} is binary")
    return keys


def _schema(spec: TableSpec, keys: tuple[KeyAttribute, ...]) -> KeySchema:
    """Return the table's key in our words; raise InvalidOperation if the configuration says another."""
    found = KeySchema(tuple(KeyField(None if key.name == UNNAMED_KEY else key.name, _TYPES[key.kind]) for key in keys))
    if spec.key_given and found != spec.key:
        has = ", ".join(f"{key.name}: {_TYPES[key.kind]}" for key in keys)
        raise InvalidOperation(
            f"table {spec.name_in_store!r} has in DynamoDB the key {{{has}}}: the configuration differs"
        )
    return found
