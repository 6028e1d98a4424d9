"""Values that were read with a schema: columns of a lookup, values that do not fit, members that no record has."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from tableside_spark.executor.json_reader import JsonReader

OnMismatch = Literal["fail", "null"]


class MismatchError(ValueError):
    """A value does not fit the schema of a scan."""


def mismatch(table: str, column: str, json_type: str, key: Any, wanted: str) -> str:
    """Return the message, without the value. `json_type` is the type of the value, `wanted` that of the column."""
    return (
        f"table {table}: column {column} is a JSON {json_type} for key {key_text(key)}, which does not fit {wanted}; "
        'correct the record or the schema, or set on_mismatch to "null"'
    )


def key_text(key: Any) -> str:
    """Return a key as JSON, with all parts as strings. A composite key is a dictionary of its parts."""
    parts = [str(part) for part in key.values()] if isinstance(key, dict) else str(key)
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def require_known(on_mismatch: str) -> None:
    """Raise `ValueError` if the argument or option `on_mismatch` is not `fail` or `null`."""
    if on_mismatch not in ("fail", "null"):
        raise ValueError(f"on_mismatch is fail or null, not {on_mismatch!r}")


FOUND_COLUMN = "__tableside_found"
"""True if the key has a record, otherwise false or null."""
VALUE_COLUMN = "__tableside_value"
"""The JSON text of a value, without a schema."""
MISMATCH_COLUMN = "__tableside_mismatch"
"""The message for the first member that does not fit the schema, or null."""

_FOUND = pa.field(FOUND_COLUMN, pa.bool_())


def member_column(position: int) -> str:
    """Return the name of the column of a member."""
    return f"__tableside_member_{position}"


@dataclass(frozen=True, slots=True)
class FoundValues:
    """Makes columns of the JSON texts that a lookup returns.

    Without a reader of members, they are `FOUND_COLUMN` and `VALUE_COLUMN`. With a reader, they are `FOUND_COLUMN`, the
    members, and `MISMATCH_COLUMN`.
    """

    table: str
    reader: JsonReader | None
    on_mismatch: OnMismatch

    @property
    def names(self) -> list[str]:
        """The names of the members."""
        return [] if self.reader is None else list(self.reader.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """The columns of `decode`."""
        if self.reader is None:
            return pa.schema([_FOUND, (VALUE_COLUMN, pa.string())])
        members = [field.with_name(member_column(at)) for at, field in enumerate(self.reader.schema)]
        return pa.schema([_FOUND, *members, (MISMATCH_COLUMN, pa.string())])

    def decode(self, keys: pa.Array, texts: pa.Array) -> pa.RecordBatch:
        """Return the columns for keys and their texts, which are null for keys without a record."""
        columns = [texts] if self.reader is None else self._members(self.reader, keys, texts)
        return pa.RecordBatch.from_arrays([pc.is_valid(texts), *columns], schema=self.schema)

    def _members(self, reader: JsonReader, keys: pa.Array, texts: pa.Array) -> list[pa.Array]:
        members, misfits = reader.read(texts)
        messages: list[str | None] = [None] * len(texts)
        for row, at, json_type in reversed(misfits if self.on_mismatch == "fail" else []):
            key = keys[row].as_py()
            messages[row] = mismatch(self.table, reader.schema.names[at], json_type, key, reader.types[at])
        return [*members, pa.array(messages, pa.string())]


ROWS_MIN = 500
"""A task with fewer rows logs nothing: its records can lack a member by chance."""

log = logging.getLogger(__name__)


class NullMembers:
    """Finds the members that are null in all rows of a task."""

    def __init__(self, table: str, names: Sequence[str]) -> None:
        self._table = table
        self._names = dict(enumerate(names))
        self._rows = 0

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
