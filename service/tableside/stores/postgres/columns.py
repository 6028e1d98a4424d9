"""Maps values to columns: to one `jsonb` column (a document), or to one column for each top-level member.

A layout provides the SQL that yields a value's JSON text, and converts a value to the texts of the columns to write.
On writes, every member has the text format of its column type, as UTF-8 bytes: a Python string that contains one emoji
takes four bytes for each character.

Most members that do not match the column type, and those that PostgreSQL would store in part, are rejected here with
the column's name and type. The server rejects the others. NaN and the infinities are strings in JSON, spelled as
PostgreSQL prints them. The texts of times are ISO 8601 with a year from 1 to 9999 in UTC, so they sort by time, also
together with `infinity` and `-infinity`. PostgreSQL would accept more: words such as `now`, digits that it rounds, and
zones that it ignores.
"""

import base64
import binascii
import datetime as dt
import re
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import orjson

from ...core import Edits, InvalidOperation, Json, Unsupported, Update, quoted_list, values
from .connections import Texts
from .errors import ColumnMismatch
from .schema import VALUE, Column, TableDefinition
from .value_sql import UNCHANGED, ValueSql, columns_value_sql


class DocumentLayout:
    """Stores a value in one `jsonb` column.

    `sql` is the SQL for values. `preserves_text`: reads return exactly the canonical text that was written.
    `absent_texts` are the column texts of a row without a value, None if every row is a record.
    """

    preserves_text = True

    def __init__(self, table: TableDefinition) -> None:
        column = table.column(VALUE)
        if column is None or column.type != "jsonb" or column.generated:
            raise Unsupported(f"layout document needs a column {VALUE!r} of type jsonb")
        self.sql = ValueSql(
            (column,), f't."{VALUE}"::text', f't."{VALUE}" IS NOT NULL', f"jsonb_typeof(t.\"{VALUE}\") = 'object'"
        )
        self.absent_texts: Texts | None = None if column.not_null else (None,)

    def column_texts(self, value: bytes, before: bytes | None) -> Texts:
        """Return the value's text."""
        return (value,)

    def check_update(self, update: Update, before: bytes | None) -> None:
        """Accept every update."""


class ColumnsLayout:
    """Stores each top-level member in a separate column, except the key and reserved names."""

    preserves_text = False
    absent_texts: Texts | None = None

    def __init__(self, table: TableDefinition) -> None:
        keys = {key.name for key in table.key_columns}
        member_columns = [
            column
            for column in table.columns
            if column.name not in keys and not column.name.startswith(values.RESERVED_PREFIX)
        ]
        self._written = tuple(column for column in member_columns if not column.generated)
        self._read_only = frozenset(column.name for column in member_columns if column.generated)
        self._names = frozenset(column.name for column in self._written)
        self._times = frozenset(column.name for column in self._written if column.type in TYPES_WITH_YEARS)
        self._required = frozenset(column.name for column in self._written if column.not_null)
        self.sql = ValueSql(self._written, columns_value_sql(member_columns), "true", "true")

    def column_texts(self, value: bytes, before: bytes | None) -> Texts:
        """Return each column's text: None for a missing member, and for a null unless the column's type is JSON.

        The text of a member that equals that of the value `before` is UNCHANGED: the column may contain more than its
        member shows, or have a type that cannot be written. Raise ColumnMismatch if a column cannot store its member.
        """
        members, previous = values.decode(value), values.decode(before) if before else {}
        unchanged = {name for name in members.keys() & previous.keys() if _same(members[name], previous[name])}
        if not members.keys() <= self._names:
            self._check_read_only(members.keys() - unchanged)
        texts = tuple(
            UNCHANGED
            if column.name in unchanged
            else to_text(column, members[column.name])
            if column.name in members
            else None
            for column in self._written
        )
        for column, text in zip(self._written, texts, strict=True):
            if text is None and column.name in self._required:
                raise ColumnMismatch(f"column {column.name!r} may not be null")
        return texts

    def check_update(self, update: Update, before: bytes | None) -> None:
        """Raise InvalidOperation if `$min` or `$max` compares a stored time whose text does not sort."""
        edits = (edit for change in update.changes if isinstance(change, Edits) for edit in change.edits)
        compared = self._times & {edit.path[0] for edit in edits if edit.operator in ("$min", "$max")}
        previous = values.decode(before) if before and compared else {}
        if beyond := sorted(name for name in compared if is_beyond_years(previous.get(name))):
            raise InvalidOperation(
                f"column {beyond[0]!r} contains a time outside of the years 1 to 9999, which `$min` and `$max` cannot "
                "compare: set it to another time"
            )

    def _check_read_only(self, changed: set[str]) -> None:
        if unknown := sorted(changed - self._names - self._read_only):
            raise ColumnMismatch(f"the table has no column {quoted_list(unknown)}")
        if generated := sorted(changed & self._read_only):
            raise ColumnMismatch(f"column {generated[0]!r} is generated by the database: omit it or leave it unchanged")


ValueLayout: TypeAlias = DocumentLayout | ColumnsLayout


