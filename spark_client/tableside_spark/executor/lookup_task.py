"""The join, as it runs on an executor: batches in, the same rows with the value's JSON text out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.connection import Connection, shared_client
from tableside_client.errors import TableError
from tableside_spark.executor.chunks import ChunkSize, chunks
from tableside_spark.executor.key_columns import distinct_keys, key_column
from tableside_spark.executor.operation_batch import PARTITION, partition_lists
from tableside_spark.executor.ordered_pool import map_ordered

VALUE_COLUMN = "__tableside_value"


@dataclass(frozen=True, slots=True)
class LookupTask:
    """One join: which table, which columns hold the key, which rows to keep, how much at once.

    Where rows name the partition that they are looked up in, it is in `PARTITION`.
    """

    connection: Connection
    table: str
    key_columns: tuple[str, ...]
    key_names: tuple[str, ...]
    how: str
    fields: tuple[str, ...] | None
    size: ChunkSize
    window: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Look up every row's key. A key that fails for another reason than absence fails the task."""
        return map_ordered(chunks(batches, self.size), self._joined, self.window)

    def _joined(self, chunk: pa.RecordBatch) -> pa.RecordBatch:
        routed = PARTITION in chunk.schema.names
        names = (*self.key_columns, PARTITION) if routed else self.key_columns
        keys = distinct_keys(
            [chunk.column(name) for name in names], (*self.key_names, PARTITION) if routed else self.key_names
        )
        found = self._found(keys.keys, routed=routed)
        values = found if keys.each_once else found.take(keys.positions)
        return _joined_rows(chunk.drop_columns(PARTITION) if routed else chunk, values, self.how)

    def _found(self, keys: pa.Array, *, routed: bool) -> pa.Array:
        """The value's JSON text of each key, null where there is no record."""
        if len(keys) == 0:
            return pa.array([], pa.string())
        batch = _routed_gets(keys, self.key_names) if routed else pa.table({"key": keys})
        answer = shared_client(self.connection).batch(self.table, batch, op="get", fields=self.fields)
        raise_first_failure(self.table, answer, but="record_not_found")
        return answer["value"].combine_chunks().cast(pa.string())


def _routed_gets(keys: pa.StructArray, names: tuple[str, ...]) -> pa.Table:
    """Gets, of structs of a key and its partition."""
    *parts, partitions = keys.flatten()
    return pa.table({"key": key_column(parts, names), "partitions": partition_lists(partitions)})


def raise_first_failure(table: str, answer: pa.Table, *, but: str = "") -> None:
    """Raise the first failure in an answer, other than those of the code `but`."""
    code = answer["code"]
    if code.null_count == len(code):
        return
    failures = answer.filter(pc.fill_null(pc.not_equal(code, but), False))
    if len(failures):
        first = failures.slice(0, 1).to_pylist()[0]
        detail = f"{first['detail']} ({len(failures)} of {len(answer)} operations sent together)"
        raise TableError(table, first["code"], first["status"], detail)


def _joined_rows(chunk: pa.RecordBatch, values: pa.Array, how: str) -> pa.RecordBatch:
    if how in ("left_semi", "left_anti"):
        return chunk.filter(pc.is_valid(values) if how == "left_semi" else pc.is_null(values))
    fields = [*chunk.schema, pa.field(VALUE_COLUMN, pa.string())]
    joined = pa.RecordBatch.from_arrays([*chunk.columns, values], schema=pa.schema(fields))
    return joined.filter(pc.is_valid(values)) if how == "inner" else joined
