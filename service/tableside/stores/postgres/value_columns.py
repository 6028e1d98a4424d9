"""Maps values to columns: to one `jsonb` column (a document), or to one column for each top-level member.

A layout provides the SQL that yields a value's JSON text, and converts a value to the texts of the columns to write.
Texts are UTF-8 bytes: a Python string that contains one emoji takes four bytes for each character.
"""

from typing import Protocol

import orjson

from ...core import Edits, InvalidOperation, Json, Unsupported, Update, quoted_list, values
from .column_types import UNCHANGED, member_sql, to_text
from .schema import VALUE, Column, TableDefinition
from .statements import ValueSql
from .time_texts import TYPES_WITH_YEARS, is_beyond_years

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

    def check_update(self, update: Update, before: bytes | None) -> None:
        """Raise InvalidOperation if an update compares a member whose order differs from that of its text."""
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

        The text of an unchanged member is UNCHANGED: the column may contain more than its member shows, or have a type
        that cannot be written.
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
                raise InvalidOperation(f"column {column.name!r} may not be null")
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
        """Raise InvalidOperation if a changed member has no column, or one that only the database writes."""
        if unknown := sorted(changed - self._names - self._read_only):
            raise InvalidOperation(f"the table has no column {quoted_list(unknown)}")
        if generated := sorted(changed & self._read_only):
            raise InvalidOperation(
                f"column {generated[0]!r} is generated by the database: omit it or leave it unchanged"
            )


def _same(member: Json, other: Json) -> bool:
    """Return whether two members are equal, with members of objects in any order. `1` is not `true`."""
    return orjson.dumps(member, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)


def _value_sql(columns: list[Column]) -> str:
    parts = [member_sql(column) for column in columns]
    while len(parts) > _MEMBERS_PER_CALL:
        groups = [parts[start : start + _MEMBERS_PER_CALL] for start in range(0, len(parts), _MEMBERS_PER_CALL)]
        parts = [f"nullif(concat_ws(',', {', '.join(group)}), '')" for group in groups]
    return f"('{{' || concat_ws(',', {', '.join(parts)}) || '}}')" if parts else "'{}'"
