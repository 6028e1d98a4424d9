"""Read members of JSON values with a schema. Every read with a schema uses it, so all read a value in the same way."""

import base64
import datetime as dt
import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

Convert = Callable[[Any], Any]
"""Converts a value other than null. Raises an error of `MISFITS` if it does not fit."""
MISFITS = (ValueError, ArithmeticError)


class Misfit(NamedTuple):
    """A value that does not fit: the position of its text, the position of its member, and its JSON type."""

    row: int
    member: int
    json_type: str


OnMismatch = Literal["fail", "null"]


class MismatchError(ValueError):
    """A value does not fit the schema of a scan."""


@dataclass(frozen=True, slots=True)
class JsonReader:
    """Reads the members of a schema, whose `types` are for messages. Raises `ValueError` for one that JSON lacks."""

    schema: pa.Schema
    types: tuple[str, ...]
    parse_variant: Convert | None = None

    def __post_init__(self) -> None:
        for field, name in zip(self.schema, self.types, strict=True):
            try:
                converter(field, self.parse_variant)
            except TypeError as error:
                raise unreadable(field.name, name) from error

    def read(self, texts: pa.Array) -> tuple[list[pa.Array], list[Misfit]]:
        """Return an array for each member, and the values that do not fit, which are null. A null has no members."""
        found = self._read_with_arrow(texts)
        return self._read_each(texts) if found is None else (found, [])

    def read_fitting(self, table: str, keys: pa.Array, texts: pa.Array, on_mismatch: OnMismatch) -> list[pa.Array]:
        """Return an array for each member. Raises `MismatchError` for a value that does not fit, or it is null."""
        members, misfits = self.read(texts)
        if misfits and on_mismatch == "fail":
            raise MismatchError(self.message(table, keys, misfits[0]))
        return members

    def message(self, table: str, keys: pa.Array, misfit: Misfit) -> str:
        """Return the message about a value that does not fit, without the value."""
        return (
            f"table {table}: column {self.schema.names[misfit.member]} is a JSON {misfit.json_type} for key "
            f"{key_text(keys[misfit.row].as_py())}, which does not fit {self.types[misfit.member]}; "
            'correct the record or the schema, or set on_mismatch to "null"'
        )

    def _read_with_arrow(self, texts: pa.Array) -> list[pa.Array] | None:
        """Return the members, or None if Arrow cannot read one of them. It is faster and reads fewer forms."""
        kinds = list(map(_arrow_json_type, self.schema.types))
        if None in kinds:
            return None
        try:
            members = read_members(texts.drop_null(), pa.schema(list(zip(self.schema.names, kinds, strict=True))))
            members = [_cast(member, kind) for member, kind in zip(members, self.schema.types, strict=True)]
        except (UnreadableMembersError, pa.ArrowInvalid):
            return None
        if texts.null_count == 0:
            return members
        is_valid = pc.is_valid(texts)  # the next member at each text, and null at the others
        positions = pc.subtract(pc.cumulative_sum(is_valid.cast(pa.int32())), 1)
        positions = pc.if_else(is_valid, positions, pa.scalar(None, pa.int32()))
        return [member.take(positions) for member in members]

    def _read_each(self, texts: pa.Array) -> tuple[list[pa.Array], list[Misfit]]:
        functions = [converter(field, self.parse_variant) for field in self.schema]
        converters = list(enumerate(zip(self.schema.names, functions, strict=True)))
        columns: list[list[Any]] = [[] for _ in converters]
        misfits = []
        for row, text in enumerate(texts.cast(pa.string()).to_pylist()):
            members = {} if text is None else parse(text)
            for at, (name, convert) in converters:
                value = members.get(name)
                try:
                    columns[at].append(None if value is None else convert(value))
                except MISFITS:
                    columns[at].append(None)
                    misfits.append(Misfit(row, at, json_type(value)))
        return [pa.array(column, kind) for column, kind in zip(columns, self.schema.types, strict=True)], misfits


def unreadable(column: str, kind: str) -> ValueError:
    """Return the exception for a column with a type that cannot be read from JSON."""
    return ValueError(
        f"column {column} is {kind}, which cannot be read from JSON: read it as string, and convert the column"
    )


def _arrow_json_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type that Arrow reads from JSON before the cast, or None if it reads values differently."""
    if pa.types.is_timestamp(kind) or kind == pa.date32():
        return pa.string()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_list(kind):
        element = _arrow_json_type(kind.value_type)
        return None if element is None else pa.list_(element)
    if pa.types.is_struct(kind):
        members = [(member.name, _arrow_json_type(member.type)) for member in kind]
        return None if any(member is None for _, member in members) else pa.struct(members)
    return kind if pa.types.is_integer(kind) or kind in (pa.string(), pa.bool_()) else None


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column that Arrow read. Unlike its own cast, this one allows nulls where the type excludes them."""
    if pa.types.is_struct(kind):
        members = [_cast(member, field.type) for member, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind):
        values = _cast(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, values, type=kind, mask=column.is_null())
    return pc.cast(column, kind)


