"""Maps values to columns: to one `jsonb` column (a document), or to one column for each top-level member.

A layout provides the SQL that yields a value's JSON text, and converts a value to the texts of the columns to write.
On reads, PostgreSQL itself produces the JSON (`to_jsonb`), except for `bytea`, which becomes base64, and for a
`numeric` that no JSON number equals, which becomes its decimal text. On writes, every member has the text format of its
column type, as UTF-8 bytes: a Python string that contains one emoji takes four bytes for each character.

Most members that do not match the column type, and those that PostgreSQL would store in part, are rejected here with
the column's name and type. The server rejects the others. NaN and the infinities are strings in JSON, spelled as
PostgreSQL prints them.
"""

# ruff: noqa: S608  # the SQL is built from names, which `quoted` quotes; values are parameters

import base64
import binascii
import re
from collections.abc import Callable
from typing import TypeAlias

import orjson

from ...core import INTEGER_MAX, INTEGER_MIN, Edits, InvalidOperation, Json, Unsupported, Update, quoted_list, values
from .errors import ColumnMismatch
from .schema import VALUE, Column, TableDefinition, literal, quoted
from .statements import UNCHANGED, ValueSql
from .time_texts import EXAMPLES, TIME_TYPES, TYPES_WITH_YEARS, is_beyond_years, time_fault

Texts = tuple[bytes | None, ...]
"""The texts of a row's written columns, in their order. None is NULL."""

_MEMBERS_PER_CALL = 45
"""How many members one `concat_ws` call joins. PostgreSQL functions take at most 100 arguments."""


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
        self.sql = ValueSql(self._written, _value_sql(member_columns), "true", "true")

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
        """Raise ColumnMismatch if a changed member has no column, or one that only the database writes."""
        if unknown := sorted(changed - self._names - self._read_only):
            raise ColumnMismatch(f"the table has no column {quoted_list(unknown)}")
        if generated := sorted(changed & self._read_only):
            raise ColumnMismatch(f"column {generated[0]!r} is generated by the database: omit it or leave it unchanged")


ValueLayout: TypeAlias = DocumentLayout | ColumnsLayout


def _same(member: Json, other: Json) -> bool:
    """Return whether two members are equal, with members of objects in any order. `1` is not `true`."""
    return orjson.dumps(member, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)


def _value_sql(columns: list[Column]) -> str:
    parts = [member_sql(column) for column in columns]
    while len(parts) > _MEMBERS_PER_CALL:
        groups = [parts[start : start + _MEMBERS_PER_CALL] for start in range(0, len(parts), _MEMBERS_PER_CALL)]
        parts = [f"nullif(concat_ws(',', {', '.join(group)}), '')" for group in groups]
    return f"('{{' || concat_ws(',', {', '.join(parts)}) || '}}')" if parts else "'{}'"


INTEGER_BOUNDS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}
FRACTIONAL_TYPES = {"float4", "float8", "numeric"}
NON_FINITE_NUMBERS = {"NaN", "Infinity", "-Infinity"}
JSON_TYPES = {"json", "jsonb"}
BYTES_MAX = {"char": 1, "name": 63}
"""The sizes of texts that PostgreSQL's internal types `"char"` and `name` silently truncate."""

_TEXT = "it takes a string in PostgreSQL's text format"
_EXPECTED = {
    **dict.fromkeys(INTEGER_BOUNDS, "it takes an integer in its range"),
    **dict.fromkeys(FRACTIONAL_TYPES, "it takes a number"),
    "numeric": "it takes a number or its decimal text",
    "bool": "it takes a boolean",
    "bytea": "it takes a string in base64",
    "hstore": "it takes an object of strings and nulls",
    **{name: f"it takes a string such as {example}" for name, example in EXAMPLES.items()},
}
_DECIMAL = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,9})?", re.ASCII)
_PLAIN_LITERAL = re.compile(r"[A-Za-z0-9_.:+-]+", re.ASCII)


def member_sql(column: Column) -> str:
    """Return SQL for a column's member in the JSON text, `"name":…`. It yields NULL for NULL."""
    name = literal(orjson.dumps(column.name).decode() + ":")
    return f"{name} || ({_json_sql(column, f't.{quoted(column.name)}')})::text"


def _json_sql(column: Column, content: str) -> str:
    """Return SQL for a column's content as `jsonb`, or NULL for NULL."""
    as_is, as_texts = f"to_jsonb({content})", f"to_jsonb({content}::text{'[]' if column.element else ''})"
    if column.type == "bytea":
        return f"to_jsonb({_base64_sql(content)})"
    if column.element == "bytea":
        each = f"ARRAY(SELECT {_base64_sql('e')} FROM unnest({content}) AS e)"
        return f"CASE WHEN {content} IS NULL OR array_ndims({content}) > 1 THEN {as_is} ELSE to_jsonb({each}) END"
    if column.type == "numeric":
        trimmed = f"trim_scale({content})"
        return f"CASE WHEN {_is_number_sql(trimmed)} THEN to_jsonb({trimmed}) ELSE {as_texts} END"
    if column.element == "numeric":
        each = f"SELECT bool_and({_is_number_sql('e')}) FROM unnest({content}) AS e"
        return f"CASE WHEN ({each}) THEN {as_is} ELSE {as_texts} END"
    return as_is


def _base64_sql(content: str) -> str:
    return f"translate(encode({content}, 'base64'), E'\\n', '')"


def _is_number_sql(content: str) -> str:
    """Return SQL for whether a `numeric` is written as a 64-bit integer, or has the shortest digits of a double."""
    is_integer = f"scale({content}) = 0 AND {content} BETWEEN {INTEGER_MIN} AND {INTEGER_MAX}"
    return (
        f"CASE WHEN {is_integer} THEN true "
        f"WHEN abs({content}) BETWEEN 1e-300 AND 1e300 THEN {content}::float8::text::numeric = {content} "
        f"ELSE {content}::text IN ('NaN', 'Infinity', '-Infinity') END"
    )


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
    text = _converter(type_name)(member)
    if text is None:
        raise _rejected(column, _EXPECTED.get(type_name, _TEXT))
    if (fault := _fault(column.modifier, type_name, member, text)) is not None:
        raise _rejected(column, fault)
    return text


def _rejected(column: Column, reason: str) -> ColumnMismatch:
    return ColumnMismatch(f"column {column.name!r} of type {column.full_type}: {reason}")


def _converter(type_name: str) -> Callable[[Json], str | None]:
    """Return the function that converts a member to the text of a type. It returns None for a mismatch."""
    if type_name in INTEGER_BOUNDS:
        bound = INTEGER_BOUNDS[type_name]
        return lambda member: str(member) if type(member) is int and -bound <= member < bound else None
    if type_name in FRACTIONAL_TYPES:
        return _decimal_text if type_name == "numeric" else _number_text
    if type_name == "bool":
        return lambda member: {True: "true", False: "false"}[member] if isinstance(member, bool) else None
    if type_name == "bytea":
        return _bytes_text
    if type_name == "hstore":
        return _hstore_text
    return lambda member: member if isinstance(member, str) else None


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
