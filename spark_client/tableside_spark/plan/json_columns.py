"""JSON text of columns, produced in the JVM: supported types, valid values, and formats."""

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from pyspark.sql import Column, functions as F, types as T

from tableside_client.json_writer import DECIMAL_DIGITS_MAX, EQUAL_KEYS, NOT_FINITE, OUT_OF_RANGE, Decimals
from tableside_client.operators import Kind
from tableside_spark.versions import VariantType

Nulls = Literal["write", "omit"]
Check = tuple[Column | None, str]
"""A condition for rows that cannot be sent, and the problem that it means."""

_KINDS: tuple[tuple[Kind, tuple[type[T.DataType], ...]], ...] = (
    ("null", (T.NullType,)),
    ("boolean", (T.BooleanType,)),
    ("integer", (T.ByteType, T.ShortType, T.IntegerType, T.LongType)),
    ("number", (T.FloatType, T.DoubleType, T.DecimalType)),
    ("string", (T.StringType, T.CharType, T.VarcharType, T.DateType, T.TimestampType, T.TimestampNTZType)),
    ("array", (T.ArrayType,)),
    ("object", (T.StructType, T.MapType)),
    ("mixed", (VariantType,)),
)

_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "timeZone": "UTC",  # with one time zone and one width, the order of the texts is the order of the times
}


def json_text(struct: Column, nulls: Nulls) -> Column:
    """Return a struct as a JSON object. Nulls are written or omitted at every depth. Times are ISO 8601 in UTC."""
    return F.to_json(struct, _OPTIONS | {"ignoreNullFields": str(nulls == "omit").lower()})


def json_kind(kind: T.DataType) -> Kind | None:
    """Return the kind of JSON values that a column of a type has, or None if JSON cannot represent it."""
    return next((name for name, types in _KINDS if isinstance(kind, types)), None)


def require_json_type(name: str, kind: T.DataType, decimals: Decimals) -> None:
    """Raise `ValueError` for a type whose values JSON cannot represent without loss. The message names the column."""
    match kind:
        case T.StructType():
            require_distinct_members(name, kind)
            for member in kind.fields:
                require_json_type(f"{name}.{member.name}", member.dataType, decimals)
        case T.ArrayType():
            require_json_type(f"{name}[]", kind.elementType, decimals)
        case T.MapType():
            if not isinstance(kind.keyType, T.StringType):
                raise ValueError(f"column {name} is {kind.simpleString()}: a JSON member's name is a string")
            require_json_type(f"{name}{{}}", kind.valueType, decimals)
        case T.DecimalType():
            if decimals != "string" and kind.precision > DECIMAL_DIGITS_MAX:
                raise ValueError(
                    f"column {name} is {kind.simpleString()}: a JSON number keeps {DECIMAL_DIGITS_MAX} digits; "
                    'cast it, or set decimals="string"'
                )
        case _ if json_kind(kind) is None:
            raise ValueError(f"column {name} is {kind.simpleString()}: JSON cannot represent it; cast it first")


def require_distinct_members(name: str, kind: T.StructType) -> None:
    """Raise `ValueError` for members with equal names: an object keeps one of them. Names can differ in case only."""
    if repeated := {member for member in kind.names if kind.names.count(member) > 1}:
        raise ValueError(f"column {name} has two members named {min(repeated)!r}: rename or drop one first")


def with_decimals(column: Column, kind: T.DataType, decimals: Decimals) -> Column:
    """Return the column with decimals as strings at every depth, if `decimals` is "string"."""
    return _decimals_as_text(column, kind) if decimals == "string" and has_type(kind, T.DecimalType) else column


def scalar_types(kind: T.DataType) -> Iterator[T.DataType]:
    """Yield the scalar types in a type, at any depth, with those of the keys of maps."""
    match kind:
        case T.StructType():
            for member in kind.fields:
                yield from scalar_types(member.dataType)
        case T.ArrayType():
            yield from scalar_types(kind.elementType)
        case T.MapType():
            yield from (kind.keyType, *scalar_types(kind.valueType))
        case _:
            yield kind


def has_type(kind: T.DataType, wanted: type[T.DataType]) -> bool:
    """Whether a type is, or has at any depth, a scalar type of a class."""
    return any(isinstance(scalar, wanted) for scalar in scalar_types(kind))


