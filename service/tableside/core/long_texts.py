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
from .values import Json


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
