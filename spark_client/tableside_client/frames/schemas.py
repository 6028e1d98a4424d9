"""Schemas of frames, and the types by which their members are read from JSON."""

from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

from tableside_client.frames.kinds import plain_type, require_unique
from tableside_client.json_reader import JsonReader

FrameSchema: TypeAlias = pa.Schema | Mapping[str, pa.DataType | str]
"""A schema of Arrow, or types by name. A type is one of Arrow, or its name, such as `"int64"`."""


def arrow_schema(schema: FrameSchema) -> pa.Schema:
    """Return a schema of Arrow. Raises `ValueError` or `TypeError` for one that is not valid."""
    if isinstance(schema, Mapping):
        schema = pa.schema([(name, _type(name, kind)) for name, kind in schema.items()])
    if not isinstance(schema, pa.Schema):
        raise TypeError(
            f'a schema must be a pyarrow Schema or a mapping such as {{"seats": "int64"}}, not {type(schema).__name__}'
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
