"""Records as rows with columns: the parts of the key, the partition, and the members of the value."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

import msgspec

from tableside_client import Record
from tableside_client.paths import given

from .scanned import Document

COLUMNS_MAX = 1_000
"""The maximum number of columns of an export."""

FACTS = "_ts_record"
"""The column with a JSON object of what the others cannot express. No member of a value may have such a name.

Its `null` lists the members that are null, not absent, and its `text` the strings that are empty or look like JSON.
"""

Row = dict[str, Any]


class ExportError(Exception):
    """Records that cannot be rows of one table."""


class _Facts(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the column `FACTS`."""

    null: list[str] = []
    text: list[str] = []
    expires_at: str | None = None
    partitions: int | None = None


class RowLayout:
    """The columns before the members of the value: the names of the key's fields, and `partition`.

    An unnamed key has the column `key`. Only partitioned tables have the column `partition`. `FACTS` is the last one.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        self._partitions = description.get("partitions")
        self._leading = [*key_names(description), *(["partition"] if self._partitions else [])]

    def columns(self, members: Iterable[str]) -> list[str]:
        """Return all columns, for values with these members."""
        return [*self._leading, *(name for name in members if name not in self._leading), FACTS]

    def row(self, record: Record[dict[str, Any]]) -> Row:
        """Return the row of a record. Raises `ExportError` if a member has the name of another column."""
        parts = record.key if isinstance(record.key, tuple) else (record.key,)
        for name in self._leading:
            if name in record.value:
                raise ExportError(
                    f"the values have a member {name!r}, which is the name of a column for the key: use --format jsonl"
                )
        columns = dict(zip(self._leading, (*parts, record.partition), strict=False))
        return {**columns, **record.value, FACTS: json_text(self._facts(record))}

    def _facts(self, record: Record[dict[str, Any]]) -> dict[str, Any]:
        members = record.value.items()
        nulls = [name for name, member in members if member is None]
        texts = [name for name, member in members if isinstance(member, str) and _is_ambiguous(member)]
        return given(expires_at=record.expires_at, partitions=self._partitions, null=nulls or None, text=texts or None)


def key_names(description: Mapping[str, Any]) -> list[str]:
    """Return the columns of a table's key."""
    return [field["name"] or "key" for field in description["key"]]


def document_of_row(row: Row, keys: Sequence[str]) -> Document:
    """Return the record of a row that has the column `FACTS`. Raise ValueError if the row is not valid."""
    try:
        facts = msgspec.json.decode(row[FACTS] or "{}", type=_Facts)
    except (msgspec.MsgspecError, TypeError, UnicodeEncodeError):
        raise ValueError(f"the column {FACTS} is not as tableside scan writes it") from None
    place = {} if facts.partitions is None else {"partition": _parsed(row.get("partition"))}
    members = {name: field for name, field in row.items() if name not in (*keys, *place, FACTS)}
    value = dict.fromkeys(facts.null)
    value |= {name: _parsed(field) for name, field in members.items() if field not in (None, "")}
    value |= {name: members[name] or "" for name in facts.text if name in members}
    place |= given(partitions=facts.partitions, expires_at=facts.expires_at)
    return {"key": [row.get(name) for name in keys], "value": value, **place}


def _is_ambiguous(text: str) -> bool:
    """Return whether a text would be read as another value, or as no value."""
    return not text or _parsed(text) != text


def _parsed(field: Any) -> Any:
    """Return the value of a field: that of JSON text, else the field."""
    try:
        return msgspec.json.decode(field) if isinstance(field, str) else field
    except (msgspec.DecodeError, RecursionError):
        return field


class Spool:
    """Rows in a temporary file. They can be read several times.

    Attributes:
        names: The names of all columns except `FACTS`, in the order of their first appearance.
    """

    def __init__(self, rows: Iterable[Row], file: IO[str]) -> None:
        self.names: dict[str, None] = {}
        self._file = file
        for row in rows:
            self._add(row)

    def __iter__(self) -> Iterator[Row]:
        self._file.seek(0)
        return map(json.loads, self._file)

    def _add(self, row: Row) -> None:
        self.names.update(dict.fromkeys(name for name in row if name != FACTS))
        if len(self.names) > COLUMNS_MAX:
            raise ExportError(f"the records have more than {COLUMNS_MAX:,} columns: choose some with --fields")
        self._file.write(json.dumps(row) + "\n")


@contextmanager
def spooled(rows: Iterable[Row]) -> Iterator[Spool]:
    """Read all rows into a temporary file. Raises `ExportError` for more than `COLUMNS_MAX` columns."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        yield Spool(rows, file)


def json_text(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def values_of(rows: Sequence[Row], column: str) -> list[Any]:
    """Return the values of a column. An absent member is None."""
    return [row.get(column) for row in rows]
