"""Convert Arrow columns to JSON text: the rule for frames and Spark's format, a table in `docs/spark.md`."""

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from tableside_client.operators import Kind

Decimals: TypeAlias = Literal["number", "string"]

DECIMAL_DIGITS_MAX = 15
"""The number of decimal digits that every double preserves."""

NOT_FINITE = "a NaN or an infinity"
OUT_OF_RANGE = "a time outside of the years 1 to 9999 in UTC"
EQUAL_KEYS = "a map with two equal keys"
NOT_UTF8 = "text that is not valid UTF-8"

UNWRITABLE = (KeyError, OverflowError, ValueError)
"""The exceptions for values that JSON cannot represent."""


@dataclass(frozen=True, slots=True)
class JsonWriter:
    """Writes values as JSON. `decimals` is the format of decimals."""

    decimals: Decimals = "number"

    def texts(self, column: pa.Array) -> list[str]:
        """Return the JSON text of each value. Raises one of `UNWRITABLE` if JSON cannot represent one of them."""
        return list(map(self.text, _for_python(column).to_pylist(maps_as_pydicts="strict")))

    def problems(self, column: pa.Array) -> list[str | None]:
        """Return, for each value, why JSON cannot represent it, or None."""
        return list(map(self._problem, _for_python(column)))

    def text(self, value: Any) -> str:
        """Return the JSON text of a Python value. Raises `ValueError` if JSON cannot represent it."""
        return json.dumps(value, default=self._as_json, allow_nan=False, ensure_ascii=False, separators=(",", ":"))

    def _problem(self, value: pa.Scalar) -> str | None:
        try:
            self.text(value.as_py(maps_as_pydicts="strict"))
        except KeyError:
            return EQUAL_KEYS
        except UnicodeDecodeError:
            return NOT_UTF8
        except OverflowError:  # from the conversion to Python's times, which have the same years
            return OUT_OF_RANGE
        except ValueError:
            return NOT_FINITE
        return None

    def _as_json(self, value: Any) -> Any:
        match value:
            case dt.datetime() if value.tzinfo is not None:
                text = value.astimezone(dt.UTC).isoformat(timespec="microseconds")
                return text.replace("+00:00", "Z")
            case dt.datetime():
                return value.isoformat(timespec="microseconds")
            case dt.date():
                return value.isoformat()
            case Decimal():
                if self.decimals == "string":
                    return f"{value:f}"
                return int(value) if value == value.to_integral_value() else float(value)
        raise ValueError(f"JSON cannot represent {type(value).__name__}")


def json_kind(kind: pa.DataType) -> Kind | None:
    """Return the kind of JSON values that a column of a type has, or None if JSON cannot represent it."""
    return next((name for name, tests in _KINDS.items() if any(test(kind) for test in tests)), None)


_KINDS: dict[Kind, tuple[Callable[[pa.DataType], bool], ...]] = {
    "null": (pa.types.is_null,),
    "boolean": (pa.types.is_boolean,),
    "integer": (pa.types.is_integer,),
    "number": (pa.types.is_floating, pa.types.is_decimal),
    "string": (pa.types.is_string, pa.types.is_date, pa.types.is_timestamp),
    "array": (pa.types.is_list,),
    "object": (pa.types.is_struct, pa.types.is_map),
}


def require_json_type(name: str, kind: pa.DataType) -> None:
    """Raise `ValueError` for a type whose values JSON cannot represent without loss. The message names the column."""
    if pa.types.is_struct(kind):
        if repeated := {member.name for member in kind if kind.get_all_field_indices(member.name)[1:]}:
            raise ValueError(f"column {name} has two members named {min(repeated)!r}: rename or drop one first")
        for member in kind:
            require_json_type(f"{name}.{member.name}", member.type)
    elif pa.types.is_list(kind):
        require_json_type(f"{name}[]", kind.value_type)
    elif pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise ValueError(f"column {name} is {kind}: a JSON member's name is a string")
        require_json_type(f"{name}{{}}", kind.item_type)
    elif pa.types.is_decimal(kind) and kind.precision > DECIMAL_DIGITS_MAX:
        raise ValueError(f"column {name} is {kind}: a JSON number keeps {DECIMAL_DIGITS_MAX} digits; cast it")
    elif json_kind(kind) is None:
        raise ValueError(f"column {name} is {kind}: JSON cannot represent it; cast it first")


def _for_python(column: pa.Array) -> pa.Array:
    """Return a column that Python converts exactly: times in UTC, and each float as the double with the same digits."""
    column = in_utc(column)
    texts = with_scalars(column.type, lambda kind: pa.string() if pa.types.is_float32(kind) else kind)
    doubles = with_scalars(column.type, lambda kind: pa.float64() if pa.types.is_float32(kind) else kind)
    return column if texts == column.type else column.cast(texts).cast(doubles)


def in_utc(column: pa.Array) -> pa.Array:
    """Return the column with its times, at every depth, in UTC."""

    def changed(kind: pa.DataType) -> pa.DataType:
        return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind

    kind = with_scalars(column.type, changed)
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
