"""The columns of an Arrow batch: their names, their types and valid combinations.

Rows of a dictionary share their values, so a short stream can describe more than fits into memory. A dictionary of text
or of single numbers is accepted, because its size is known before it is expanded. A dictionary of anything else is not.
"""

from collections.abc import Callable, Iterable

import pyarrow as pa

from ...core import MalformedRequest
from .operation_members import display_name

KEY_PARTS_MAX = 8
"""The maximum number of fields of a struct of key parts. A table has no more."""


def check_types(schema: pa.Schema) -> None:
    """Raise MalformedRequest if a column is unknown, occurs twice or has the wrong type."""
    _read_names(schema)
    if len(set(schema.names)) != len(schema.names):
        raise MalformedRequest("a column occurs twice")
    for field in schema:
        if field.name not in _TYPES:
            raise MalformedRequest(f"a batch has no column {display_name(field.name)}")
        if not _TYPES[field.name](field.type):
            raise MalformedRequest(f"column {field.name!r} has the wrong type")


def check_combination(names: list[str], op: str | None, writer: str | None) -> None:
    """Raise MalformedRequest if the columns and the parameters `op` and `writer` do not belong together."""
    if "key" not in names:
        raise MalformedRequest("a batch needs a column key")
    if ("op" in names) == (op is not None):
        raise MalformedRequest("op must be either a column or a parameter")
    if "writer" in names and writer is not None:
        raise MalformedRequest("writer must be either a column or a parameter")
    if ("sequence" in names) != ("writer" in names or writer is not None):
        raise MalformedRequest(
            "a column sequence requires writer, as a column or parameter, and writer requires the column"
        )


def _read_names(fields: Iterable[pa.Field]) -> None:
    """Read all column and field names, because PyArrow raises an error for invalid UTF-8 in them only on access."""
    for field in fields:
        _ = field.name
        _read_names(field.type.field(index) for index in range(field.type.num_fields))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_part(kind: pa.DataType) -> bool:
    return _is_text(kind) or bool(pa.types.is_integer(kind))


def _is_json(kind: pa.DataType) -> bool:
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(binary) or _is_text(kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _or_dictionary(accepts: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: accepts(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _is_key(kind: pa.DataType) -> bool:
    is_part = _or_dictionary(_is_part)
    if not pa.types.is_struct(kind):
        return is_part(kind)
    return kind.num_fields <= KEY_PARTS_MAX and all(is_part(field.type) for field in kind)


def _is_partitions(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_integer(kind.value_type)


_TYPES: dict[str, Callable[[pa.DataType], bool]] = {
    "key": _is_key,
    "op": _or_dictionary(_is_text),
    "value": _or_dictionary(_is_json),
    "update": _or_dictionary(_is_json),
    "default": _or_dictionary(_is_json),
    "if_match": _or_dictionary(_is_text),
    "if_absent": _or_dictionary(pa.types.is_boolean),
    "ttl_s": _or_dictionary(_is_number),
    "sequence": _or_dictionary(pa.types.is_integer),
    "writer": _or_dictionary(_is_text),
    "partitions": _is_partitions,
}
