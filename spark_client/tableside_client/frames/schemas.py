"""Schemas of frames: given ones, and the one that all JSON values fit."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.frames.kinds import plain_type, require_unique
from tableside_client.json_reader import JsonReader, key_text

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
    """Return a reader with the types of `plain_type`, from which Arrow casts. Raises `ValueError` with the column."""
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


COLUMNS_MAX = 1_000

_NULL, _INTEGER, _DOUBLE = pa.null(), pa.int64(), pa.float64()
_SCALARS = {type(None): _NULL, bool: pa.bool_(), int: _INTEGER, float: _DOUBLE, str: pa.string()}
_NAMES = {pa.bool_(): "boolean", _INTEGER: "number", _DOUBLE: "number", pa.string(): "string"}


class UnlikeTypesError(TypeError):
    """Two values have no common type. The arguments are their types."""


@dataclass(slots=True)
class SchemaInference:
    """Collects the types of members: of `names`, or of all in their order. Integers beside doubles are doubles."""

    table: str
    names: Sequence[str] | None = None
    _types: dict[str, pa.DataType] = field(default_factory=dict)

    def see(self, keys: pa.Array, texts: pa.Array) -> None:
        """Note the types of JSON texts. Raises `ValueError` if a value has no common type with those before it."""
        # One long text is parsed faster than many short ones.
        listed = ",".join(pc.fill_null(texts.cast(pa.string()), "{}").to_pylist())
        values: list[dict[str, Any]] = json.loads(f"[{listed}]")
        names = list(dict.fromkeys(name for value in values for name in value)) if self.names is None else self.names
        for name in names:
            before = self._types.get(name, _NULL)
            members = [value.get(name) for value in values]
            try:
                self._types[name] = _common([before, *map(_SCALARS.__getitem__, set(map(type, members)))])
            except (KeyError, UnlikeTypesError):
                self._types[name] = self._common_of_each(name, before, keys, members)
        if len(self._types) > COLUMNS_MAX:
            raise ValueError(
                f"table {self.table}: the records have more than {COLUMNS_MAX:,} members: choose some with a schema"
            )

    def schema(self) -> pa.Schema:
        """Return the schema. A member without values has the type null."""
        names = self._types if self.names is None else self.names
        return pa.schema([(name, self._types.get(name, _NULL)) for name in names])

    def _common_of_each(self, name: str, common: pa.DataType, keys: pa.Array, members: list[Any]) -> pa.DataType:
        for row, member in enumerate(members):
            try:
                common = _unify(common, _type_of(member))
            except UnlikeTypesError as error:
                found, other = (
                    _NAMES.get(kind) or ("object" if pa.types.is_struct(kind) else "array")
                    for kind in reversed(error.args)
                )
                raise ValueError(
                    f"table {self.table}: column {name} is a JSON {found} for key {key_text(keys[row].as_py())}, but a "
                    f"JSON {other} for another; correct the record, or give a schema, in which string fits any value"
                ) from None
        return common


def _type_of(value: Any) -> pa.DataType:
    if isinstance(value, dict):
        return pa.struct([(name, _type_of(member)) for name, member in value.items()])
    if isinstance(value, list):
        return pa.list_(_common(map(_type_of, value)))
    return _SCALARS[type(value)]


def _common(kinds: Iterable[pa.DataType]) -> pa.DataType:
    common = _NULL
    for kind in kinds:
        common = _unify(common, kind)
    return common


def _unify(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if left == right or right == _NULL:
        return left
    if left == _NULL:
        return right
    if {left, right} == {_INTEGER, _DOUBLE}:
        return _DOUBLE
    if pa.types.is_list(left) and pa.types.is_list(right):
        return pa.list_(_unify(left.value_type, right.value_type))
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        members = {member.name: member.type for member in left}
        for member in right:
            members[member.name] = _unify(members.get(member.name, _NULL), member.type)
        return pa.struct(list(members.items()))
    raise UnlikeTypesError(left, right)
