"""The executor side of a join: adds the value to each row of Arrow batches. A key that repeats is requested once."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField, StructType

from tableside_client.arrow_table import ChunkSize, chunks, raise_first_failure
from tableside_client.json_reader import JsonReader, NullMembers, OnMismatch, unreadable
from tableside_client.key_columns import distinct_keys, key_column, without_invalid_texts
from tableside_spark.executor.operation_batch import GENERATION, PARTITION, partition_lists
from tableside_spark.executor.task_client import Connection, TaskClient, one_generation
from tableside_spark.versions import arrow_schema, parse_variant


def json_reader(fields: Sequence[StructField]) -> JsonReader:
    """Return a reader of members. Raises `ValueError` for a type that cannot be read from JSON. It names the column."""
    types = tuple(field.dataType.simpleString() for field in fields)
    arrow_fields: list[pa.Field] = []
    for member, kind in zip(fields, types, strict=True):
        try:
            arrow_fields += arrow_schema(StructType([member]))
        except TypeError as error:
            raise unreadable(member.name, kind) from error
    return JsonReader(pa.schema(arrow_fields), types, parse_variant)


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
    """Makes columns of the texts of a lookup: `FOUND_COLUMN`, and the text, or members and `MISMATCH_COLUMN`."""

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
        if self.reader is None:
            return pa.RecordBatch.from_arrays([pc.is_valid(texts), texts], schema=self.schema)
        members, misfits = self.reader.read(texts)
        messages: list[str | None] = [None] * len(texts)
        for misfit in reversed(misfits if self.on_mismatch == "fail" else []):
            messages[misfit.row] = self.reader.message(self.table, keys, misfit)
        columns = [pc.is_valid(texts), *members, pa.array(messages, pa.string())]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True, slots=True)
class RememberedLimits:
    """When a task forgets values: after so many keys, or so many bytes of Arrow buffers.

    If less than `repeated_min` of the keys were known then, the task remembers nothing from then on, because that costs
    more than it saves.
    """

    keys_max: int = 50_000
    bytes_max: int = 32 * 1024 * 1024
    repeated_min: float = 0.1


@dataclass(frozen=True, slots=True)
class PlannedKeys:
    """The keys of a chunk: `new` ones, to be requested, and the positions of all of them among the values."""

    new: pa.Array
    _remembered: "tuple[_Generation, pa.Array] | None" = None
    """Where values are remembered, and the position of each key of the chunk there."""

    def values(self, found: pa.RecordBatch, rows: pa.Array | None) -> pa.RecordBatch:
        """Return the value of each row, from `found` for new keys. `rows` are positions of keys, None for 0, 1, 2, …"""
        if self._remembered is not None:
            generation, positions = self._remembered
            generation.add(self.new, found)
            if len(self.new) < len(positions):
                return generation.take(positions if rows is None else positions.take(rows))
        return found if rows is None else found.take(rows)


class KeyMemory:
    """Plans the keys of a task's chunks, and forgets all when full. One thread takes the values in the same order."""

    def __init__(self, limits: RememberedLimits) -> None:
        self._limits = limits
        self._current: _Generation | None = _Generation()

    def plan(self, keys: pa.Array) -> PlannedKeys:
        """Plan the distinct keys of a chunk."""
        current, limits = self._current, self._limits
        if current is not None and (
            current.size_bytes >= limits.bytes_max or len(current.positions) + len(keys) > limits.keys_max
        ):
            is_useful = current.repeated >= limits.repeated_min * current.planned
            self._current = _Generation() if is_useful else None
        if self._current is None or len(keys) > limits.keys_max:
            return PlannedKeys(keys)
        return self._current.plan(keys)


@dataclass(slots=True)
class _Generation:
    """Values in the order of their keys in the plan: `plan` gives a key its position before its value exists."""

    positions: dict[Hashable, int] = field(default_factory=dict)
    planned: int = 0
    repeated: int = 0
    size_bytes: int = 0
    _values: list[pa.RecordBatch] = field(default_factory=list)

    def plan(self, keys: pa.Array) -> PlannedKeys:
        known, positions = len(self.positions), self.positions
        is_composite = pa.types.is_struct(keys.type)
        values = zip(*(part.to_pylist() for part in keys.flatten()), strict=True) if is_composite else keys.to_pylist()
        found = pa.array([positions.setdefault(key, len(positions)) for key in values], pa.int32())
        new = keys.filter(pc.greater_equal(found, known))
        self.planned += len(keys)
        self.repeated += len(keys) - len(new)
        return PlannedKeys(new, (self, found))

    def add(self, keys: pa.Array, values: pa.RecordBatch) -> None:
        self._values.append(values)
        self.size_bytes += keys.nbytes + values.nbytes

    def take(self, positions: pa.Array) -> pa.RecordBatch:
        if len(self._values) > 1:
            self._values = pa.Table.from_batches(self._values).combine_chunks().to_batches()
        [values] = self._values
        return values.take(positions)


