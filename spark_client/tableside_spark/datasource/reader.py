"""The readers of the data source: pages of a scan and lookups of selected keys, decoded into batches of a schema."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tableside_client.arrow_table import ArrowTable, raise_first_failure
from tableside_client.concurrency import read_ahead
from tableside_client.json_reader import JsonReader, MismatchError, NullMembers, OnMismatch, key_text
from tableside_client.key_columns import key_column
from tableside_client.table_schema import PARTITION_COLUMN, wire_keys
from tableside_spark.datasource.options import Columns, ReadOptions, TableOptions
from tableside_spark.executor.lookup_task import json_reader
from tableside_spark.executor.task_client import one_generation, shared_client
from tableside_spark.versions import arrow_schema


@dataclass(frozen=True)
class Decoder:
    """Converts a page to the columns of a schema: key columns, `partition` if the table is partitioned, and members."""

    table: str
    target: pa.Schema
    columns: Columns
    reader: JsonReader
    on_mismatch: OnMismatch

    @classmethod
    def from_schema(cls, schema: StructType, target: TableOptions, on_mismatch: OnMismatch) -> Self:
        """Create a decoder. Raises `ValueError` for a missing column, and for types that JSON cannot represent."""
        columns = Columns.from_schema(schema, target)
        reader = json_reader(columns.members)
        return cls(target.table, arrow_schema(schema), columns, reader, on_mismatch)

    def decode(self, page: pa.Table) -> pa.RecordBatch:
        """Decode a page as one batch. Raises `MismatchError` for a value that does not fit."""
        keys = page["key"].combine_chunks()
        parts = keys.flatten() if pa.types.is_struct(keys.type) else [keys]
        columns = dict(zip(self.columns.keys, parts, strict=True))
        if self.columns.partition is not None:
            columns[self.columns.partition] = page[PARTITION_COLUMN].combine_chunks()
        if self.columns.text is not None:
            columns[self.columns.text] = page["value"].combine_chunks()
        columns = {name: self._cast(column, self.target.field(name)) for name, column in columns.items()}
        if self.columns.members:
            texts = page["value"].combine_chunks()
            members = self.reader.read_fitting(self.table, keys, texts, self.on_mismatch)
            columns |= zip(self.reader.schema.names, members, strict=True)
        arrays = [columns[name] for name in self.target.names]
        for array, field in zip(arrays, self.target, strict=True):
            if _lacks_value(array, field):  # Spark would read another value.
                at = next(at for at in range(len(array)) if _lacks_value(array.slice(at, 1), field))
                raise MismatchError(
                    f"table {self.table}: column {field.name} has a null for key {key_text(page['key'][at].as_py())}, "
                    "but the schema excludes nulls; remove NOT NULL from the schema"
                )
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)

    def _cast(self, column: pa.Array, field: pa.Field) -> pa.Array:
        try:
            return column.cast(field.type)
        except pa.ArrowInvalid as error:
            raise MismatchError(
                f"table {self.table}: a key does not fit the column {field.name} of type {field.type}: "
                "change the type in the schema"
            ) from error


def _lacks_value(column: pa.Array, field: pa.Field) -> bool:
    """Whether the column has, at any depth, a null where the field excludes nulls."""
    if column.null_count and not field.nullable:
        return True
    if pa.types.is_struct(field.type):
        return any(map(_lacks_value, column.drop_null().flatten(), field.type))
    if pa.types.is_map(field.type):
        items = pa.struct([field.type.key_field, field.type.item_field])
        return _lacks_value(column.cast(pa.list_(items)).flatten().field(1), field.type.item_field)
    if pa.types.is_list(field.type):
        return _lacks_value(column.flatten(), field.type.value_field)
    return False


PAGE_RECORDS = 10_000
"""The records of a page: the maximum of the service, which also limits its bytes."""
LOOKUPS_PER_TASK = 5_000

Part: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class Selection:
    """The records that a query needs: all of them, some keys, or a range of keys.

    `keys` are whole keys, `leading` are first parts. `prefix` is of the first part, or of the second with `leading`.
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
    """Reads the current generation of a table in parallel. A record that stays is returned at least once."""

    def __init__(self, target: TableOptions, decoder: Decoder, options: ReadOptions) -> None:
        # Tasks read the generation that is current now, on the driver.
        self._target = dataclasses.replace(target, table=target.table_schema.pinned(target.table))
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
        names = [field.name for field in self._decoder.columns.members]
        nulls = NullMembers(self._target.table, names)
        try:
            with one_generation():
                for page in filter(len, read_ahead(pages)):
                    rows = self._decoder.decode(page)
                    nulls.see([rows.column(name) for name in names], len(rows))
                    yield rows
                nulls.log()
        except MismatchError as error:
            # Spark prints the traceback, which adds nothing.
            raise error.with_traceback(None) from None

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
        if not part.keys:
            return
        schema = self._target.table_schema
        types = [pa.int64() if kind == "integer" else pa.string() for kind in schema.key_types]
        columns: list[Any] = [pa.array(*each) for each in zip(zip(*part.keys, strict=True), types, strict=True)]
        keys = key_column(columns, wire_keys(schema, self._target.keys)[1])
        for index in self._selection.partitions or range(schema.partitions or 0) or [None]:
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
