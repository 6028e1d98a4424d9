"""The key columns of frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.frames.kinds import FrameKind
from tableside_client.key_columns import invalid_utf8, key_column
from tableside_client.table_schema import TableSchema, wire_keys


def check_columns(names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise `ValueError` if a frame with these names lacks a wanted column."""
    for name in wanted:
        if name not in names:
            raise ValueError(f"the frame has no column {name!r}; it has {', '.join(names)}")


def key_names(key: str | Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of an argument with key columns. Raises `ValueError` if a frame with these names lacks one."""
    keys = (key,) if isinstance(key, str) else tuple(key)
    if not keys:
        raise ValueError("no key column is named")
    check_columns(names, keys)
    return keys


@dataclass(frozen=True, slots=True)
class FrameKeys:
    """The key columns of a frame.

    Attributes:
        columns: The columns by name, in the order of the table's key: strings or 64-bit integers.
        fields: The names of the key's fields.
        is_typed: Whether the columns have the types of the table's key.
    """

    columns: dict[str, pa.Array]
    fields: tuple[str, ...]
    is_typed: bool

    @classmethod
    def of_frame(cls, kind: FrameKind, frame: Any, keys: Sequence[str], table_schema: TableSchema) -> Self:
        """Read the key columns of a frame. Raises `ValueError` for a column with a type that is not valid for keys."""
        ordered, fields = wire_keys(table_schema, keys)
        columns = {name: _key_array(name, column) for name, column in kind.columns(frame, ordered).items()}
        types = ["integer" if pa.types.is_integer(column.type) else "string" for column in columns.values()]
        return cls(columns, fields, types == list(table_schema.key_types))

    def valid_columns(self) -> list[pa.Array]:
        """Return the columns with null in place of texts that are not valid UTF-8: no record has such a key."""
        masks = map(invalid_utf8, self.columns.values())
        return [
            column if mask is None else pc.if_else(mask, pa.scalar(None, column.type), column)
            for column, mask in zip(self.columns.values(), masks, strict=True)
        ]

    def take(self, rows: Sequence[int]) -> pa.Array:
        """Return the keys of rows, in the type of the request."""
        return key_column([column.take(pa.array(rows, pa.int64())) for column in self.columns.values()], self.fields)

    def key(self, row: int) -> Any:
        """Return the key of a row: a string or an integer, or a tuple of them for a composite key."""
        parts = [_part(column[row]) for column in self.columns.values()]
        return parts[0] if len(parts) == 1 else tuple(parts)


def _part(value: pa.Scalar) -> Any:
    if not pa.types.is_string(value.type) or not value.is_valid:
        return value.as_py()
    return value.as_buffer().to_pybytes().decode(errors="replace")


def _key_array(name: str, column: pa.Array) -> pa.Array:
    if column.null_count == len(column):  # pandas has such columns as doubles
        return pa.nulls(len(column), pa.string())
    if pa.types.is_integer(column.type):
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise ValueError(f"key column {name!r} has an integer beyond 64 bits with a sign") from error
    if not pa.types.is_string(column.type):
        raise ValueError(f"key column {name!r} is {column.type}: a key is a string or an integer")
    return column
