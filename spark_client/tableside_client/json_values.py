"""Convert JSON values to Python values of an Arrow type: the rule for every read with a schema.

`docs/spark.md` has the rule as a table.
"""

import base64
import datetime as dt
import json
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa

Convert = Callable[[Any], Any]
"""Converts a value other than null. Raises an error of `MISFITS` if it does not fit."""
MISFITS = (ValueError, ArithmeticError)

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_UNUSUAL_DOUBLES = ("NaN", "Infinity", "-Infinity")
_TIME = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)(?:[T ](\d\d?)(?::(\d\d?)(?::(\d\d?)(?:\.(\d*))?)?)?"
    r"(Z|([+-])(\d\d?)(?::?(\d\d))?)?)?",
    re.ASCII,
)
_SECONDS_PER_DAY = 86_400
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()


class Number(str):
    """A JSON number as its text, which has all digits."""

    __slots__ = ()


parse = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number).decode
"""Parse JSON text. Numbers are a `Number`."""


def json_text(value: Any) -> str:
    """Return a parsed value as compact JSON text."""
    match value:
        case Number():
            return str(value)
        case dict():
            members = (f"{json_text(name)}:{json_text(member)}" for name, member in value.items())
            return f"{{{','.join(members)}}}"
        case list():
            return f"[{','.join(map(json_text, value))}]"
    return json.dumps(value, ensure_ascii=False)


def json_type(value: Any) -> str:
    """Return `string`, `number`, `boolean`, `object` or `array` for a parsed value."""
    names = {Number: "number", str: "string", bool: "boolean", dict: "object", list: "array"}
    return names[type(value)]


def converter(field: pa.Field, parse_variant: Convert | None = None) -> Convert:
    """Return the conversion to a type. Raises `TypeError` for a type that cannot be read from JSON.

    `parse_variant` converts JSON text to a variant of Spark.
    """
    kind = field.type
    if pa.types.is_struct(kind):
        if parse_variant is not None and any((member.metadata or {}).get(b"variant") for member in kind):
            return lambda value: parse_variant(json_text(value))
        return _struct_converter(kind, parse_variant)
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        item = _nullable(converter(kind.item_field, parse_variant))
        return lambda value: [(name, item(member)) for name, member in _require(value, dict).items()]
    if pa.types.is_list(kind):
        element = _nullable(converter(kind.value_field, parse_variant))
        return lambda value: list(map(element, _require(value, list)))
    return _scalar_converter(kind)


def _scalar_converter(kind: pa.DataType) -> Convert:
    if pa.types.is_decimal(kind):
        return _decimal_converter(kind)
    if pa.types.is_signed_integer(kind):
        return lambda value: _in_range(int(_require(value, Number)), kind.bit_width)
    if pa.types.is_timestamp(kind):
        return _timestamp if kind.tz is not None else _local_timestamp
    if kind not in _SCALARS:
        raise TypeError(f"JSON cannot represent {kind}")
    return _SCALARS[kind]


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _require(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError
    return value


def _struct_converter(kind: pa.StructType, parse_variant: Convert | None) -> Convert:
    members = {member.name: _nullable(converter(member, parse_variant)) for member in kind}
    if len(members) < kind.num_fields:
        raise TypeError("two members have one name")
    return lambda value: {name: convert(_require(value, dict).get(name)) for name, convert in members.items()}


def _decimal_converter(kind: pa.Decimal128Type) -> Convert:
    unit, context = Decimal(1).scaleb(-kind.scale), Context(prec=kind.precision, rounding=ROUND_HALF_UP)

    def convert(value: Any) -> Decimal:
        if not isinstance(value, str) or not _NUMBER.fullmatch(value):
            raise ValueError
        return Decimal(value).quantize(unit, context=context)

    return convert


def _in_range(number: int, bits: int) -> int:
    return number if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else _misfit()


def _misfit() -> Any:
    raise ValueError


def _double(value: Any) -> float:
    return float(value) if value in _UNUSUAL_DOUBLES else float(_require(value, Number))


def _date(value: Any) -> int:
    """Return the days since 1970 of a date, or of the date in a time."""
    return _days(_matched_time(value))


def _timestamp(value: Any) -> int:
    """Return the microseconds since 1970 of a time in UTC or with an offset, or of whole seconds since 1970."""
    if type(value) is Number:
        return _in_range(int(value) * 1_000_000, 64)
    return _micros(_matched_time(value))


def _local_timestamp(value: Any) -> int:
    found = _matched_time(value)
    return _misfit() if found[8] else _micros(found)


def _matched_time(value: Any) -> re.Match[str]:
    return _TIME.fullmatch(_require(value, str)) or _misfit()


def _days(found: re.Match[str]) -> int:
    """Return days since 1970. Python has no year 0, so the date is computed in an equal year of the calendar."""
    cycles, year = divmod(int(found[1]), 400)
    return dt.date(year + 400, int(found[2]), int(found[3])).toordinal() - _EPOCH_DAY + (cycles - 1) * 146_097


def _micros(found: re.Match[str]) -> int:
    seconds = _days(found) * _SECONDS_PER_DAY + _seconds(*found.group(4, 5, 6))
    offset = _seconds(found[10], found[11], None)
    fraction = int((found[7] or "")[:6].ljust(6, "0"))
    return (seconds + (offset if found[9] == "-" else -offset)) * 1_000_000 + fraction


def _seconds(hour: str | None, minute: str | None, second: str | None) -> int:
    """Return the seconds of a time of a day. Raises `ValueError` for other numbers."""
    time = dt.time(int(hour or 0), int(minute or 0), int(second or 0))
    return (time.hour * 60 + time.minute) * 60 + time.second


_SCALARS: dict[pa.DataType, Convert] = {
    pa.string(): lambda value: value if type(value) is str else json_text(value),
    pa.bool_(): lambda value: _require(value, bool),
    pa.float32(): _double,
    pa.float64(): _double,
    pa.date32(): _date,
    pa.binary(): lambda value: base64.b64decode(_require(value, str), validate=True),
    pa.null(): lambda _: _misfit(),
}
