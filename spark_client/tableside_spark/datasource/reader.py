"""The readers of the data source: pages of a scan, and lookups of selected keys."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tableside_client.arrow_table import ArrowTable
from tableside_client.connection import shared_client
from tableside_spark.datasource.decoder import Decoder
from tableside_spark.datasource.options import TableOptions
from tableside_spark.datasource.read_options import ReadOptions
from tableside_spark.executor.key_columns import key_column
from tableside_spark.executor.lookup_task import raise_first_failure
from tableside_spark.executor.mismatch import MismatchError
from tableside_spark.executor.null_members import NullMembers
from tableside_spark.executor.read_ahead import read_ahead
from tableside_spark.executor.task_waits import TaskWaits
from tableside_spark.plan.table_schema import wire_keys

PAGE_RECORDS = 10_000
"""The records of a page: the maximum of the service, which also limits its bytes."""
LOOKUPS_PER_TASK = 5_000

Part: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class Selection:
    """The records that a query needs: all of them, some keys, or a range of keys.

    `keys` are whole keys, each a tuple of its parts, and `leading` are first parts of composite keys. `prefix` belongs
    to the first part of the key, or to the second if `leading` is set. `partitions` are indexes of a partitioned table.
    """

    keys: tuple[tuple[Part, ...], ...] | None = None
    leading: tuple[Part, ...] | None = None
    prefix: str | None = None
    partitions: tuple[int, ...] | None = None


@dataclass(frozen=True)
class PageScan(InputPartition):
    """A part of a table to read page by page."""

    split: str | None
    partition: str | None


@dataclass(frozen=True)
class KeyLookup(InputPartition):
    """Keys to look up."""

    keys: tuple[tuple[Part, ...], ...]


class TableReader(DataSourceReader):
    """Reads the parts of a table in parallel. A record that exists during the whole read is returned at least once."""

    def __init__(self, target: TableOptions, decoder: Decoder, options: ReadOptions) -> None:
        self._target = target
        self._decoder = decoder
        self._splits = options.splits
        leading = None if options.partition is None else (options.partition,)
        self._selection = Selection(None, leading, options.prefix, options.partitions)

    def partitions(self) -> list[InputPartition]:
        """Divide the selected records into tasks."""
        selection = self._selection
        if selection.keys is not None:
            starts = range(0, len(selection.keys), LOOKUPS_PER_TASK)
            # Spark replaces an empty list by one partition.
            return [KeyLookup(selection.keys[start : start + LOOKUPS_PER_TASK]) for start in starts] or [KeyLookup(())]
        if selection.leading is not None:
            return [PageScan(None, str(part)) for part in selection.leading]
        with self._target.connection.open() as client:
            return [PageScan(split, None) for split in client.table(self._target.table).splits(self._splits)]

    def read(self, partition: PageScan | KeyLookup) -> Iterator[pa.RecordBatch]:  # type: ignore[override] # our own partitions
        """Read the records of a task."""
        pages = self._scan(partition) if isinstance(partition, PageScan) else self._look_up(partition)
        waits = TaskWaits(shared_client(self._target.connection))
        pages = waits.logged(self._target.table, read_ahead(pages))
        try:
            yield from self._decoded(pages)
        except MismatchError as error:
            # Spark prints the traceback, which adds nothing.
            raise error.with_traceback(None) from None

    def _decoded(self, pages: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
        names = [field.name for field in self._decoder.columns.members]
        nulls = NullMembers(self._target.table, names)
        for page in filter(len, pages):
            rows = self._decoder.decode(page)
            nulls.see([rows.column(name) for name in names], len(rows))
            yield rows
        nulls.log()

    def _table(self) -> ArrowTable:
        return shared_client(self._target.connection).arrow_table(self._target.table)

    def _scan(self, part: PageScan) -> Iterator[pa.Table]:
        return self._table().scan(
            split=part.split,
            prefix=self._selection.prefix,
            partition=part.partition,
            partitions=self._selection.partitions,
            limit=PAGE_RECORDS,
        )

    def _look_up(self, part: KeyLookup) -> Iterator[pa.Table]:
        count = self._target.table_schema.partitions
        if not part.keys:
            return
        keys = self._key_array(part.keys)
        for index in [None] if not count else self._selection.partitions or range(count):
            yield self._records(keys, index)

    def _records(self, keys: pa.Array, index: int | None) -> pa.Table:
        """Return the records of the keys, in one partition if an index is given. The result is a page as of a scan."""
        gets = pa.table({"key": keys})
        if index is not None:
            gets = gets.append_column("partitions", pa.array([[index]] * len(keys), pa.list_(pa.int32())))
        outcomes = self._table().batch(gets, op="get")
        # A filter may contain a key that the table cannot have, such as an empty text: no record has it.
        raise_first_failure(self._target.table, outcomes, except_codes=("record_not_found", "invalid_operation"))
        found = pa.table({"key": keys, "value": outcomes["value"]})
        if index is not None:
            found = found.append_column("partition", pa.repeat(pa.scalar(index, pa.int32()), len(keys)))
        return found.filter(pc.is_valid(found["value"]))

    def _key_array(self, keys: tuple[tuple[Part, ...], ...]) -> pa.Array:
        schema = self._target.table_schema
        kinds = [pa.int64() if kind == "integer" else pa.string() for kind in schema.key_types]
        columns: list[Any] = [pa.array(parts, kind) for parts, kind in zip(zip(*keys, strict=True), kinds, strict=True)]
        return key_column(columns, wire_keys(schema, self._target.keys)[1])
