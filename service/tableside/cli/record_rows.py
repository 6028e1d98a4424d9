"""Records as rows with columns: the parts of the key, the partition, and the members of the value."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from tableside_client import Record

COLUMNS_MAX = 1_000
"""The maximum number of columns of an export."""

Row = dict[str, Any]


class ExportError(Exception):
    """Records that cannot be rows of one table."""


class RowLayout:
    """The columns before the members of the value: the names of the key's fields, and `partition`.

    An unnamed key has the column `key`. Only partitioned tables have the column `partition`.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        keys = [field["name"] or "key" for field in description["key"]]
        self._leading = [*keys, "partition"] if description.get("partitions") else keys

    def columns(self, members: Iterable[str]) -> list[str]:
        """Return all columns, for values with these members."""
        members = [name for name in members if name not in self._leading]
        return [*self._leading, *members]

    def row(self, record: Record[dict[str, Any]]) -> Row:
        """Return the row of a record. Raises `ExportError` if a member has the name of another column."""
        parts = record.key if isinstance(record.key, tuple) else (record.key,)
        for name in self._leading:
            if name in record.value:
                raise ExportError(
                    f"the values have a member {name!r}, which is the name of a column for the key: use --format jsonl"
                )
        return {**dict(zip(self._leading, (*parts, record.partition), strict=False)), **record.value}


class Spool:
    """Rows in a temporary file. They can be read several times.

    Attributes:
        names: The names of all columns, in the order of their first appearance.
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
        self.names.update(dict.fromkeys(row))
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
