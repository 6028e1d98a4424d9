"""Records in files, as JSON objects or as rows: `tableside scan` writes them, and `tableside load` reads them."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time as time_of_day
from decimal import Decimal
from math import isfinite
from typing import Any

from tableside_client import Record
from tableside_client.paths import given, json_bytes

FACTS = "_ts_record"
"""The column with a JSON object of what the others cannot express. No member of a value may have such a name.

Its `null` lists the members that are null, not absent, and its `text` the strings that are empty or look like JSON.
"""

FACT_TYPES = {"null": list, "text": list, "expires_at": str, "partitions": int}
DOCUMENT_MEMBERS = frozenset({"key", "partition", "partitions", "value", "etag", "expires_at"})
DECIMAL_DIGITS_MAX = 15

Row = dict[str, Any]
Document = dict[str, Any]
"""A record as a JSON object. `partition` is the index of its partition, of as many as `partitions`."""


class ExportError(Exception):
    """Records that cannot be rows of one table."""


class Expired(Exception):
    """A record in a file has expired since the scan."""


def document_of(record: Record[dict[str, Any]], partitions: int | None) -> Document:
    """Return the JSON object of a record, whose table has this number of partitions, None if it has none."""
    place = given(partition=record.partition, partitions=partitions)
    document = {"key": record.key, **place, "value": record.value, "etag": record.etag}
    return document | given(expires_at=record.expires_at)


class RowLayout:
    """The columns of rows: those of the key, `partition` of a partitioned table, the members, and then `FACTS`."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        self._partitions = description.get("partitions")
        self._leading = [*key_names(description), *(["partition"] if self._partitions else [])]

    def columns(self, members: Iterable[str]) -> list[str]:
        """Return all columns, for values with these members."""
        return [*self._leading, *(name for name in members if name not in self._leading), FACTS]

    def row(self, record: Record[dict[str, Any]]) -> Row:
        """Return the row of a record. Raises `ExportError` if a member has the name of another column."""
        for name in self._leading:
            if name in record.value:
                raise ExportError(
                    f"the values have a member {name!r}, which is the name of a column for the key: use --format jsonl"
                )
        parts = record.key if isinstance(record.key, tuple) else (record.key,)
        columns = dict(zip(self._leading, (*parts, record.partition), strict=False))
        members = record.value.items()
        nulls = [name for name, member in members if member is None]
        texts = [name for name, member in members if member == "" or _parsed(member) != member]
        facts = given(expires_at=record.expires_at, partitions=self._partitions, null=nulls or None, text=texts or None)
        return {**columns, **record.value, FACTS: json_text(facts)}