def _decimals_as_text(column: Column, kind: T.DataType) -> Column:
    """Return the column with plain digits in place of decimals: without ANSI mode, a cast writes zero as `0E-18`."""
    match kind:
        case T.DecimalType():
            digits = f"0.{'0' * kind.scale}" if kind.scale else "0"
            return F.call_function("format_number", column, F.lit(digits))
        case T.StructType() if has_type(kind, T.DecimalType):
            members = [
                _decimals_as_text(member, field.dataType).alias(field.name)
                for member, field in zip(member_columns(column, kind), kind.fields, strict=True)
            ]
            return F.when(column.isNotNull(), F.struct(*members))
        case T.ArrayType() if has_type(kind, T.DecimalType):
            return F.transform(column, lambda element: _decimals_as_text(element, kind.elementType))
        case T.MapType() if has_type(kind, T.DecimalType):
            return F.transform_values(column, lambda _, value: _decimals_as_text(value, kind.valueType))
    return column


def member_columns(column: Column, kind: T.StructType) -> list[Column]:
    """Return the members of a struct. Spark finds a member by its name only if no other differs in case only."""
    names = kind.names
    if len({name.casefold() for name in names}) < len(names):
        names = [f"member_{position}" for position in range(len(names))]
        fields = [T.StructField(name, field.dataType) for name, field in zip(names, kind.fields, strict=True)]
        column = column.cast(T.StructType(fields))
    return [column.getField(name) for name in names]


def value_checks(column: Column, kind: T.DataType, label: str) -> list[Check]:
    """Return conditions for values with a part, at any depth, that JSON cannot represent, and their problems."""
    checks = [(_any_part(column, kind, test), f"column {label} contains {problem}") for test, problem in _PROBLEMS]
    return [check for check in checks if check[0] is not None]


def _is_not_finite(column: Column, kind: T.DataType) -> Column | None:
    if not isinstance(kind, T.FloatType | T.DoubleType):
        return None
    number = column.cast("double")
    return F.isnan(number) | (F.abs(number) == F.lit(float("inf")))


def _is_out_of_range(column: Column, kind: T.DataType) -> Column | None:
    """Other years do not have four digits, so the order of the texts would not be the order of the times."""
    if not isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType):
        return None
    first, last = (F.lit(time).cast(kind) for time in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"))
    return ~column.between(first, last)


def _has_equal_keys(column: Column, kind: T.DataType) -> Column | None:
    if not isinstance(kind, T.MapType):
        return None
    return F.size(F.array_distinct(F.map_keys(column))) < F.size(F.map_keys(column))


_Test = Callable[[Column, T.DataType], Column | None]

_PROBLEMS: tuple[tuple[_Test, str], ...] = (
    (_is_not_finite, NOT_FINITE),
    (_is_out_of_range, OUT_OF_RANGE),
    (_has_equal_keys, EQUAL_KEYS),
)


def _any_part(column: Column, kind: T.DataType, test: _Test) -> Column | None:
    """Return a condition for values of which the test is true at any depth, or None if it applies to no part."""
    match kind:
        case T.StructType():
            members = zip(member_columns(column, kind), kind.fields, strict=True)
            return _any_of([_any_part(member, field.dataType, test) for member, field in members])
        case T.ArrayType():
            return _any_element(column, kind.elementType, test)
        case T.MapType():
            return _any_of([test(column, kind), _any_element(F.map_values(column), kind.valueType, test)])
    return test(column, kind)


def _any_element(array: Column, kind: T.DataType, test: _Test) -> Column | None:
    if _any_part(F.lit(None), kind, test) is None:
        return None
    return F.exists(array, lambda element: _not_null(_any_part(element, kind, test)))


def _not_null(condition: Column | None) -> Column:
    return F.lit(False) if condition is None else F.coalesce(condition, F.lit(False))


def _any_of(conditions: Sequence[Column | None]) -> Column | None:
    present = [_not_null(condition) for condition in conditions if condition is not None]
    return functools.reduce(operator.or_, present) if present else None


def first_problem(checks: Sequence[Check]) -> Column:
    """Return the text of the first condition that is true for the row, or null."""
    texts = [F.when(condition, F.lit(text)) for condition, text in checks if condition is not None]
    return F.coalesce(*texts, F.lit(None).cast("string"))
