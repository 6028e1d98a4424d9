"""Build the Arrow batch of a request from a chunk of operations."""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tableside_spark.executor.key_columns import invalid_utf8, key_column

ROWS = "__rows"
"""The number of DataFrame rows that an operation combines."""
PROBLEM = "__problem"
"""The reason why an operation must not be sent, or null."""
DELETE = "__delete"
"""True if a put or an update is a delete, or begins with a delete."""
PARTITION = "__partition"
"""The partition of a partitioned table for this operation, or `NO_PARTITION`."""
NO_PARTITION = -1
LATER_PARTS = "__later_parts"
"""The number of later operations on the same key in the write, or `INVALID` for a row with a problem."""
INVALID = -1
RESET = "#reset"
"""The suffix of the writer's name for a delete that precedes an update in the same write."""

_PARTITIONS = pa.list_(pa.int32())


def internal(name: str) -> str:
    """Return the name of an internal column. Internal columns begin with `__`."""
    return f"__{name}"


class Token(NamedTuple):
    """Identifies a write: the writer's name (1 to 128 characters) and a sequence number (0 to 2^63 - 1)."""

    writer: str
    sequence: int


class KeyColumns(NamedTuple):
    """The key columns in the order of the key, and the names of the key's fields."""

    columns: tuple[str, ...]
    names: tuple[str, ...]

    def values(self, operations: pa.Table) -> pa.Array:
        """Return the key of every operation."""
        return key_column([operations[name].combine_chunks() for name in self.columns], self.names)


def build_batch(
    operations: pa.Table, op: str, keys: KeyColumns, documents: Sequence[str], token: Token | None, ttl_s: float | None
) -> tuple[pa.Table, str | None]:
    """Build the batch, and the operation for the parameter `?op=`.

    The latter is None if rows differ. The batch then has the column `op`.
    """
    count = len(operations)
    columns = {"key": keys.values(operations)}
    columns |= {name: operations[internal(name)] for name in documents}
    if token is not None:
        columns["sequence"] = pa.repeat(pa.scalar(token.sequence, pa.int64()), count)
    if ttl_s is not None:
        columns["ttl_s"] = pa.repeat(pa.scalar(ttl_s, pa.float64()), count)
    if PARTITION in operations.column_names:
        columns["partitions"] = partition_lists(operations[PARTITION])
    if DELETE not in operations.column_names:
        return pa.table(columns), op
    return _with_deletes(pa.table(columns), op, _delete_mask(operations, op)), None


def problems(operations: pa.Table, op: str, keys: KeyColumns, documents: Sequence[str]) -> pa.ChunkedArray:
    """Return the reason why an operation must not be sent, or null: `PROBLEM`, or a text that is not valid UTF-8.

    A single invalid text would fail all operations of its request.
    """
    found = operations[PROBLEM]
    for name in keys.columns:
        found = _with_problem(found, invalid_utf8(operations[name]), f"key column {name} is not valid UTF-8")
    for name in documents:
        invalid = invalid_utf8(operations[internal(name)])
        if invalid is not None and DELETE in operations.column_names:
            invalid = pc.and_(invalid, pc.invert(_delete_mask(operations, op)))
        found = _with_problem(found, invalid, f"the {name} is not valid UTF-8")
    return found


def _with_problem(found: pa.ChunkedArray, invalid: pa.Array | None, text: str) -> pa.ChunkedArray:
    return found if invalid is None else pc.coalesce(found, pc.if_else(invalid, text, pa.scalar(None, pa.string())))


def reset_mask(operations: pa.Table, op: str) -> pa.ChunkedArray | None:
    """Return a mask of the updates that are preceded by a delete, or None if there can be none."""
    if DELETE not in operations.column_names or op != "update":
        return None
    return pc.and_(operations[DELETE], pc.is_valid(operations[internal("update")]))


def _delete_mask(operations: pa.Table, op: str) -> pa.ChunkedArray:
    return operations[DELETE] if op == "put" else pc.is_null(operations[internal("update")])


def _with_deletes(batch: pa.Table, op: str, deletes: pa.ChunkedArray) -> pa.Table:
    """Add the column `op`, and clear the columns that a delete does not accept."""
    for name in ("value", "update", "default", "ttl_s"):
        if name in batch.column_names:
            kept = pc.if_else(deletes, pa.scalar(None, batch.schema.field(name).type), batch[name])
            batch = batch.set_column(batch.column_names.index(name), name, kept)
    return batch.append_column("op", pc.if_else(deletes, "delete", op))


def partition_lists(indexes: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Convert indexes to lists: one element each, and an empty list for `NO_PARTITION`."""
    return pa.array([[] if index == NO_PARTITION else [index] for index in indexes.to_pylist()], _PARTITIONS)