def put_of_row(row: Row, keys: Sequence[str], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operation that writes a row to a table. Raises ValueError if the row is invalid, and `Expired`."""
    is_document = {"key", "value", "etag"} <= row.keys() <= DOCUMENT_MEMBERS and isinstance(row["value"], dict)
    if FACTS in row or is_document:
        document = _document_of_row(row, keys) if FACTS in row else row
        key, value, options = document["key"], document["value"], _options_of(document, table)
    else:
        if absent := [field for field in keys if field not in row]:
            raise ValueError(f"no field {absent[0]!r}")
        key = [row[field] for field in keys]
        value = {name: member for name, member in row.items() if name not in keys}
        options = {}
    return {"op": "put", "key": _checked_key(key, keys, table), "value": to_json(value), **options}


def key_names(description: Mapping[str, Any]) -> list[str]:
    """Return the columns of a table's key."""
    return [field["name"] or "key" for field in description["key"]]


def _document_of_row(row: Row, keys: Sequence[str]) -> Document:
    facts = _parsed(row[FACTS] or "{}")
    if not isinstance(facts, dict) or not all(map(_is_fact, facts, facts.values())):
        raise ValueError(f"the column {FACTS} is not as tableside scan writes it")
    nulls, texts = facts.pop("null", []), facts.pop("text", [])
    place = {"partition": _parsed(row.get("partition"))} if "partitions" in facts else {}
    members = {name: field for name, field in row.items() if name not in (*keys, *place, FACTS)}
    value = dict.fromkeys(nulls)
    value |= {name: _parsed(field) for name, field in members.items() if field not in (None, "")}
    value |= {name: members[name] or "" for name in texts if name in members}
    return {"key": [row.get(name) for name in keys], "value": value, **place, **facts}


def _is_fact(name: str, fact: Any) -> bool:
    is_list_of_names = not isinstance(fact, list) or all(isinstance(element, str) for element in fact)
    return isinstance(fact, FACT_TYPES.get(name, ())) and is_list_of_names


def _options_of(document: Document, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a put that keep a record's partition and expiry."""
    options: dict[str, Any] = {}
    if (partition := document.get("partition")) is not None:
        source, target = document.get("partitions"), table.get("partitions")
        if target is None or source not in (None, target):
            raise ValueError(
                f"the record is from a table with {source or 'several'} partitions, and this table has "
                f"{target or 'none'}: remove partition from the file to write records to the partitions of their keys"
            )
        options["partitions"] = [partition]
    if (expires_at := document.get("expires_at")) is not None:
        options["ttl_s"] = _remaining_s(expires_at)
    elif table["policies"]["ttl_s"] is not None:
        options["ttl_s"] = -1  # instead of the table's default
    return options


def _remaining_s(expires_at: Any) -> float:
    try:
        remaining_s = datetime.fromisoformat(expires_at).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        raise ValueError("expires_at is not a time such as 2026-11-20T08:00:00Z") from None
    if remaining_s <= 0:
        raise Expired
    return remaining_s


def _checked_key(key: Any, keys: Sequence[str], table: Mapping[str, Any]) -> str | int | list[str | int]:
    parts = key if isinstance(key, list) else [key]
    if len(parts) != len(table["key"]):
        raise ValueError(f"the key has {len(parts)} parts, not {len(table['key'])} as in this table")
    for name, field, part in zip(keys, table["key"], parts, strict=True):
        if isinstance(part, bool) or not isinstance(part, str | int):
            raise ValueError(f"the key field {name!r} is neither a string nor an integer")
        if field["type"] == "string" and isinstance(part, int):
            raise ValueError(
                f"the key field {name!r} is an integer, and keys of this table are strings: write it as text, or "
                "declare a table with integer keys in the configuration of the service"
            )
    return parts[0] if len(parts) == 1 else parts


def json_text(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def _parse_float(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return number


_DECODER = json.JSONDecoder(parse_float=_parse_float, parse_constant=_parse_float)


def parse_json(text: str) -> Any:
    """Return the value of JSON text. Raises ValueError, also for NaN, large numbers and lone surrogates."""
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if "\\u" in text:
        json_bytes(value)  # fails for lone surrogates
    return value


def _parsed(field: Any) -> Any:
    """Return the value of a field: that of JSON text, else the field."""
    try:
        return parse_json(field) if isinstance(field, str) else field
    except ValueError:
        return field


def to_json(value: Any) -> Any:
    """Convert a value to JSON types: times to ISO 8601, and decimals of 15 digits to numbers. Raises ValueError."""
    match value:
        case str() | bool() | int() | None:
            return value
        case dict():
            return {name: to_json(member) for name, member in value.items()}
        case list():
            return [to_json(element) for element in value]
        case float() if isfinite(value):
            return value
        case float():
            raise ValueError("a number is not finite")
        case date() | time_of_day():
            return value.isoformat()
        case Decimal():
            if len(value.as_tuple().digits) > DECIMAL_DIGITS_MAX:
                raise ValueError(f"a decimal has more than {DECIMAL_DIGITS_MAX} digits")
            return float(value)
    raise ValueError(f"JSON cannot represent {type(value).__name__}")
