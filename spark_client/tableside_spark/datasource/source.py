"""The format `tableside`: a table read in parallel by splits, and frames appended to it.

A front end for what `load` and `save` are for. `Table` does more: it updates, deletes, and counts.
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

_SPLITS = 16
_PAGE_ROWS = 5_000


class TablesideSource(DataSource):
    """Options: `url`, `table` (or the path), `key` (the columns that hold the key, with commas between).

    `token_file` names a file on every executor; without it, `TABLESIDE_TOKEN` of the executors is used. A token
    is no option, since plans and logs show options. `ca_file`, `certificate_file` and `key_file` name files on every
    executor likewise, and on the driver. Reading: `splits` (how many parts at most), `prefix`,
    `partition`. Writing: mode `append` only, `decimals` (`string` allows more than 15 digits). A stream's puts have the
    token of their micro-batch, unless `at_least_once` is `true`, which a table that keeps no tokens needs.

    Without a schema, a table is read as its key and the column `value`, JSON text. With one, the members of
    those names are read; what does not fit fails the query.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tableside"

    def schema(self) -> StructType:
        """The key's fields and `value`."""
        place = parse_options(self.options)
        kinds = [LongType() if kind == "integer" else StringType() for kind in place.table_schema.key_types]
        keys = [StructField(name, kind) for name, kind in zip(place.keys, kinds, strict=True)]
        return StructType([*keys, StructField("value", StringType())])

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of this schema."""
        from tableside_spark.datasource.decoder import Decoder

        place = parse_options(self.options)
        return TableReader(place, Decoder.from_schema(schema, place.keys), self.options)

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:
        """A writer that puts one record per row."""
        if overwrite:
            raise ValueError('a table is not overwritten as a whole: write with mode("append")')
        place = self._write_options()
        return TableWriter(PutSender(place, self._encoder(schema, place)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        """A writer of micro-batches, each row of which is put once."""
        if overwrite:
            raise ValueError("complete mode sends all results each time: write them inside foreachBatch with Table.put")
        place = self._write_options()
        at_least_once = parse_flag(self.options, "at_least_once")
        if not (place.table_schema.tokens or at_least_once):
            raise ValueError(f"table {place.table} keeps no tokens: say at_least_once, if writing twice does no harm")
        return StreamWriter(PutSender(place, self._encoder(schema, place)), at_least_once)

    def _write_options(self) -> TableOptions:
        if not self.options.get("key"):
            raise ValueError("the option key names the columns that hold the key")
        return parse_options(self.options)

    def _encoder(self, schema: StructType, place: TableOptions) -> Any:
        from tableside_spark.datasource.encoder import Encoder

        return Encoder.from_schema(schema, place.keys, self.options.get("decimals", "number"))


@dataclass(frozen=True)
class Split(InputPartition):
    """One split of the table."""

    split: str


class TableReader(DataSourceReader):
    """Reads splits side by side; a record present throughout comes at least once."""

    def __init__(self, place: TableOptions, decoder: Any, options: Mapping[str, str]) -> None:
        self._target = place
        self._decoder = decoder
        self._splits = int(options.get("splits", _SPLITS))
        self._scan = {name: options[name] for name in ("prefix", "partition") if name in options}

    def partitions(self) -> list[InputPartition]:
        """The splits, as the service makes them now."""
        with self._target.connection.open() as client:
            return [Split(split) for split in client.splits(self._target.table, self._splits)]

    def read(self, partition: Split) -> Iterator[pa.RecordBatch]:  # type: ignore[override] # our own partitions
        """The records of a split, page by page."""
        client = shared_client(self._target.connection)
        pages = client.scan(self._target.table, split=partition.split, limit=_PAGE_ROWS, **self._scan)
        for page in pages:
            if len(page):
                yield self._decoder.decode(page)
