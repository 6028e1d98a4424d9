"""Parses the long texts of requests. The results are texts too, because many small objects would take long to copy.

The functions are called in another process, so their parameters and results can be pickled.
"""

from collections.abc import Mapping
from typing import Any

from . import updates, values
from .changes import packed
from .errors import InvalidOperation
from .keys import KeySchema
from .operations import Key
from .values import Json, JsonObject

_UPDATE_MEMBERS = {"update", "default", "ttl_s"}


def put_members(text: bytes, schema: KeySchema, key: Key) -> dict[str, Any]:
    """Return the members of a put from the text of its value. Raise InvalidOperation if it is not valid."""
    return {"value": value_text(values.parse(text), schema, key)}


def update_members(text: bytes, schema: KeySchema, key: Key) -> dict[str, Any]:
    """Return the members of an update from their text. Raise InvalidOperation if one is not valid."""
    return checked_members(update_document(values.parse(text)), schema, key)


def patch_members(text: bytes, schema: KeySchema, key: Key) -> dict[str, Any]:
    """Return the members of an update from the text of a merge patch. Raise InvalidOperation if it is not valid."""
    return {"update": packed(updates.parse_merge_patch(values.parse(text)))}


def operation_members(text: bytes, schema: KeySchema) -> dict[str, Any]:
    """Return the members of an operation of a batch. Raise InvalidOperation if one is not valid."""
    document = values.parse(text)
    if not isinstance(document, dict):
        raise InvalidOperation("an operation must be an object")
    return checked_members(document, schema, schema.from_json(document.get("key")))


def member_text(name: str, text: bytes | str, schema: KeySchema, key: Key) -> Any:
    """Return one member of an operation from its text. Raise InvalidOperation if it is not valid."""
    return checked_members({name: values.parse(text)}, schema, key)[name]


def checked_members(members: Mapping[str, Any], schema: KeySchema, key: Key) -> dict[str, Any]:
    """Return members of an operation with the canonical texts of values, and with packed changes."""
    checked = dict(members)
    for name in ("value", "default"):
        if members.get(name) is not None:
            checked[name] = value_text(members[name], schema, key)
    if members.get("update") is not None:
        checked["update"] = packed(updates.parse(members["update"]))
    return checked


def value_text(value: Json, schema: KeySchema, key: Key) -> bytes:
    """Return the canonical text of a value, without the members that repeat its key."""
    if schema.has_names and isinstance(value, dict):
        value = schema.without_key(value, key)
    return values.encode(value)


def update_document(document: Json) -> JsonObject:
    """Return the body of an update. Raise InvalidOperation if it is not an object, or has other members."""
    if not isinstance(document, dict) or not document.keys() <= _UPDATE_MEMBERS:
        raise InvalidOperation(
            "the body must be an object with update, and optionally default and ttl_s; "
            "a merge patch has the media type application/merge-patch+json"
        )
    return document
