"""The warning for members of a schema that no record has, in lookups and scans of a running service."""

import logging
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from support.running import Service
from tableside_client import Client
from tableside_client.arrow_table import ChunkSize
from tableside_client.json_reader import ROWS_MIN
from tableside_client.table_schema import TableSchema
from tableside_spark.datasource.options import ReadOptions, TableOptions
from tableside_spark.datasource.reader import Decoder, PageScan, TableReader
from tableside_spark.executor.lookup_task import FoundValues, LookupTask, json_reader
from tableside_spark.executor.task_client import Connection

TABLE = "null_members"
MEMBERS = [StructField("n", LongType()), StructField("Rare", LongType()), StructField("rare", LongType())]

Read = Callable[[Service, int], Iterator[pa.RecordBatch]]


def look_up(service: Service, rows: int) -> Iterator[pa.RecordBatch]:
    values = FoundValues(TABLE, json_reader(MEMBERS), "fail")
    connection = Connection(service.url)
    task = LookupTask(connection, TABLE, ("k",), ("k",), "left", None, values, ChunkSize(100), 2)
    # The last key has no record. The others repeat.
    keys = [f"k{at % 300}" for at in range(rows)] + ["absent"]
    return task([pa.record_batch({"k": keys})])


def scan(service: Service, rows: int) -> Iterator[pa.RecordBatch]:
    target = TableOptions(Connection(service.url), f"{TABLE}_{rows}", ("k",), TableSchema())
    schema = StructType([StructField("k", StringType()), *MEMBERS])
    return TableReader(target, Decoder.from_schema(schema, target, "fail"), ReadOptions(1)).read(PageScan(None, None))


@pytest.fixture(scope="module", autouse=True)
def tables(service: Service) -> None:
    records = [(f"k{at}", {"n": at, "rare": 7} if at == 250 else {"n": at}) for at in range(ROWS_MIN)]
    with Client(service.url) as client:
        for name, count in (
            (TABLE, ROWS_MIN),
            (f"{TABLE}_{ROWS_MIN}", ROWS_MIN),
            (f"{TABLE}_{ROWS_MIN - 1}", ROWS_MIN - 1),
        ):
            client.table(name).load(records[:count])


@pytest.mark.parametrize("read", [look_up, scan])
@pytest.mark.parametrize("rows", [ROWS_MIN - 1, ROWS_MIN])
def test_a_large_task_names_the_members_that_no_record_has(
    service: Service, caplog: pytest.LogCaptureFixture, read: Read, rows: int
) -> None:
    with caplog.at_level(logging.WARNING, logger="tableside_spark"):
        batches = list(read(service, rows))
    assert sum(map(len, batches)) == rows + (read is look_up)
    messages = [record.getMessage() for record in caplog.records]
    name = TABLE if read is look_up else f"{TABLE}_{rows}"
    expected = f"table {name}: none of {rows} rows with a record has a value for Rare: compare the schema with a record"
    assert messages == ([expected] if rows == ROWS_MIN else [])
