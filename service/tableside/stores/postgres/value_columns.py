"""How a table keeps values: as one `jsonb` column (a document), or as a column for each top-level member.

A form says in SQL what a value's text is, and turns a value into what the written columns get.
"""

from typing import Protocol

import orjson

from ...core import InvalidOperation, Unsupported, values
from .column_types import KEPT, keeps, member_sql, to_text
from .schema import VALUE, Column, Shape
from .statements import Form

Texts = tuple[str | None, ...]
"""What the written columns of a row get."""

_MEMBERS_PER_CALL = 45
"""How many parts are joined at once; a function takes a hundred arguments."""


class ValueForm(Protocol):
    """What the store must know of how values are kept."""

    sql: Form
    exact: bool
    """Whether a value is read as it was written, to the byte of its canonical text."""
    absent: Texts | None
    """What the columns get where there is no value; None where a row is always a record."""

    def texts(self, value: bytes, before: bytes | None) -> Texts:
        """Return what the columns get; `before` is the value that they hold.

        Raise InvalidOperation if they cannot hold it.
        """
        ...


class DocumentForm:
    """One `jsonb` column."""

    exact = True

    def __init__(self, shape: Shape) -> None:
        column = shape.column(VALUE)
        if column is None or column.type != "jsonb" or column.generated:
            raise Unsupported(f"layout document needs a column {VALUE!r} of type jsonb")
        self.sql = Form(
            (column,), f't."{VALUE}"::text', f't."{VALUE}" IS NOT NULL', f"jsonb_typeof(t.\"{VALUE}\") = 'object'"
        )
        self.absent: Texts | None = None if column.not_null else (None,)

    def texts(self, value: bytes, before: bytes | None) -> Texts:
        """Return the text itself."""
        return (value.decode(),)


class ColumnsForm:
    """A column for each member, but for the key's, and those that are not ours to show."""

    exact = False
    absent: Texts | None = None

    def __init__(self, shape: Shape) -> None:
        keys = {key.name for key in shape.keys}
        shown = [
            column
            for column in shape.columns
            if column.name not in keys and not column.name.startswith(values.RESERVED_PREFIX)
        ]
        self._written = tuple(column for column in shown if not column.generated)
        self._read_only = frozenset(column.name for column in shown if column.generated)
        self._names = frozenset(column.name for column in self._written)
        self._required = frozenset(column.name for column in self._written if column.not_null)
        kept = frozenset(column.name for column in self._written if keeps(column))
        self.sql = Form(self._written, _value_sql(shown), "true", "true", kept)

    def texts(self, value: bytes, before: bytes | None) -> Texts:
        """Return each column's text, NULL where the value has no such member, or a null that is no JSON column's.

        What is as it was is kept, for a column may hold what its member does not tell.
        """
        members = values.decode(value)
        if not members.keys() <= self._names:
            self._take_read_only(members, before)
        held = values.decode(before) if before and self.sql.kept else {}
        known = self.sql.kept & held.keys() & members.keys()
        kept = {name for name in known if orjson.dumps(held[name]) == orjson.dumps(members[name])}
        texts = tuple(
            KEPT if column.name in kept else to_text(column, members[column.name]) if column.name in members else None
            for column in self._written
        )
        for column, text in zip(self._written, texts, strict=True):
            if text is None and column.name in self._required:
                raise InvalidOperation(f"column {column.name!r} may not be null")
        return texts

    def _take_read_only(self, members: values.JsonObject, before: bytes | None) -> None:
        """Take out what the database itself writes, if it is as it was.

        Raise InvalidOperation if it is not, and for what has no column.
        """
        held = values.decode(before) if before else {}
        if unknown := sorted(members.keys() - self._names - self._read_only):
            raise InvalidOperation(f"the table has no column {', '.join(map(repr, unknown))}")
        for name in self._read_only & members.keys():
            if name not in held or held[name] != members[name]:
                raise InvalidOperation(f"column {name!r} is written by the database")
            del members[name]


def _value_sql(shown: list[Column]) -> str:
    parts = [member_sql(column) for column in shown]
    while len(parts) > _MEMBERS_PER_CALL:
        groups = [parts[start : start + _MEMBERS_PER_CALL] for start in range(0, len(parts), _MEMBERS_PER_CALL)]
        parts = [f"nullif(concat_ws(',', {', '.join(group)}), '')" for group in groups]
    return f"('{{' || concat_ws(',', {', '.join(parts)}) || '}}')" if parts else "'{}'"