def _same(member: Json, other: Json) -> bool:
    """Return whether two members are equal, with members of objects in any order. `1` is not `true`."""
    return orjson.dumps(member, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)


# The types of columns

SECOND_DIGITS_MAX = 6

_DATE, _TIME, _ZONE = r"(?!0000)\d{4}-\d\d-\d\d", r"\d\d:\d\d(:\d\d(\.\d+)?)?", r"(Z|[+-]\d\d(:?\d\d){0,2})"
_INFINITY = "|-?infinity"
_FORMS = {
    name: re.compile(pattern, re.ASCII)
    for name, pattern in {
        "date": _DATE + _INFINITY,
        "timestamp": f"{_DATE}([T ]{_TIME})?{_INFINITY}",
        "timestamptz": f"{_DATE}[T ]{_TIME}{_ZONE}{_INFINITY}",
        "time": _TIME,
        "timetz": _TIME + _ZONE,
    }.items()
}
EXAMPLES = {
    "date": "2026-11-20",
    "timestamp": "2026-11-20T12:34:56.789",
    "timestamptz": "2026-11-20T12:34:56.789Z",
    "time": "12:34:56.789",
    "timetz": "12:34:56.789Z",
}
_ZONED = {"timestamp": "timestamptz", "time": "timetz"}
_IN_SPARK = {"timestamp": " (in Spark, cast it to timestamp_ntz)", "timestamptz": " (in Spark, cast it to timestamp)"}
_FRACTION = re.compile(r"\.(\d+)", re.ASCII)
_BEYOND_YEARS = re.compile(r"[+-]?\d{5,}-|[+-]\d{4}-|0000-|.* BC", re.ASCII)
_EDGES = {"0001-01-01", "9999-12-31"}

_YEARS = "the years are 1 to 9999 in UTC, because other texts do not sort by time"

TYPES_WITH_YEARS = frozenset({"date", "timestamp", "timestamptz"})
TIME_TYPES = frozenset({*_FORMS, "interval"})

INTEGER_BOUNDS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}
NON_FINITE_NUMBERS = {"NaN", "Infinity", "-Infinity"}
JSON_TYPES = {"json", "jsonb"}
BYTES_MAX = {"char": 1, "name": 63}
"""The sizes of texts that PostgreSQL's internal types `"char"` and `name` silently truncate."""

_TEXT = "it takes a string in PostgreSQL's text format"
_EXPECTED = {
    **dict.fromkeys(INTEGER_BOUNDS, "it takes an integer in its range"),
    **dict.fromkeys(("float4", "float8"), "it takes a number"),
    "numeric": "it takes a number or its decimal text",
    "bool": "it takes a boolean",
    "bytea": "it takes a string in base64",
    "hstore": "it takes an object of strings and nulls",
    **{name: f"it takes a string such as {example}" for name, example in EXAMPLES.items()},
}
_DECIMAL = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,9})?", re.ASCII)
_PLAIN_LITERAL = re.compile(r"[A-Za-z0-9_.:+-]+", re.ASCII)


def to_text(column: Column, member: Json) -> bytes | None:
    """Return a member in the text format of the column type. None means NULL. Raise ColumnMismatch for a mismatch."""
    if member is None and (column.type not in JSON_TYPES or column.element is not None):
        return None
    if column.element is not None:
        return _array_text(column, column.element, member).encode()
    return _scalar_text(column, column.type, member).encode()


def input_sql(column: Column) -> str:
    """Return a query that fails if a column does not accept the text in `$1`.

    It converts the text as an assignment does: an explicit cast would truncate it to the type's length.
    """
    return f"SELECT FROM json_to_record(json_build_object('text', $1::text)) AS r(text {column.full_type})"


def limits_texts(column: Column) -> bool:
    """Return whether a key column cannot store every key: it has a length, or fewer than 64 bits."""
    return column.modifier is not None or column.type in ("int2", "int4")


def _scalar_text(column: Column, type_name: str, member: Json) -> str:
    if type_name in JSON_TYPES:
        return orjson.dumps(member).decode()
    text = _CONVERTERS.get(type_name, _string_text)(member)
    if text is None:
        raise _rejected(column, _EXPECTED.get(type_name, _TEXT))
    if (fault := _fault(column.modifier, type_name, member, text)) is not None:
        raise _rejected(column, fault)
    return text


def _rejected(column: Column, reason: str) -> ColumnMismatch:
    return ColumnMismatch(f"column {column.name!r} of type {column.full_type}: {reason}")


def _fault(modifier: int | None, type_name: str, member: Json, text: str) -> str | None:
    """Return why a column would store a text only in part, or None if it stores it or the server decides."""
    if type_name in TIME_TYPES:
        return time_fault(type_name, modifier, text)
    if type_name in BYTES_MAX and len(text.encode()) > BYTES_MAX[type_name]:
        return f"more bytes than {BYTES_MAX[type_name]}"
    if modifier is None:
        return None
    if type_name in ("varchar", "bpchar") and len(text) > modifier - 4:
        return f"more than {modifier - 4} characters"
    if type_name == "numeric" and isinstance(member, str) and _digits_after_point(text) > _scale(modifier):
        return f"more than {_scale(modifier)} digits after the decimal point"
    return None


