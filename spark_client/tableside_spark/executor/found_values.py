"""The values that a lookup found, as Arrow columns: members of a schema, or JSON text."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tableside_spark.executor.json_reader import JsonReader
from tableside_spark.executor.mismatch import OnMismatch, mismatch

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
