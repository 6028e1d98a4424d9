"""Column types to JSON and back.

Out of the database PostgreSQL itself makes JSON (`to_jsonb`), but for `bytea`, which is base64. Into it every member
goes as the text that its type reads; what can be known to be wrong is refused here, by the column's name, and the rest
by the server. NaN and the infinities are the strings that PostgreSQL and JSON have for them.
"""

# ruff: noqa: S608  # the SQL is put together from names, which `quoted` quotes; values are parameters

import base64
import binascii
import re
from collections.abc import Callable

import orjson

from ...core import InvalidOperation, Json
from .schema import Column, literal, quoted

INTEGERS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}
FLOATS = {"float4", "float8", "numeric"}
NOT_NUMBERS = {"NaN", "Infinity", "-Infinity"}
TEXTS = {"text", "varchar", "bpchar", "name", "citext"}
DOCUMENTS = {"json", "jsonb"}
TIMES = {
    "date": r"-?\d{4,}-\d\d-\d\d|-?infinity",
    "timestamp": r"-?\d{4,}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?|-?infinity",
    "timestamptz": r"-?\d{4,}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)|-?infinity",
    "time": r"\d\d:\d\d(:\d\d(\.\d+)?)?",
    "timetz": r"\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)",
}
KEPT = "="
"""In place of the text of a member that an update leaves as it is: no text of the types that may keep theirs."""

_TIMES = {name: re.compile(pattern, re.ASCII) for name, pattern in TIMES.items()}
_PLAIN_LITERAL = re.compile(r"[A-Za-z0-9_.:+-]+", re.ASCII)


def member_sql(column: Column) -> str:
    """Return SQL for a column's part of a value's JSON text, `"name":…`; NULL is NULL."""
    name = literal(orjson.dumps(column.name).decode() + ":")
    place = f"t.{quoted(column.name)}"
    if column.type == "bytea":
        return f"{name} || '\"' || translate(encode({place}, 'base64'), E'\\n', '') || '\"'"
    if column.element == "bytea":
        each = f"SELECT translate(encode(e, 'base64'), E'\\n', '') FROM unnest({place}) AS e"
        return f"{name} || CASE WHEN {place} IS NOT NULL THEN to_jsonb(ARRAY({each}))::text END"
    return f"{name} || to_jsonb({place})::text"


def to_text(column: Column, member: Json) -> str | None:
    """Return what the column's type reads; None is NULL. Raise InvalidOperation, naming the column."""
    if member is None and (column.type not in DOCUMENTS or column.element is not None):
        return None
    if column.element is not None:
        return _array(column, member)
    return _scalar(column, column.type, member)


def keeps(column: Column) -> bool:
    """Whether a column may hold what its member does not tell, more digits for one, and KEPT can be no text of it."""
    return column.element is not None or column.type in {"numeric", *DOCUMENTS, *TIMES}


def _scalar(column: Column, kind: str, member: Json) -> str:
    if kind in DOCUMENTS:
        return orjson.dumps(member).decode()
    text = _reader(kind)(member)
    if text is None:
        raise InvalidOperation(f"column {column.name!r} cannot hold that: it is {column.full_type}")
    if column.length is not None and len(text.rstrip(" ")) > column.length:
        raise InvalidOperation(f"column {column.name!r} holds at most {column.length} characters")
    return text


def _reader(kind: str) -> Callable[[Json], str | None]:
    """Return what makes text for a type of a member, and None of what does not fit."""
    if kind in INTEGERS:
        bound = INTEGERS[kind]
        return lambda member: str(member) if type(member) is int and -bound <= member < bound else None
    if kind in FLOATS:
        return _number
    if kind in _TIMES:
        pattern = _TIMES[kind]
        return lambda member: member if isinstance(member, str) and pattern.fullmatch(member) else None
    if kind == "bool":
        return lambda member: {True: "true", False: "false"}[member] if isinstance(member, bool) else None
    if kind == "bytea":
        return _bytes
    return lambda member: member if isinstance(member, str) else None


def _number(member: Json) -> str | None:
    if isinstance(member, bool):
        return None
    if isinstance(member, (int, float)):
        return repr(member)
    return member if isinstance(member, str) and member in NOT_NUMBERS else None


def _bytes(member: Json) -> str | None:
    if not isinstance(member, str):
        return None
    try:
        return "\\x" + base64.b64decode(member, validate=True).hex()
    except (binascii.Error, ValueError):
        return None


def _array(column: Column, member: Json) -> str:
    """Return an array as PostgreSQL writes it: in braces, elements in quotes where that may be needed."""
    if not isinstance(member, list):
        raise InvalidOperation(f"column {column.name!r} holds an array: it is {column.full_type}")
    kind = column.element
    assert kind is not None
    parts = []
    for element in member:
        if element is None:
            parts.append("NULL")
        elif isinstance(element, list) and kind not in DOCUMENTS:
            parts.append(_array(column, element))
        else:
            parts.append(_element(_scalar(column, kind, element)))
    return "{" + ",".join(parts) + "}"


def _element(text: str) -> str:
    if _PLAIN_LITERAL.fullmatch(text) and text.upper() != "NULL":
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