def _scale(modifier: int) -> int:
    """Return how many digits after the decimal point a `numeric` has. The modifier contains them in 11 bits, signed."""
    return ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400


def _digits_after_point(text: str) -> int:
    """Return the position of the last digit of a decimal text other than 0. It is negative before the point."""
    mantissa, _, exponent = text.lower().partition("e")
    digits = mantissa.replace(".", "")
    zeros = len(digits) - len(digits.rstrip("0"))
    return len(mantissa.partition(".")[2]) - int(exponent or 0) - zeros


def _number_text(member: Json) -> str | None:
    if isinstance(member, bool):
        return None
    if isinstance(member, (int, float)):
        return repr(member)
    return member if isinstance(member, str) and member in NON_FINITE_NUMBERS else None


def _decimal_text(member: Json) -> str | None:
    """Return the text of a number, or a decimal text as it is: a double cannot represent each of its digits."""
    return member if isinstance(member, str) and _DECIMAL.fullmatch(member) else _number_text(member)


def _bytes_text(member: Json) -> str | None:
    if not isinstance(member, str):
        return None
    if member.startswith("\\x"):
        return member  # in a nested array
    try:
        return "\\x" + base64.b64decode(member, validate=True).hex()
    except (binascii.Error, ValueError):
        return None


def _hstore_text(member: Json) -> str | None:
    if not isinstance(member, dict) or not all(value is None or isinstance(value, str) for value in member.values()):
        return None
    pairs = ((_in_quotes(name), "NULL" if value is None else _in_quotes(str(value))) for name, value in member.items())
    return ",".join(f"{name}=>{value}" for name, value in pairs)


def _string_text(member: Json) -> str | None:
    return member if isinstance(member, str) else None


def _bool_text(member: Json) -> str | None:
    return orjson.dumps(member).decode() if isinstance(member, bool) else None


def _integer_text(bound: int, member: Json) -> str | None:
    return str(member) if type(member) is int and -bound <= member < bound else None


_CONVERTERS: dict[str, Callable[[Json], str | None]] = {
    **{name: partial(_integer_text, bound) for name, bound in INTEGER_BOUNDS.items()},
    "bool": _bool_text,
    "bytea": _bytes_text,
    "float4": _number_text,
    "float8": _number_text,
    "hstore": _hstore_text,
    "numeric": _decimal_text,
}
"""The functions that convert a member to the text of a type. They return None for a mismatch."""


def _array_text(column: Column, type_name: str, member: Json) -> str:
    """Return an array literal: in braces, with quoted elements where PostgreSQL may need quotes."""
    if not isinstance(member, list):
        raise _rejected(column, "it takes an array")
    parts = []
    for element in member:
        if element is None:
            parts.append("NULL")
        elif isinstance(element, list) and type_name not in JSON_TYPES:
            parts.append(_array_text(column, type_name, element))
        else:
            parts.append(_element_text(_scalar_text(column, type_name, element)))
    return "{" + (";" if type_name == "box" else ",").join(parts) + "}"


def _element_text(text: str) -> str:
    return text if _PLAIN_LITERAL.fullmatch(text) and text.upper() != "NULL" else _in_quotes(text)


def _in_quotes(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def time_fault(type_name: str, modifier: int | None, text: str) -> str | None:
    """Return why a column of a time type would not store a text as it is, or None if the server decides."""
    form = _FORMS.get(type_name)  # an interval has many forms
    if form is not None and not form.fullmatch(text):
        return _form_fault(type_name, text)
    if text[:10] in _EDGES and not _has_year_in_utc(text):
        return _YEARS
    digits_max = SECOND_DIGITS_MAX if modifier is None else min(SECOND_DIGITS_MAX, modifier & 0xFFFF)
    if any(len(digits.rstrip("0")) > digits_max for digits in _FRACTION.findall(text)):
        return f"more than {digits_max} digits of a second"
    return None


def is_beyond_years(text: object) -> bool:
    """Return whether a text is a time before the year 1 or after 9999, as PostgreSQL prints it."""
    return isinstance(text, str) and _BEYOND_YEARS.match(text) is not None


def _form_fault(type_name: str, text: str) -> str:
    if type_name in TYPES_WITH_YEARS and is_beyond_years(text):
        return _YEARS
    for plain, zoned in _ZONED.items():
        if type_name == plain and _FORMS[zoned].fullmatch(text):
            return f"the type has no zone, so omit the zone of the member{_IN_SPARK.get(plain, '')}"
        if type_name == zoned and _FORMS[plain].fullmatch(text):
            return f"the member needs a zone, such as Z{_IN_SPARK.get(zoned, '')}"
    return f"it takes a string such as {EXAMPLES[type_name]}"


def _has_year_in_utc(text: str) -> bool:
    """Return whether a time on the first or last day has a year from 1 to 9999 in UTC."""
    try:
        moment = dt.datetime.fromisoformat(text)
        return moment.tzinfo is None or bool(moment.astimezone(dt.UTC))
    except (ValueError, OverflowError):
        return False
