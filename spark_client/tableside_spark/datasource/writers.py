"""The executor side of data source writes: Arrow rows become puts.

A data source receives rows as Arrow batches, so their JSON is produced in Python, row by row. `Table.put` produces it
in the JVM, which is faster.
"""

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tableside_spark.datasource.options import Columns, TableOptions, require_column
from tableside_spark.executor.key_columns import invalid_utf8, key_column
from tableside_spark.executor.lookup_task import raise_first_failure
from tableside_spark.executor.operation_batch import Token, partition_lists
from tableside_spark.executor.orders import orders
from tableside_spark.executor.task_client import ChunkSize, TaskClient, chunks, map_ordered
from tableside_spark.partitioning.partition_task import in_utc, with_scalars
from tableside_spark.plan.concurrency import concurrency
from tableside_spark.plan.json_columns import (
    EQUAL_KEYS,
    NOT_FINITE,
    OUT_OF_RANGE,
    Decimals,
    has_type,
    require_json_type,
)
from tableside_spark.plan.sequences import require_sequence_type
from tableside_spark.versions import VariantType


@dataclass(frozen=True)
class Encoder:
    """The columns of the rows, the format of decimals, and the column with the sequence of ordered puts."""

    columns: Columns
    decimals: str
    sequence_by: str | None = None

    @classmethod
    def from_schema(
        cls, schema: StructType, target: TableOptions, decimals: str, sequence_by: str | None = None
    ) -> Self:
        """Create an encoder. Raises `ValueError` for a missing column, and for types that JSON cannot represent."""
        columns = Columns.from_schema(schema, target)
        if sequence_by is not None:
            require_column(sequence_by, schema, target.table)
            require_sequence_type(schema[sequence_by].dataType)
        others = [field.name for field in columns.members if field.name != sequence_by]
        if columns.text is not None and others:
            raise ValueError(
                f"column {others[0]} has no place in the record: column {columns.text} is the JSON text "
                "of the whole value, as a read without a schema returns it. Drop one of them, or make it a member "
                f"with withMetadata({columns.text!r}, {{}})"
            )
        for field in columns.members:
            require_json_type(field.name, field.dataType, cast("Decimals", decimals))
            if has_type(field.dataType, VariantType):
                kind = field.dataType.simpleString()
                raise ValueError(f"column {field.name} is {kind}: the format cannot write a variant; use Table.put")
        return cls(columns, decimals, sequence_by)

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
        return pa.table(puts)

    def _texts(self, rows: pa.RecordBatch) -> pa.Array:
        names = [field.name for field in self.columns.members]
        members = rows.select(names)
        for position, name in enumerate(names):
            members = members.set_column(position, name, _for_python(members.column(position)))
        try:
            texts = [self._text(value) for value in members.to_pylist(maps_as_pydicts="strict")]
        except (KeyError, OverflowError, ValueError) as error:
            found = ((column, [*filter(None, map(self._problem, members[column]))]) for column in names)
            name, problems = next((name, problems) for name, problems in found if problems)
            count = problems.count(problems[0])
            raise ValueError(f"column {name} contains {problems[0]} in {count} rows") from error
        return pa.array(texts, pa.string())

    def _problem(self, value: pa.Scalar) -> str | None:
        try:
            self._text(value.as_py(maps_as_pydicts="strict"))
        except KeyError:
            return EQUAL_KEYS
        except UnicodeDecodeError:
            return "text that is not valid UTF-8"
        except OverflowError:  # from the conversion to Python's times, which have the same years
            return OUT_OF_RANGE
        except ValueError:
            return NOT_FINITE
        return None

    def _text(self, value: Any) -> str:
        return json.dumps(value, default=self._as_json, allow_nan=False, ensure_ascii=False)

    def _as_json(self, value: Any) -> Any:
        match value:
            case dt.datetime() if value.tzinfo is not None:
                text = value.astimezone(dt.UTC).isoformat(timespec="microseconds")
                return text.replace("+00:00", "Z")
            case dt.datetime():
                return value.isoformat(timespec="microseconds")
            case dt.date():
                return value.isoformat()
            case Decimal():
                if self.decimals == "string":
                    return f"{value:f}"
                return int(value) if value == value.to_integral_value() else float(value)
        raise ValueError(f"JSON cannot represent {type(value).__name__}")


def _for_python(column: pa.Array) -> pa.Array:
    """Return a column that Python converts exactly: times in UTC, and each float as the double with the same digits."""
    column = in_utc(column)
    texts = with_scalars(column.type, lambda kind: pa.string() if pa.types.is_float32(kind) else kind)
    doubles = with_scalars(column.type, lambda kind: pa.float64() if pa.types.is_float32(kind) else kind)
    return column if texts == column.type else column.cast(texts).cast(doubles)


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
    encoder: Any

    def send_all(self, rows: Iterator[pa.RecordBatch], first: Token | None = None) -> CommitMessage:
        """Send the rows of a task. The sequence of a chunk is the sequence of `first` plus the chunk's number."""
        client = TaskClient(self.target.connection, self.target.table, 1)
        limits = self.target.table_schema.limits
        encoded = map_ordered(chunks(rows, concurrency(limits, TASKS, TASKS, ChunkSize()).chunk), self._encode, 2)
        # One request at a time, while the next chunk is encoded: two could apply the rows of a key in either order.
        sent = (self._send(client, number, first, *chunk) for number, chunk in enumerate(encoded))
        return CommitMessage(sum(client.waits.logged(self.target.table, sent)))

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
    """Keep only the last put of each key, so that neither a token nor a retry of some puts changes the result.

    The last one has the highest order, if there are orders.
    """
    puts = puts.sort_by("order") if "order" in puts.column_names else puts  # equal orders keep their sequence
    identities = puts.select([name for name in puts.column_names if name not in ("value", "order")]).to_pylist()
    last = {repr(identity): position for position, identity in enumerate(identities)}
    return puts if len(last) == len(puts) else puts.take(sorted(last.values()))
