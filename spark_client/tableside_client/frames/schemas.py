"""Schemas of frames, and the types by which their members are read from JSON."""

import re
from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

from tableside_client.frames.kinds import plain_type, require_unique
from tableside_client.json_reader import JsonReader

FrameSchema: TypeAlias = pa.Schema | Mapping[str, pa.DataType | str] | str
"""A schema of Arrow, or types by name, or a schema as text as in Spark, such as `"seats int, built date"`.

A type by name is one of Arrow, or its name, such as `"int64"`.
"""


def arrow_schema(schema: FrameSchema) -> pa.Schema:
    """Return a schema of Arrow. Raises `ValueError` or `TypeError` for one that is not valid."""
    if isinstance(schema, str):
        schema = pa.schema([_text_field(part) for part in _split(schema)])
    if isinstance(schema, Mapping):
        schema = pa.schema([(name, _type(name, kind)) for name, kind in schema.items()])
    if not isinstance(schema, pa.Schema):
        raise TypeError(
            'a schema must be a pyarrow Schema, a mapping such as {"seats": "int64"} or a text such as "seats int", '
            f"not {type(schema).__name__}"
        )
    require_unique(schema.names)
    value_reader(schema)
    return schema


def _type(name: str, kind: pa.DataType | str) -> pa.DataType:
    try:
        return pa.type_for_alias(kind) if isinstance(kind, str) else kind
    except ValueError:
        raise ValueError(f"column {name} is {kind!r}, which is not a type of Arrow") from None


def value_reader(schema: pa.Schema) -> JsonReader:
    """Return a reader of values. It has the types of `plain_type`, from which Arrow casts to those of the schema.

    Raises `ValueError` for a type that cannot be read from JSON. It names the column.
    """
    readable = pa.schema([field.with_type(plain_type(field.type)) for field in schema])
    return JsonReader(readable, tuple(map(str, schema.types)))


_TEXT_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}
"""Scalar types by their names in Spark. `decimal` has parameters."""


def _text_field(text: str) -> pa.Field:
    """Read a column or a member, such as `seats int` or `seats: int`. A name in backticks can contain any character."""
    found = re.fullmatch(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))\s*(?:\s|:)\s*(.+?)\s*", text, re.DOTALL)
    if found is None:
        raise ValueError(f'{text.strip()!r} is not a column with its type, such as "seats int"')
    name = found[2] if found[1] is None else found[1].replace("``", "`")
    return pa.field(name, _text_type(name, found[3]))


def _text_type(name: str, text: str) -> pa.DataType:
    """Read a type of Spark, such as `array<struct<a: int>>`. Raises `ValueError` with the name of the column."""
    if (scalar := _TEXT_TYPES.get(text.lower())) is not None:
        return scalar
    found = re.fullmatch(r"(\w+)\s*[<(](.*)[>)]", text, re.DOTALL)
    parts = [] if found is None else _split(found[2])
    match "" if found is None else found[1].lower(), parts:
        case "array", [element]:
            return pa.list_(_text_type(name, element.strip()))
        case "map", [key, item] if key.strip().lower() == "string":
            return pa.map_(pa.string(), _text_type(name, item.strip()))
        case "struct", [_, *_]:
            return pa.struct([_text_field(part) for part in parts])
        case "decimal", [precision, scale] if precision.strip().isdigit() and scale.strip().isdigit():
            return pa.decimal128(int(precision), int(scale))
    raise ValueError(f"column {name} is {text}, which is not a type that can be read from JSON")


def _split(text: str) -> list[str]:
    """Divide a text at the commas outside of brackets and backticks."""
    parts, depth, quoted = [""], 0, False
    for character in text:
        quoted ^= character == "`"
        depth += 0 if quoted else (character in "<(") - (character in ">)")
        if character == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts
