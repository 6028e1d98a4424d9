"""Data source writes: appends, and the mode `overwrite`. Executors encode JSON in Python, row by row."""

import dataclasses
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tableside_client.arrow_table import ChunkSize, chunks, raise_first_failure
from tableside_client.concurrency import map_ordered
from tableside_client.errors import TablesideError
from tableside_client.generations import CLEANUP_S, require_records
from tableside_client.json_writer import UNWRITABLE, Decimals, JsonWriter
from tableside_client.key_columns import invalid_utf8, key_column, orders
from tableside_client.table_schema import PARTITION_COLUMN
from tableside_spark.datasource.options import Columns, Expiry, TableOptions, require_column
from tableside_spark.executor.operation_batch import Token, partition_lists, ttls
from tableside_spark.executor.task_client import TaskClient
from tableside_spark.plan.concurrency import concurrency
from tableside_spark.plan.expiry import require_expiry_type
from tableside_spark.plan.json_columns import has_type, require_json_type
from tableside_spark.plan.sequences import require_sequence_type
from tableside_spark.versions import VariantType


@dataclass(frozen=True)
class Encoder:
    """The columns of the rows, the format of decimals, the column with the sequence of ordered puts, and the expiry."""

    columns: Columns
    decimals: Decimals
    sequence_by: str | None
    expiry: Expiry | None

    @classmethod
    def from_schema(
        cls,
        schema: StructType,
        target: TableOptions,
        decimals: Decimals,
        sequence_by: str | None,
        expiry: Expiry | None,
    ) -> Self:
        """Create an encoder. Raises `ValueError` for a missing column, and for types that JSON cannot represent."""
        columns = Columns.from_schema(schema, target)
        if sequence_by is not None:
            require_column(sequence_by, schema, target.table)
            require_sequence_type(schema[sequence_by].dataType)
        if expiry is not None and expiry.column is not None:
            require_column(expiry.column, schema, target.table)
            require_expiry_type(expiry.argument, schema[expiry.column].dataType)
            columns = replace(columns, members=tuple(f for f in columns.members if f.name != expiry.column))
        others = [field.name for field in columns.members if field.name != sequence_by]
        if columns.text is not None and others:
            raise ValueError(
                f"column {others[0]} has no place in the record: column {columns.text} is the JSON text "
                "of the whole value, as a read without a schema returns it. Drop one of them, or make it a member "
                f"with withMetadata({columns.text!r}, {{}})"
            )
        for field in columns.members:
            require_json_type(field.name, field.dataType, decimals)
            if has_type(field.dataType, VariantType):
                kind = field.dataType.simpleString()
                raise ValueError(f"column {field.name} is {kind}: the format cannot write a variant; use Table.put")
        return cls(columns, decimals, sequence_by, expiry)

    def encode(self, rows: pa.RecordBatch) -> pa.Table:
        """Encode rows as puts. Raises `ValueError` for null keys and values that JSON lacks, with column and count."""
        columns = self.columns
        for name in filter(None, (*columns.keys, columns.partition, columns.text, self.sequence_by)):
            kind, column = "key column" if name in columns.keys else "column", rows.column(name)
            if column.null_count:
                raise ValueError(f"{kind} {name} is null in {column.null_count} rows")
            if (invalid := invalid_utf8(column)) is not None:
                raise ValueError(f"{kind} {name} is not valid UTF-8 in {pc.sum(invalid).as_py()} rows")
        keys = key_column([rows.column(name) for name in columns.keys], columns.keys)
        puts = {"key": keys, "value": rows.column(columns.text) if columns.text else self._texts(rows)}
        if columns.partition is not None:
            puts["partitions"] = partition_lists(rows.column(columns.partition))
        if self.sequence_by is not None:
            puts["order"] = orders(rows.column(self.sequence_by))
        if self.expiry is not None:
            given = self.expiry.given
            is_column = isinstance(given, str)
            puts["ttl_s"] = ttls(rows.column(given), time.time()) if is_column else pa.repeat(given, len(rows))
        return pa.table(puts)

    def _texts(self, rows: pa.RecordBatch) -> pa.Array:
        writer, names = JsonWriter(self.decimals), [field.name for field in self.columns.members]
        members = rows.select(names)
        try:
            texts = writer.texts(members.to_struct_array())
        except UNWRITABLE as error:
            found = ((column, [*filter(None, writer.problems(members[column]))]) for column in names)
            name, problems = next((name, problems) for name, problems in found if problems)
            count = problems.count(problems[0])
            raise ValueError(f"column {name} contains {problems[0]} in {count} rows") from error
        return pa.array(texts, pa.string())


CHUNKS_MAX = 2**20
"""The maximum number of chunks per task of a micro-batch."""

TASKS = 16
"""The number of concurrent tasks whose requests fit the service's limits. The real number is unknown here."""


@dataclass
class CommitMessage(WriterCommitMessage):
    """The number of rows written by a task."""

    rows: int


