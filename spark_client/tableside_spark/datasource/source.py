"""The data source `tableside`: parallel reads by split, appends, and overwrites."""

from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tableside_client.json_writer import Decimals
from tableside_client.table_schema import PARTITION_COLUMN
from tableside_spark.datasource.options import (
    ROLE,
    TableOptions,
    parse_expiry,
    parse_flag,
    parse_options,
    parse_read_options,
)
from tableside_spark.datasource.reader import Decoder, TableReader
from tableside_spark.datasource.writers import Encoder, OverwritingWriter, PutSender, ReplacingWriter, TableWriter
from tableside_spark.versions import require

if TYPE_CHECKING:
    from tableside_spark.datasource.stream_writer import StreamWriter


class TablesideSource(DataSource):
    """The Spark data source `tableside`.

    Without a schema, a table is read as its key columns, the column `value` (JSON text), and the column `partition` if
    the table is partitioned. With a schema, the key columns and the members with its names are read. A write stores the
    text of a frame that was read without a schema, and otherwise an object of the columns.

    The page on Spark (`docs/spark.md`) describes the options.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the data source."""
        return "tableside"

    def schema(self) -> StructType:
        """The default schema: the key columns and the JSON text."""
        target = self._read_options()
        kinds = [LongType() if kind == "integer" else StringType() for kind in target.table_schema.key_types]
        keys = [StructField(name, kind) for name, kind in zip(target.keys, kinds, strict=True)]
        partition = [StructField(PARTITION_COLUMN, IntegerType())] if target.table_schema.partitions else []
        others = [StructField(target.value or "value", StringType(), metadata={ROLE: "value"}), *partition]
        if taken := {name.lower() for name in target.keys} & {other.name.lower() for other in others}:
            raise ValueError(
                f"without a schema, the column {min(taken)} is not the key: set the option key to another name"
            )
        return StructType([*keys, *others])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create a reader."""
        target = self._read_options()
        options = parse_read_options(self.options, target.table_schema)
        decoder = Decoder.from_schema(schema, target, options.on_mismatch)
        if not options.pushdown:
            return TableReader(target, decoder, options)
        require("the option pushdown")
        from tableside_spark.datasource.key_filters import PushdownReader

        return PushdownReader(schema, target, decoder, options)

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:
        """Create a batch writer."""
        target, truncate = self._write_options(), parse_flag(self.options, "truncate")
        replaces = overwrite and target.table_schema.generations
        if overwrite and not (replaces or truncate):
            raise ValueError(
                'mode("overwrite") deletes all other records: set option("truncate", "true"), or use mode("append")'
            )
        puts = PutSender(target, self._encoder(schema, target))
        if replaces:
            return ReplacingWriter(puts, allow_empty=truncate or parse_flag(self.options, "allow_empty"))
        return OverwritingWriter(puts) if overwrite else TableWriter(puts)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":  # noqa: N802 - Spark's name
        """Create a streaming writer."""
        if overwrite:
            raise ValueError("complete mode sends all results each time: write them inside foreachBatch with Table.put")
        require("the data source tableside for streaming writes")
        from tableside_spark.datasource.stream_writer import StreamWriter

        target = self._write_options()
        at_least_once = parse_flag(self.options, "at_least_once") or "sequence_by" in self.options
        if not (target.table_schema.tokens or at_least_once):
            raise ValueError(
                f"table {target.table} keeps no tokens: set at_least_once if repeated writes are acceptable"
            )
        return StreamWriter(PutSender(target, self._encoder(schema, target)), at_least_once)

    def _read_options(self) -> TableOptions:
        target = parse_options(self.options)
        if len(target.keys) != len(target.table_schema.key_types):
            raise ValueError(
                f"the option key has {len(target.keys)} columns, but the key of table {target.table} has "
                f"{len(target.table_schema.key_types)} parts"
            )
        return target

    def _write_options(self) -> TableOptions:
        target = parse_options(self.options)
        if not self.options.get("key"):
            raise ValueError("the option key is required: the names of the key columns")
        return target

    def _encoder(self, schema: StructType, target: TableOptions) -> Encoder:
        decimals = cast("Decimals", self.options.get("decimals", "number"))
        sequence_by = self.options.get("sequence_by")
        return Encoder.from_schema(schema, target, decimals, sequence_by, parse_expiry(self.options))
