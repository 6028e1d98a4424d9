"""Converts column values to JSON members and back.

On reads, PostgreSQL itself produces the JSON (`to_jsonb`), except for `bytea`, which becomes base64. On writes, every
member has the text format of its column type. Most members that do not match the column type are rejected here, with
the column's name. The server rejects the others. NaN and the infinities are strings in
JSON, spelled as PostgreSQL prints them.
"""

# ruff: noqa: S608  # the SQL is built from names, which `quoted` quotes; values are parameters

import base64
import binascii
import re
from collections.abc import Callable

import orjson

from ...core import InvalidOperation, Json
from .schema import Column, literal, quoted

INTEGER_BOUNDS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}
FRACTIONAL_TYPES = {"float4", "float8", "numeric"}
NON_FINITE_NUMBERS = {"NaN", "Infinity", "-Infinity"}
JSON_TYPES = {"json", "jsonb"}
TIME_PATTERNS = {
    "date": r"-?\d{4,}-\d\d-\d\d|-?infinity",
    "timestamp": r"-?\d{4,}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6}0*)?)?)?|-?infinity",
    "timestamptz": r"-?\d{4,}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6}0*)?)?(Z|[+-]\d\d(:?\d\d)?)|-?infinity",
    "time": r"\d\d:\d\d(:\d\d(\.\d{1,6}0*)?)?",
    "timetz": r"\d\d:\d\d(:\d\d(\.\d{1,6}0*)?)?(Z|[+-]\d\d(:?\d\d)?)",
}
UNCHANGED = b"="
"""Sent instead of the text of a member that an update leaves unchanged.

It is not a valid text of the types that `accepts_unchanged` accepts.
"""

_TIME_PATTERNS = {name: re.compile(pattern, re.ASCII) for name, pattern in TIME_PATTERNS.items()}
_PLAIN_LITERAL = re.compile(r"[A-Za-z0-9_.:+-]+", re.ASCII)


def member_sql(column: Column) -> str:
    """Return SQL for a column's member in the JSON text, `"name":…`. It yields NULL for NULL."""
    name = literal(orjson.dumps(column.name).decode() + ":")
    reference = f"t.{quoted(column.name)}"
    if column.type == "bytea":
        return f"{name} || '\"' || translate(encode({reference}, 'base64'), E'\\n', '') || '\"'"
    if column.element == "bytea":
        each = f"SELECT translate(encode(e, 'base64'), E'\\n', '') FROM unnest({reference}) AS e"
        return f"{name} || CASE WHEN {reference} IS NOT NULL THEN to_jsonb(ARRAY({each}))::text END"
    return f"{name} || to_jsonb({reference})::text"


def to_text(column: Column, member: Json) -> str | None:
    """Return a member in the text format of the column type. None means NULL. Raise InvalidOperation for a mismatch."""
    if member is None and (column.type not in JSON_TYPES or column.element is not None):
        return None
    if column.element is not None:
        return _array_text(column, member)
    return _scalar_text(column, column.type, member)


def accepts_unchanged(column: Column) -> bool:
    """Return whether a column accepts UNCHANGED.

    Such a column may contain details that its JSON member lacks, such as further digits.
    """
    return column.element is not None or column.type in {"numeric", *JSON_TYPES, *TIME_PATTERNS}


def _scalar_text(column: Column, type_name: str, member: Json) -> str:
    if type_name in JSON_TYPES:
        return orjson.dumps(member).decode()
    text = _converter(type_name)(member)
    if text is None:
        raise InvalidOperation(f"column {column.name!r} cannot store the member: its type is {column.full_type}")
    if column.length is not None and len(text) > column.length:
        raise InvalidOperation(f"column {column.name!r} stores at most {column.length} characters")
    return text


def _converter(type_name: str) -> Callable[[Json], str | None]:
    """Return the function that converts a member to the text of a type. It returns None for a mismatch."""
    if type_name in INTEGER_BOUNDS:
        bound = INTEGER_BOUNDS[type_name]
        return lambda member: str(member) if type(member) is int and -bound <= member < bound else None
    if type_name in FRACTIONAL_TYPES:
        return _number_text
    if type_name in _TIME_PATTERNS:
        pattern = _TIME_PATTERNS[type_name]
        return lambda member: member if isinstance(member, str) and pattern.fullmatch(member) else None
    if type_name == "bool":
        return lambda member: {True: "true", False: "false"}[member] if isinstance(member, bool) else None
    if type_name == "bytea":
        return _bytes_text
    return lambda member: member if isinstance(member, str) else None


def _number_text(member: Json) -> str | None:
    if isinstance(member, bool):
        return None
    if isinstance(member, (int, float)):
        return repr(member)
    return member if isinstance(member, str) and member in NON_FINITE_NUMBERS else None


def _bytes_text(member: Json) -> str | None:
    if not isinstance(member, str):
        return None
    try:
        return "\\x" + base64.b64decode(member, validate=True).hex()
    except (binascii.Error, ValueError):
        return None


def _array_text(column: Column, member: Json) -> str:
    """Return an array literal: in braces, with quoted elements where PostgreSQL may need quotes."""
    if not isinstance(member, list):
        raise InvalidOperation(f"column {column.name!r} expects an array: its type is {column.full_type}")
    type_name = column.element
    assert type_name is not None
    parts = []
    for element in member:
        if element is None:
            parts.append("NULL")
        elif isinstance(element, list) and type_name not in JSON_TYPES:
            parts.append(_array_text(column, element))
        else:
            parts.append(_element_text(_scalar_text(column, type_name, element)))
    return "{" + ",".join(parts) + "}"


def _element_text(text: str) -> str:
    if _PLAIN_LITERAL.fullmatch(text) and text.upper() != "NULL":
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
