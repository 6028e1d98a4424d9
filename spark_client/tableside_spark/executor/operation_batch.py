"""Operations as the Arrow batches of requests, and the parts of a key with many rows, until one of them fails."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.key_columns import comparable, invalid_utf8, key_column, orders

ROWS = "__rows"
"""The number of DataFrame rows that an operation combines."""
PROBLEM = "__problem"
"""The reason why an operation must not be sent, or null."""
DELETE = "__delete"
"""True if a put or an update is a delete, or begins with a delete."""
PARTITION = "__partition"
"""The partition of a partitioned table for this operation, or `NO_PARTITION`."""
NO_PARTITION = -1
GENERATION = "__tableside_generation"
"""The generation of the table in which a lookup reads, the same in all rows."""
LATER_PARTS = "__later_parts"
"""The number of later operations on the same key in the write, or `INVALID` for a row with a problem."""
INVALID = -1
SEQUENCE = "__sequence"
"""The column of an ordered write's operations with their sequence: an integer, a date or a timestamp."""
EXPIRY = "__expiry"
"""The column with the expiry that a write sets: seconds from now as doubles, or a date or a timestamp."""
TTL_S_MIN = 0.001
"""The time to live of a record whose time of expiry has passed. No store has a shorter one."""
RESET = "#reset"
"""The suffix of the writer's name for a delete that precedes an update in the same write."""


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


def build_batch(
    operations: pa.Table, op: str, keys: KeyColumns, documents: Sequence[str], token: Token | None, now_s: float
) -> tuple[pa.Table, str | None]:
    """Build the batch, and the operation for `?op=`, None if rows differ and the batch has the column `op`."""
    count = len(operations)
    columns = {"key": key_column([operations[name].combine_chunks() for name in keys.columns], keys.names)}
    columns |= {name: operations[internal(name)] for name in documents}
    if token is not None:
        columns["sequence"] = pa.repeat(pa.scalar(token.sequence, pa.int64()), count)
    if SEQUENCE in operations.column_names:
        columns["order"] = orders(operations[SEQUENCE])
    if EXPIRY in operations.column_names and op != "delete":
        columns["ttl_s"] = ttls(operations[EXPIRY], now_s)
    if PARTITION in operations.column_names:
        columns["partitions"] = partition_lists(operations[PARTITION])
    if DELETE not in operations.column_names:
        return pa.table(columns), op
    batch, deletes = pa.table(columns), _delete_mask(operations, op)
    for position, field in enumerate(batch.schema):
        if field.name not in ("key", "sequence", "order", "partitions"):  # what a delete accepts
            kept = pc.if_else(deletes, pa.scalar(None, field.type), batch[field.name])
            batch = batch.set_column(position, field.name, kept)
    return batch.append_column("op", pc.if_else(deletes, "delete", op)), None


def problems(operations: pa.Table, op: str, keys: KeyColumns, documents: Sequence[str]) -> pa.ChunkedArray:
    """Return why each operation must not be sent, or null. One invalid text would fail its whole request."""
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


def _delete_mask(operations: pa.Table, op: str) -> pa.ChunkedArray:
    return operations[DELETE] if op == "put" else pc.is_null(operations[internal("update")])


def ttls(expiry: pa.Array | pa.ChunkedArray, now_s: float) -> pa.Array | pa.ChunkedArray:
    """Return times to live in seconds: numbers, or what is left until dates and timestamps, at least `TTL_S_MIN`."""
    if not pa.types.is_temporal(expiry.type):
        return expiry.cast(pa.float64(), safe=False)
    integer, unit_s = (pa.int32(), 86_400.0) if pa.types.is_date(expiry.type) else (pa.int64(), 1e-6)
    times_s = pc.multiply(expiry.cast(integer).cast(pa.float64(), safe=False), unit_s)
    return pc.max_element_wise(pc.subtract(times_s, now_s), TTL_S_MIN, skip_nulls=False)


def partition_lists(indexes: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Convert indexes to lists: one element each, and an empty list for `NO_PARTITION`."""
    return pa.array([[] if index == NO_PARTITION else [index] for index in indexes.to_pylist()], pa.list_(pa.int32()))


PARTS_MAX = 2**20
PART = "~"
"""Separates the name of a writer from the five hexadecimal digits of the derived writer's name."""

_SEQUENCES = 2**43


def part_token(token: Token | None, later_parts: int) -> Token | None:
    """Return the token of a part: that of the write for the last part, a derived one for the parts before it.

    A record remembers one sequence per writer, so the derived one combines the write's sequence with the part's number.
    Their high bits are in the derived writer's name, which is the same for most writes: records do not collect writers.
    """
    if token is None or later_parts == 0:
        return token
    if later_parts >= PARTS_MAX:
        raise ValueError(f"the rows of a key exceed {PARTS_MAX} parts: make the write smaller")
    high, low = divmod(token.sequence, _SEQUENCES)
    return Token(f"{token.writer}{PART}{high:05x}", low * PARTS_MAX + PARTS_MAX - 1 - later_parts)


def rounds(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Divide operations into rounds with equal later parts, to be consumed in order. A round has each key once."""
    for later_parts, pieces in groupby(_pieces(batches), key=itemgetter(0)):
        yield later_parts, map(itemgetter(1), pieces)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in batches:
        if LATER_PARTS not in batch.schema.names:
            yield 0, batch
            continue
        runs = pc.run_end_encode(pc.max_element_wise(batch.column(LATER_PARTS), 0))
        start = 0
        for later_parts, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield later_parts, batch.slice(start, end - start)
            start = end


class StoppedKeys:
    """Keys with a failed part, and why. If later parts were sent, its repetition would count as a replay."""

    def __init__(self, key_columns: Sequence[str]) -> None:
        self._columns = key_columns
        self._reasons: dict[tuple[object, ...], tuple[str, str, bool]] = {}

    def add(self, failed: pa.Table, code: str, detail: str, retriable: str) -> None:
        """Remember the keys of failed operations. The names are those of the columns with the reason."""
        reasons = zip(*(failed[name].to_pylist() for name in (code, detail, retriable)), strict=True)
        self._reasons.update(zip(self._keys(failed), reasons, strict=True))

    def mask(self, operations: pa.Table) -> pa.Array:
        """Return whether the key of each operation is stopped."""
        if not self._reasons:
            return pa.repeat(False, len(operations))
        return pa.array([key in self._reasons for key in self._keys(operations)], pa.bool_())

    def reasons(self, operations: pa.Table) -> list[pa.Array]:
        """Return the codes, the details and the retriable flags of operations on stopped keys."""
        found = [self._reasons[key] for key in self._keys(operations)]
        return [pa.array(column) for column in zip(*found, strict=True)]

    def _keys(self, operations: pa.Table) -> list[tuple[object, ...]]:
        names = [*self._columns, *([PARTITION] if PARTITION in operations.column_names else [])]
        return list(zip(*(comparable(operations[name]) for name in names), strict=True))
