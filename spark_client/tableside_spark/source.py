"""The format `tableside`: a table read in parallel by splits, and frames appended to it.

A front end for what `load` and `save` are for. `Table` does more: it updates, deletes, and counts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tableside_spark.connection import Connection, shared_client
from tableside_spark.credential import Credential
from tableside_spark.facts import TableFacts, table_facts
from tableside_spark.table import service_url

_KNOWN = {"path", "url", "table", "key", "token_file", "splits", "prefix", "partition", "decimals"}
_SPLITS = 16
_PAGE_ROWS = 5_000


class TablesideSource(DataSource):
    """Options: `url`, `table` (or the path), `key` (the columns that hold the key, with commas between).

    `token_file` names a file on every executor; without it, `TABLESIDE_TOKEN` of the executors is used. A token
    is no option, since plans and logs show options. Reading: `splits` (how many parts at most), `prefix`,
    `partition`. Writing: mode `append` only, `decimals` (`string` allows more than 15 digits).

    Without a schema, a table is read as its key and the column `value`, JSON text. With one, the members of
    those names are read; what does not fit fails the query.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tableside"

    def schema(self) -> StructType:
        """The key's fields and `value`."""
        place = _place(self.options)
        kinds = [LongType() if kind == "integer" else StringType() for kind in place.facts.key_types]
        keys = [StructField(name, kind) for name, kind in zip(place.keys, kinds, strict=True)]
        return StructType([*keys, StructField("value", StringType())])

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of this schema."""
        from tableside_spark.decoding import Decoder

        place = _place(self.options)
        return TableReader(place, Decoder.of(schema, place.keys), self.options)

    def writer(self, schema: StructType, overwrite: bool) -> "TableWriter":
        """A writer that puts one record per row."""
        from tableside_spark.encoding import Encoder

        if overwrite:
            raise ValueError('a table is not overwritten as a whole: write with mode("append")')
        if not self.options.get("key"):
            raise ValueError("the option key names the columns that hold the key")
        place = _place(self.options)
        return TableWriter(place, Encoder.of(schema, place.keys, self.options.get("decimals", "number")))


@dataclass(frozen=True, slots=True)
class Place:
    """Which table of which service, and the names of its key's columns, in order."""

    connection: Connection
    table: str
    keys: tuple[str, ...]
    facts: TableFacts


@dataclass(frozen=True)
class Part(InputPartition):
    """One split of the table."""

    split: str


class TableReader(DataSourceReader):
    """Reads splits side by side; a record present throughout comes at least once."""

    def __init__(self, place: Place, decoder: Any, options: Mapping[str, str]) -> None:
        self._place = place
        self._decoder = decoder
        self._splits = int(options.get("splits", _SPLITS))
        self._scan = {name: options[name] for name in ("prefix", "partition") if name in options}

    def partitions(self) -> list[InputPartition]:
        """The splits, as the service makes them now."""
        with self._place.connection.open() as client:
            return [Part(split) for split in client.splits(self._place.table, self._splits)]

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:  # type: ignore[override] # our own partitions
        """The records of a split, page by page."""
        client = shared_client(self._place.connection)
        pages = client.scan(self._place.table, split=partition.split, limit=_PAGE_ROWS, **self._scan)
        for page in pages:
            if len(page):
                yield self._decoder.decode(page)


@dataclass
class Committed(WriterCommitMessage):
    """How many rows a task has written."""

    rows: int


class TableWriter(DataSourceArrowWriter):
    """Puts rows as they come. Repeating a task is harmless: the same rows are put again."""

    def __init__(self, place: Place, encoder: Any) -> None:
        self._place = place
        self._encoder = encoder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows; the first that fails ends the task."""
        from tableside_spark.batching import ChunkSize, chunks
        from tableside_spark.window import in_order

        return Committed(sum(in_order(chunks(iterator, ChunkSize()), self._put, 4)))

    def _put(self, chunk: pa.RecordBatch) -> int:
        from tableside_spark.lookup import refuse_failures

        place = self._place
        answer = shared_client(place.connection).batch(place.table, self._encoder.encode(chunk), op="put")
        refuse_failures(place.table, answer)
        return int(chunk.num_rows)


def _place(options: Mapping[str, str]) -> Place:
    """The place the options name; unknown ones, and secrets, are refused."""
    given = {name.lower(): option for name, option in options.items()}
    if "token" in given:
        raise ValueError("a token is no option, since plans and logs show options: use token_file or TABLESIDE_TOKEN")
    unknown = sorted(set(given) - _KNOWN)
    if unknown:
        raise ValueError(f"unknown option {unknown[0]!r}; known are {', '.join(sorted(_KNOWN))}")
    table = given.get("table") or given.get("path", "")
    if not table:
        raise ValueError("the option table names the table")
    connection = Connection(service_url(given.get("url", "")), Credential(path=given.get("token_file")))
    facts = table_facts(connection, table)
    named = tuple(name.strip() for name in given.get("key", "").split(",") if name.strip())
    keys = named or tuple(name or "key" for name in facts.key_names)
    return Place(connection, table, keys, facts)