class UnreadableMembersError(ValueError):
    """A text is not one JSON object, or a member does not have the type of the schema."""


def read_members(values: pa.Array, schema: pa.Schema) -> list[pa.Array]:
    """Read the members in `schema` of JSON texts, which are strings or binary, as one array per member.

    Absent members are null. Raises `UnreadableMembersError` if a text is null or not exactly one object, or if a member
    in the schema has another type, does not fit its type, or is repeated.
    """
    if not len(values):
        return [pa.array([], kind) for kind in schema.types]
    # A text that begins with `{` cannot continue an incomplete one before it, so with as many objects as texts, each
    # text is one object.
    whole = pc.and_(pc.starts_with(values, "{"), pc.ends_with(values, "}"))
    if not pc.all(pc.fill_null(whole, False)).as_py():
        raise UnreadableMembersError
    parsing = pj.ParseOptions(explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore")
    one_list = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    try:
        text = pc.binary_join(one_list, pa.scalar("\n", values.type))[0].as_buffer()
        reading = pj.ReadOptions(use_threads=False, block_size=max(text.size + 1, 1024))
        table = pj.read_json(pa.BufferReader(text), read_options=reading, parse_options=parsing)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise UnreadableMembersError from error
    if len(table) != len(values):
        raise UnreadableMembersError
    return [column.combine_chunks() for column in table.select(schema.names).columns]


def key_text(key: Any) -> str:
    """Return a key as JSON, with all parts as strings. A composite key is a dictionary of its parts."""
    parts = [str(part) for part in key.values()] if isinstance(key, dict) else str(key)
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def require_known(on_mismatch: str) -> None:
    """Raise `ValueError` if the argument or option `on_mismatch` is not `fail` or `null`."""
    if on_mismatch not in ("fail", "null"):
        raise ValueError(f"on_mismatch is fail or null, not {on_mismatch!r}")


ROWS_MIN = 500
"""A task with fewer rows logs nothing: its records can lack a member by chance."""

log = logging.getLogger(__name__)


class NullMembers:
    """Finds the members that are null in all rows of a task."""

    def __init__(self, table: str, names: Sequence[str]) -> None:
        self._table, self._names, self._rows = table, dict(enumerate(names)), 0

    def see(self, members: Sequence[pa.Array], rows: int) -> None:
        """Note the members of some rows. `rows` counts those that have a record."""
        self._rows += rows
        self._names = {at: name for at, name in self._names.items() if members[at].null_count == len(members[at])}

    def log(self) -> None:
        """Log a warning at the end of the task, with the names of the members."""
        if self._names and self._rows >= ROWS_MIN:
            log.warning(
                "table %s: none of %d rows with a record has a value for %s: compare the schema with a record",
                self._table,
                self._rows,
                ", ".join(self._names.values()),
            )


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_TIME = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)(?:[T ](\d\d?)(?::(\d\d?)(?::(\d\d?)(?:\.(\d*))?)?)?"
    r"(Z|([+-])(\d\d?)(?::?(\d\d))?)?)?",
    re.ASCII,
)
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
    """Return the conversion to a type. Raises `TypeError` for a type that cannot be read from JSON."""
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
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else float(_require(value, Number))


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
    seconds = _days(found) * 86_400 + _seconds(*found.group(4, 5, 6))
    offset = _seconds(found[10], found[11], None)
    fraction = int((found[7] or "")[:6].ljust(6, "0"))
    return (seconds + (offset if found[9] == "-" else -offset)) * 1_000_000 + fraction


def _seconds(hour: str | None, minute: str | None, second: str | None) -> int:
    time = dt.time(int(hour or 0), int(minute or 0), int(second or 0))
    return (time.hour * 60 + time.minute) * 60 + time.second


_SCALARS: dict[pa.DataType, Convert] = {
    pa.string(): lambda value: value if type(value) is str else json_text(value),
    pa.bool_(): lambda value: _require(value, bool),
    pa.float32(): _double,
    pa.float64(): _double,
    pa.date32(): lambda value: _days(_matched_time(value)),  # also of a time
    pa.binary(): lambda value: base64.b64decode(_require(value, str), validate=True),
    pa.null(): lambda _: _misfit(),
}
