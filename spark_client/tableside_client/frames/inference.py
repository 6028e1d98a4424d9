"""Find the schema of JSON values: the type of each member that all of its values fit."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.json_reader import key_text

COLUMNS_MAX = 1_000
"""The maximum number of members of a schema."""

_NULL, _INTEGER, _DOUBLE = pa.null(), pa.int64(), pa.float64()
_SCALARS = {type(None): _NULL, bool: pa.bool_(), int: _INTEGER, float: _DOUBLE, str: pa.string()}
_NAMES = {pa.bool_(): "boolean", _INTEGER: "number", _DOUBLE: "number", pa.string(): "string"}


class UnlikeTypesError(TypeError):
    """Two values have no common type. The arguments are their types."""


@dataclass(slots=True)
class SchemaInference:
    """Collects the types of members. `names` are the members. None means all, in the order of their appearance.

    Integers beside doubles are doubles. Objects have the members of all of them.
    """

    table: str
    names: Sequence[str] | None = None
    _types: dict[str, pa.DataType] = field(default_factory=dict)

    def see(self, keys: pa.Array, texts: pa.Array) -> None:
        """Note the types of JSON texts, which are null for absent records.

        Raises `ValueError` if a value has no common type with the ones before it. It names the column and the key.
        """
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
                found, other = map(_json_name, reversed(error.args))
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
    """Return the common type of two types. Raises `UnlikeTypesError` if there is none."""
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


def _json_name(kind: pa.DataType) -> str:
    return _NAMES.get(kind) or ("object" if pa.types.is_struct(kind) else "array")
