"""Maps values to columns: to one `jsonb` column (a document), or to one column for each top-level member.

A layout provides the SQL that yields a value's JSON text, and converts a value to the texts of the columns to write.
Texts are UTF-8 bytes: a Python string that contains one emoji takes four bytes for each character.
"""

from typing import Protocol

import orjson

from ...core import InvalidOperation, Unsupported, quoted_list, values
from .column_types import UNCHANGED, accepts_unchanged, member_sql, to_text
from .schema import VALUE, Column, TableDefinition
from .statements import ValueSql

Texts = tuple[bytes | None, ...]
"""The texts of a row's written columns, in their order. None is NULL."""

_MEMBERS_PER_CALL = 45
"""How many members one `concat_ws` call joins. PostgreSQL functions take at most 100 arguments."""


class ValueLayout(Protocol):
    """How a table maps values to columns."""

    sql: ValueSql
    preserves_text: bool
    """Whether reads return exactly the canonical text that was written."""
    absent_texts: Texts | None
    """The column texts of a row without a value, or None if every row is a record."""

    def column_texts(self, value: bytes, before: bytes | None) -> Texts:
        """Return the column texts of a value. `before` is the present value of the columns.

        Raise InvalidOperation if the columns cannot store the value.
        """
        ...


class DocumentLayout:
    """Stores a value in one `jsonb` column."""

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
        self._required = frozenset(column.name for column in self._written if column.not_null)
        accepting_unchanged = frozenset(column.name for column in self._written if accepts_unchanged(column))
        self.sql = ValueSql(self._written, _value_sql(member_columns), "true", "true", accepting_unchanged)

    def column_texts(self, value: bytes, before: bytes | None) -> Texts:
        """Return each column's text: None for a missing member, and for a null unless the column's type is JSON.

        An unchanged member becomes UNCHANGED if the column accepts it, because the column may contain more than the
        member shows.
        """
        members = values.decode(value)
        if not members.keys() <= self._names:
            self._remove_read_only(members, before)
        previous = values.decode(before) if before and self.sql.accepting_unchanged else {}
        candidates = self.sql.accepting_unchanged & previous.keys() & members.keys()
        unchanged = {name for name in candidates if orjson.dumps(previous[name]) == orjson.dumps(members[name])}
        texts = tuple(
            UNCHANGED
            if column.name in unchanged
            else _encoded(to_text(column, members[column.name]))
            if column.name in members
            else None
            for column in self._written
        )
        for column, text in zip(self._written, texts, strict=True):
            if text is None and column.name in self._required:
                raise InvalidOperation(f"column {column.name!r} may not be null")
        return texts

    def _remove_read_only(self, members: values.JsonObject, before: bytes | None) -> None:
        """Remove the members that only the database writes.

        Raise InvalidOperation if one of them was changed, or if a member has no column.
        """
        previous = values.decode(before) if before else {}
        if unknown := sorted(members.keys() - self._names - self._read_only):
            raise InvalidOperation(f"the table has no column {quoted_list(unknown)}")
        for name in self._read_only & members.keys():
            if name not in previous or previous[name] != members[name]:
                raise InvalidOperation(f"column {name!r} is generated by the database")
            del members[name]


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _value_sql(columns: list[Column]) -> str:
    parts = [member_sql(column) for column in columns]
    while len(parts) > _MEMBERS_PER_CALL:
        groups = [parts[start : start + _MEMBERS_PER_CALL] for start in range(0, len(parts), _MEMBERS_PER_CALL)]
        parts = [f"nullif(concat_ws(',', {', '.join(group)}), '')" for group in groups]
    return f"('{{' || concat_ws(',', {', '.join(parts)}) || '}}')" if parts else "'{}'"
