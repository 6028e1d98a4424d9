"""Decimals that are read from JSON numbers, rounded as Spark's `from_json` rounds them."""

import pyarrow as pa
import pyarrow.compute as pc

_WIDE = pa.decimal256(76, 38)
_LEAST = 1e-20
"""Smaller numbers are 0 with any scale that is read, and have more digits than `_WIDE`."""


def cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column that was read from JSON. Doubles become decimals by their shortest digits, rounded half up.

    Raises `pyarrow.ArrowInvalid` for a value that does not fit.
    """
    if column.type == kind:
        return column
    if pa.types.is_decimal(kind) and pa.types.is_floating(column.type):
        return _rounded(column, kind)
    if pa.types.is_struct(kind):
        members = [cast(member, field.type) for member, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind):
        values = cast(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, values, type=kind, mask=column.is_null())
    return pc.cast(column, kind)


def _rounded(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    digits = pc.if_else(pc.less(pc.abs(numbers), _LEAST), 0.0, numbers).cast(pa.string())
    rounded = pc.round(digits.cast(_WIDE), ndigits=kind.scale, round_mode="half_towards_infinity")
    return rounded.cast(kind)
