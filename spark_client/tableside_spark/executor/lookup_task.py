"""The executor side of a join: adds the value's JSON text to each row of an Arrow batch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.connection import Connection
from tableside_client.errors import TableError
from tableside_spark.executor.chunks import ChunkSize, chunks
from tableside_spark.executor.key_columns import distinct_keys, key_column
from tableside_spark.executor.operation_batch import PARTITION, partition_lists
from tableside_spark.executor.task_client import TaskClient

VALUE_COLUMN = "__tableside_value"


@dataclass(frozen=True, slots=True)
class LookupTask:
    """Looks up the keys of Arrow batches in a table.

    If the batches have the column `PARTITION`, each key is looked up in that partition. `window` is the maximum
    number of requests in flight.
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
        """Look up every row's key. Raises `TableError` for a failure other than an absent record."""
        client = TaskClient(self.connection, self.table, self.window)
        results = client.map(chunks(batches, self.size), partial(self._process_chunk, client))
        return client.waits.logged(self.table, results)

    def _process_chunk(self, client: TaskClient, chunk: pa.RecordBatch) -> pa.RecordBatch:
        routed = PARTITION in chunk.schema.names
        names = (*self.key_columns, PARTITION) if routed else self.key_columns
        keys = distinct_keys(
            [chunk.column(name) for name in names], (*self.key_names, PARTITION) if routed else self.key_names
        )
        found = self._fetch(client, keys.keys, routed=routed)
        values = found if keys.is_identity else found.take(keys.positions)
        return _joined_rows(chunk.drop_columns(PARTITION) if routed else chunk, values, self.how)

    def _fetch(self, client: TaskClient, keys: pa.Array, *, routed: bool) -> pa.Array:
        """Return the value's JSON text for each key, or null if there is no record."""
        if len(keys) == 0:
            return pa.array([], pa.string())
        batch = _routed_gets(keys, self.key_names) if routed else pa.table({"key": keys})
        outcomes = client.batch(batch, op="get", fields=self.fields)
        raise_first_failure(self.table, outcomes, except_codes=("record_not_found",))
        return outcomes["value"].combine_chunks().cast(pa.string())


def _routed_gets(keys: pa.StructArray, names: tuple[str, ...]) -> pa.Table:
    """Build the gets for structs of a key and its partition."""
    *parts, partitions = keys.flatten()
    return pa.table({"key": key_column(parts, names), "partitions": partition_lists(partitions)})


def raise_first_failure(table: str, outcomes: pa.Table, *, except_codes: Sequence[str] = ()) -> None:
    """Raise the first failure of a batch, ignoring failures with one of the codes `except_codes`."""
    code = outcomes["code"]
    if code.null_count == len(code):
        return
    ignored = pc.is_in(code, pa.array([None, *except_codes], pa.string()))
    failures = outcomes.filter(pc.invert(ignored))
    if len(failures):
        first = failures.slice(0, 1).to_pylist()[0]
        detail = f"{first['detail']} ({len(failures)} of {len(outcomes)} operations sent together)"
        raise TableError(table, first["code"], first["status"], detail)


def _joined_rows(chunk: pa.RecordBatch, values: pa.Array, how: str) -> pa.RecordBatch:
    if how in ("left_semi", "left_anti"):
        return chunk.filter(pc.is_valid(values) if how == "left_semi" else pc.is_null(values))
    fields = [*chunk.schema, pa.field(VALUE_COLUMN, pa.string())]
    joined = pa.RecordBatch.from_arrays([*chunk.columns, values], schema=pa.schema(fields))
    return joined.filter(pc.is_valid(values)) if how == "inner" else joined