@dataclass(frozen=True, slots=True)
class LookupTask:
    """Looks up the keys of Arrow batches in a table, and adds the columns of `values` after the first.

    Batches may name the `PARTITION` of each key, and the `GENERATION` of all. `window` limits the requests in flight. A
    failure with one of the codes `absent` means that there is no record.
    """

    connection: Connection
    table: str
    key_columns: tuple[str, ...]
    key_names: tuple[str, ...]
    how: str
    fields: tuple[str, ...] | None
    values: FoundValues
    size: ChunkSize
    window: int
    absent: tuple[str, ...] = ("record_not_found",)
    remembered: RememberedLimits = field(default_factory=RememberedLimits)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Look up every row's key. Raises `TableError` for a failure other than an absent record."""
        table, batches = _in_generation(self.table, batches)
        client = TaskClient(self.connection, table, self.window)
        planned = map(partial(self._plan, KeyMemory(self.remembered)), chunks(batches, self.size))
        looked_up = client.map(planned, partial(self._look_up, client))
        nulls = NullMembers(self.table, self.values.names)
        with one_generation():
            for found in looked_up:
                yield self._join(nulls, *found)
        nulls.log()

    def _plan(self, memory: KeyMemory, chunk: pa.RecordBatch) -> "_Lookup":
        routed = (PARTITION,) if PARTITION in chunk.schema.names else ()
        columns = [without_invalid_texts(chunk.column(name)) for name in (*self.key_columns, *routed)]
        keys = distinct_keys(columns, (*self.key_names, *routed))
        rows = chunk.drop_columns(PARTITION) if routed else chunk
        return _Lookup(rows, memory.plan(keys.keys), None if keys.is_identity else keys.positions, bool(routed))

    def _look_up(self, client: TaskClient, lookup: "_Lookup") -> tuple["_Lookup", pa.RecordBatch]:
        gets = {"key": lookup.keys.new}
        if lookup.routed:  # structs of a key and its partition
            *parts, partitions = lookup.keys.new.flatten()
            gets = {"key": key_column(parts, self.key_names), "partitions": partition_lists(partitions)}
        texts = pa.array([], pa.string())
        if len(gets["key"]):
            outcomes = client.batch(pa.table(gets), op="get", fields=self.fields)
            raise_first_failure(self.table, outcomes, except_codes=self.absent)
            texts = outcomes["value"].combine_chunks().cast(pa.string())
        return lookup, self.values.decode(gets["key"], texts)

    def _join(self, nulls: NullMembers, lookup: "_Lookup", looked_up: pa.RecordBatch) -> pa.RecordBatch:
        values = lookup.keys.values(looked_up, lookup.positions)
        has_record = values.column(FOUND_COLUMN)
        nulls.see(values.columns[1:], has_record.true_count)
        if self.how in ("left_semi", "left_anti"):
            found = pc.fill_null(has_record, False)
            return lookup.rows.filter(found if self.how == "left_semi" else pc.invert(found))
        columns, schema = values.columns[1:], self.values.schema.remove(0)
        joined = pa.RecordBatch.from_arrays(
            [*lookup.rows.columns, *columns], schema=pa.schema([*lookup.rows.schema, *schema])
        )
        return joined.filter(has_record) if self.how == "inner" else joined


class _Lookup(NamedTuple):
    """The rows of a chunk, their distinct keys, and the position of each row's key (None means 0, 1, 2, …)."""

    rows: pa.RecordBatch
    keys: PlannedKeys
    positions: pa.Array | None
    routed: bool


def _in_generation(table: str, batches: Iterable[pa.RecordBatch]) -> tuple[str, Iterator[pa.RecordBatch]]:
    """Return the table to read, and the batches without the column `GENERATION`, which is the same in all rows."""
    batches = filter(len, batches)
    first = next(batches, None)
    if first is None:
        return table, iter(())
    every = chain([first], batches)
    if GENERATION not in first.schema.names:
        return table, every
    return f"{table}@{first.column(GENERATION)[0]}", (batch.drop_columns(GENERATION) for batch in every)
