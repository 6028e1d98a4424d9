"""Rows as CSV."""

import csv
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from .record_rows import Row, json_text


def write_csv(columns: Sequence[str], rows: Iterable[Row], target: TextIO) -> None:
    """Write a header and the rows. Strings are written unchanged, null and absent members as empty fields.

    All other values are JSON.
    """
    writer = csv.writer(_Lines(target), lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([_field(row.get(column)) for column in columns] for row in rows)


class _Lines:
    """Replaces the ends of lines. The writer quotes a carriage return in a field only if it ends lines with one."""

    def __init__(self, target: TextIO) -> None:
        self._target = target

    def write(self, line: str) -> None:
        """Write a line."""
        self._target.write(line.removesuffix("\r\n") + "\n")


def _field(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)
