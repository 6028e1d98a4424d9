"""The SQL for the values of a table: the columns to write, and the JSON text of a value."""

# ruff: noqa: S608  # the SQL is built from names, which `quoted` quotes

from collections.abc import Sequence

import msgspec
import orjson

from ...core import INTEGER_MAX, INTEGER_MIN
from .schema import Column, literal, quoted

UNCHANGED = b"\xff"
"""Sent instead of the text of a member that a write leaves unchanged. It is not UTF-8, so no text equals it."""

_MEMBERS_PER_CALL = 45
"""How many members one `concat_ws` call joins. PostgreSQL functions take at most 100 arguments."""


class ValueSql(msgspec.Struct, frozen=True):
    """The SQL for the values of a table: the columns to write, and an expression for a value's JSON text.

    `present` is the condition that a row has a value, `object` the condition that the value is a JSON object.
    """

    data: tuple[Column, ...]
    value: str
    present: str
    object: str


def columns_value_sql(columns: Sequence[Column]) -> str:
    """Return SQL for the JSON text of the members in these columns, without those that are NULL.

    PostgreSQL itself produces the JSON (`to_jsonb`), except for `bytea`, which becomes base64, and for a `numeric` that
    no JSON number equals, which becomes its decimal text.
    """
    parts = [_member_sql(column) for column in columns]
    while len(parts) > _MEMBERS_PER_CALL:
        groups = [parts[start : start + _MEMBERS_PER_CALL] for start in range(0, len(parts), _MEMBERS_PER_CALL)]
        parts = [f"nullif(concat_ws(',', {', '.join(group)}), '')" for group in groups]
    return f"('{{' || concat_ws(',', {', '.join(parts)}) || '}}')" if parts else "'{}'"


def _member_sql(column: Column) -> str:
    name = literal(orjson.dumps(column.name).decode() + ":")
    return f"{name} || ({_json_sql(column, f't.{quoted(column.name)}')})::text"


def _json_sql(column: Column, content: str) -> str:
    as_is, as_texts = f"to_jsonb({content})", f"to_jsonb({content}::text{'[]' if column.element else ''})"
    if column.type == "bytea":
        return f"to_jsonb({_base64_sql(content)})"
    if column.element == "bytea":
        each = f"ARRAY(SELECT {_base64_sql('e')} FROM unnest({content}) AS e)"
        return f"CASE WHEN {content} IS NULL OR array_ndims({content}) > 1 THEN {as_is} ELSE to_jsonb({each}) END"
    if column.type == "numeric":
        trimmed = f"trim_scale({content})"
        return f"CASE WHEN {_is_number_sql(trimmed)} THEN to_jsonb({trimmed}) ELSE {as_texts} END"
    if column.element == "numeric":
        each = f"SELECT bool_and({_is_number_sql('e')}) FROM unnest({content}) AS e"
        return f"CASE WHEN ({each}) THEN {as_is} ELSE {as_texts} END"
    return as_is


def _base64_sql(content: str) -> str:
    return f"translate(encode({content}, 'base64'), E'\\n', '')"


def _is_number_sql(content: str) -> str:
    """Return SQL for whether a `numeric` is written as a 64-bit integer, or has the shortest digits of a double."""
    is_integer = f"scale({content}) = 0 AND {content} BETWEEN {INTEGER_MIN} AND {INTEGER_MAX}"
    return (
        f"CASE WHEN {is_integer} THEN true "
        f"WHEN abs({content}) BETWEEN 1e-300 AND 1e300 THEN {content}::float8::text::numeric = {content} "
        f"ELSE {content}::text IN ('NaN', 'Infinity', '-Infinity') END"
    )
