"""A chunk of operations as the Arrow batch of a request. Knows the columns of both, and neither HTTP nor Spark."""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tableside_spark.executor.key_columns import key_column

ROWS = "__rows"
"""How many of the caller's rows an operation stands for."""
PROBLEM = "__problem"
"""Why an operation must not be sent, or null."""
DELETE = "__delete"
"""Whether a put or an update is a delete, or begins with one."""
PARTITION = "__partition"
"""The one partition of a partitioned table that an operation is for; `NO_PARTITION` is none."""
NO_PARTITION = -1
RESET = "#reset"
"""What the writer's name ends with where a delete comes before an update of the same write."""

_PARTITIONS = pa.list_(pa.int32())


def internal(name: str) -> str:
    """The name of one of our own columns beside the caller's."""
    return f"__{name}"


class Token(NamedTuple):
    """Which write of which writer: 1 to 128 characters, 0 to 2^63 - 1."""

    writer: str
    sequence: int


class KeyColumns(NamedTuple):
    """The key's columns, in the order of the key, and the key's names for them."""

    columns: tuple[str, ...]
    names: tuple[str, ...]

    def values(self, operations: pa.Table) -> pa.Array:
        """The key of every operation."""
        return key_column([operations[name].combine_chunks() for name in self.columns], self.names)


def build_batch(
    operations: pa.Table, op: str, keys: KeyColumns, documents: Sequence[str], token: Token | None, ttl_s: float | None
) -> tuple[pa.Table, str | None]:
    """The batch, and what all its rows are (`?op=`) where that is one thing."""
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


def reset_mask(operations: pa.Table, op: str) -> pa.ChunkedArray | None:
    """Which operations are a delete and an update after it; None where none can be."""
    if DELETE not in operations.column_names or op != "update":
        return None
    return pc.and_(operations[DELETE], pc.is_valid(operations[internal("update")]))


def _delete_mask(operations: pa.Table, op: str) -> pa.ChunkedArray:
    return operations[DELETE] if op == "put" else pc.is_null(operations[internal("update")])


def _with_deletes(batch: pa.Table, op: str, deletes: pa.ChunkedArray) -> pa.Table:
    """The batch with what each row is, and nothing in a delete that a delete does not take."""
    for name in ("value", "update", "default", "ttl_s"):
        if name in batch.column_names:
            kept = pc.if_else(deletes, pa.scalar(None, batch.schema.field(name).type), batch[name])
            batch = batch.set_column(batch.column_names.index(name), name, kept)
    return batch.append_column("op", pc.if_else(deletes, "delete", op))


def partition_lists(indexes: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Lists of one, and of none for nowhere."""
    return pa.array([[] if index == NO_PARTITION else [index] for index in indexes.to_pylist()], _PARTITIONS)