@dataclass(frozen=True)
class PutSender:
    """Sends chunks of rows as puts. The first failed row ends the task."""

    target: TableOptions
    encoder: Encoder

    def send_all(self, rows: Iterator[pa.RecordBatch], first: Token | None = None) -> CommitMessage:
        """Send the rows of a task. The sequence of a chunk is the sequence of `first` plus the chunk's number."""
        client = TaskClient(self.target.connection, self.target.table, 1)
        limits = self.target.table_schema.limits
        encoded = map_ordered(chunks(rows, concurrency(limits, TASKS, TASKS, ChunkSize()).chunk), self._encode, 2)
        # One request at a time, while the next chunk is encoded: two could apply the rows of a key in either order.
        sent = (self._send(client, number, first, *chunk) for number, chunk in enumerate(encoded))
        return CommitMessage(sum(sent))

    def _encode(self, chunk: pa.RecordBatch) -> tuple[pa.Table, int]:
        return _last_put_per_key(self.encoder.encode(chunk)), chunk.num_rows

    def _send(self, client: TaskClient, number: int, first: Token | None, puts: pa.Table, rows: int) -> int:
        if first is not None:
            if number >= CHUNKS_MAX:
                raise ValueError(f"a task has more than {CHUNKS_MAX} chunks of rows: make micro-batches smaller")
            sequence = pa.scalar(first.sequence + number, pa.int64())
            puts = puts.append_column("sequence", pa.repeat(sequence, len(puts)))
        answer = client.batch(puts, op="put", writer=None if first is None else first.writer)
        raise_first_failure(self.target.table, answer)
        return rows


class TableWriter(DataSourceArrowWriter):
    """Writes batches. Repeating a task is harmless: it puts the same rows again."""

    def __init__(self, puts: PutSender) -> None:
        self._puts = puts

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task. The first failed row ends the task."""
        return self._puts.send_all(iterator)


def _last_put_per_key(puts: pa.Table) -> pa.Table:
    """Keep the last put of each key, by order, so that neither a token nor a retry of some changes the result."""
    puts = puts.sort_by("order") if "order" in puts.column_names else puts  # equal orders keep their sequence
    identities = puts.select(
        [name for name in puts.column_names if name not in ("value", "order", "ttl_s")]
    ).to_pylist()
    last = {repr(identity): position for position, identity in enumerate(identities)}
    return puts if len(last) == len(puts) else puts.take(sorted(last.values()))


RECORDS_PER_PAGE = 5_000


class ReplacingWriter(TableWriter):
    """Puts the rows of a query in a new generation, and activates it when all of them are stored."""

    def __init__(self, puts: PutSender, *, allow_empty: bool) -> None:
        """Create the generation. Spark calls this on the driver, after the stages before the write."""
        self._target, self._allow_empty = puts.target, allow_empty
        with self._target.connection.open() as client:
            table = client.table(self._target.table)
            self._number = table.create_generation("overwrite of Spark").generation
            self._replaced = int(table.describe()["generation"])
        loading = dataclasses.replace(self._target, table=f"{self._target.table}@{self._number}")
        super().__init__(dataclasses.replace(puts, target=loading))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Activate the generation. Called on the driver after all tasks have succeeded."""
        written = sum(message.rows for message in messages if isinstance(message, CommitMessage))
        require_records(self._target.table, written, allow_empty=self._allow_empty)
        with self._target.connection.open() as client:
            client.table(self._target.table).activate(self._number, expected=self._replaced)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the generation. Called on the driver after a failure."""
        with suppress(TablesideError), self._target.connection.open() as client:
            client.table(self._target.table, deadline_s=CLEANUP_S).remove_generation(self._number)


class OverwritingWriter(TableWriter):
    """Puts the rows of a query, and then deletes all other records, unless the query fails.

    A delete with the token of this write has no effect on a record with a put that carries it.
    """

    def __init__(self, puts: PutSender) -> None:
        """Raises `ValueError` if the puts cannot have tokens that distinguish their records."""
        table = puts.target.table
        if puts.encoder.sequence_by is not None:
            raise ValueError('sequence_by is for mode("append"): an overwritten table has the rows of this query only')
        if not puts.target.table_schema.tokens:
            raise ValueError(f"table {table} keeps no tokens, by which an overwrite finds the records to delete")
        super().__init__(puts)
        self._token = Token(f"overwrite-{uuid.uuid4()}", 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task. The first failed row ends the task."""
        return self._puts.send_all(iterator, self._token)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the records without a put of this write. Called on the driver after all tasks have succeeded."""
        target = self._puts.target
        with target.connection.open() as client:
            table = client.arrow_table(target.table)
            for page in table.scan(fields=[], limit=RECORDS_PER_PAGE):
                sequence = pa.repeat(pa.scalar(self._token.sequence, pa.int64()), len(page))
                deletes = {"key": page["key"], "sequence": sequence}
                if PARTITION_COLUMN in page.column_names:
                    deletes["partitions"] = partition_lists(page[PARTITION_COLUMN])
                found = table.batch(pa.table(deletes), op="delete", writer=self._token.writer)
                raise_first_failure(target.table, found)
