"""Times of Arrow columns in UTC, before they become Python values: Python lacks time zones of Spark such as GMT+8."""

from collections.abc import Callable

import pyarrow as pa


def in_utc(column: pa.Array) -> pa.Array:
    """Return the column with its times, at every depth, in UTC."""
    kind = with_scalars(column.type, _in_utc)
    return column if kind == column.type else column.cast(kind)


def with_scalars(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with each of its scalar types changed, except those of the keys of maps."""
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(with_scalars(member.type, change)) for member in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(with_scalars(kind.item_type, change)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_scalars(kind.value_type, change)))
    return change(kind)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind
