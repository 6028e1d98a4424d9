"""The data source `tableside`: parallel reads by split, and appends.

It supports `load` and `save`. `Table` also updates, deletes and returns counts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    InputPartition,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tableside_client.connection import shared_client
from tableside_spark.datasource.options import TableOptions, parse_flag, parse_options
from tableside_spark.datasource.writers import PutSender, StreamWriter, TableWriter
from tableside_spark.executor.task_waits import TaskWaits

_SPLITS = 16
_PAGE_ROWS = 5_000


class TablesideSource(DataSource):
    """The Spark data source `tableside`.

    Without a schema, a table is read as its key columns and the column `value` (JSON text). With a schema, the members
    with its names are read; a value that does not fit fails the query.

    Options for reading and writing:

    - `url`: the address of the service.
    - `table`, or the path: the name of the table.
    - `key`: the key columns, separated by commas.
    - `token_file`: a file with the bearer token, on every executor and on the driver. Default: the variable
      `TABLESIDE_TOKEN`. A token itself is not an option, because plans and logs show options.
    - `ca_file`, `certificate_file`, `key_file`: PEM files, on every executor and on the driver.

    Options for reading: `splits` (the maximum number of splits), `prefix` and `partition`.

    Options for writing (mode `append` only): `decimals` (`string` allows more than 15 digits) and `at_least_once`. A
    stream's puts carry the token of their micro-batch, unless `at_least_once` is `true`, which is required for tables
    without tokens.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the data source."""
        return "tableside"

    def schema(self) -> StructType:
        """The default schema: the key columns and `value`."""
        target = parse_options(self.options)
        kinds = [LongType() if kind == "integer" else StringType() for kind in target.table_schema.key_types]
        keys = [StructField(name, kind) for name, kind in zip(target.keys, kinds, strict=True)]
        return StructType([*keys, StructField("value", StringType())])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create a reader."""
        from tableside_spark.datasource.decoder import Decoder

        target = parse_options(self.options)
        return TableReader(target, Decoder.from_schema(schema, target.keys), self.options)

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:
        """Create a batch writer."""
        if overwrite:
            raise ValueError('a table cannot be overwritten as a whole: use mode("append")')
        target = self._write_options()
        return TableWriter(PutSender(target, self._encoder(schema, target)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        """Create a streaming writer."""
        if overwrite:
            raise ValueError("complete mode sends all results each time: write them inside foreachBatch with Table.put")
        target = self._write_options()
        at_least_once = parse_flag(self.options, "at_least_once")
        if not (target.table_schema.tokens or at_least_once):
            raise ValueError(
                f"table {target.table} keeps no tokens: set at_least_once if repeated writes are acceptable"
            )
        return StreamWriter(PutSender(target, self._encoder(schema, target)), at_least_once)

    def _write_options(self) -> TableOptions:
        if not self.options.get("key"):
            raise ValueError("the option key is required: the names of the key columns")
        return parse_options(self.options)

    def _encoder(self, schema: StructType, target: TableOptions) -> Any:
        from tableside_spark.datasource.encoder import Encoder

        return Encoder.from_schema(schema, target.keys, self.options.get("decimals", "number"))


@dataclass(frozen=True)
class Split(InputPartition):
    """One split of the table."""

    split: str


class TableReader(DataSourceReader):
    """Reads splits in parallel. A record that exists during the whole read is returned at least once."""

    def __init__(self, target: TableOptions, decoder: Any, options: Mapping[str, str]) -> None:
        self._target = target
        self._decoder = decoder
        self._splits = int(options.get("splits", _SPLITS))
        self._scan = {name: options[name] for name in ("prefix", "partition") if name in options}

    def partitions(self) -> list[InputPartition]:
        """Fetch the current splits from the service."""
        with self._target.connection.open() as client:
            return [Split(split) for split in client.splits(self._target.table, self._splits)]

    def read(self, partition: Split) -> Iterator[pa.RecordBatch]:  # type: ignore[override] # our own partitions
        """Read the records of a split, page by page."""
        client, table = shared_client(self._target.connection), self._target.table
        pages = client.scan(table, split=partition.split, limit=_PAGE_ROWS, **self._scan)
        for page in TaskWaits(client).logged(table, pages):
            if len(page):
                yield self._decoder.decode(page)
