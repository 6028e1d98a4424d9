"""Values of records with a schema: how a reader converts them, and the warning for members that no record has."""

import json
import logging
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DayTimeIntervalType, IntegerType, LongType, MapType, StringType, StructField, StructType

from support.running import Service
from tableside_client import Client
from tableside_client.json_reader import ROWS_MIN, Misfit
from tableside_client.table_schema import TableSchema
from tableside_spark.datasource.options import ReadOptions, TableOptions
from tableside_spark.datasource.reader import Decoder, PageScan, TableReader
from tableside_spark.executor.lookup_task import json_reader
from tableside_spark.executor.task_client import Connection

KINDS = ("string", "boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp")
NUMBERS = (
    *("0", "-0", "0.0", "-0.0", "1.0", "1e2", "127", "128", "-129", "32768", "2147483648", "-9223372036854775808"),
    *("9223372036854775808", "0.1", "5e-324", "1e-400", "1.7976931348623157e308", "9007199254740993"),
)
STRINGS = (
    *("", "1", "true", "null", "NaN", "2013-07-01", "ü\U0001f600", '"\\/\b\f\n\r\t', "\x00\u2028"),
    *("2013-07-01T05:15:00Z", "0000-02-29 05Z", "2013-07-01T05:15-04:00", "9999-12-31T23:59:59.9-18:00"),
)


def struct(**kinds: Any) -> dict[str, Any]:
    members = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return {"type": "struct", "fields": members}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_is_read_the_same_with_and_without_a_misfit_in_its_batch(kind: str, nested: bool) -> None:
    """Arrow reads a batch without misfits at once. For other batches, each value is converted."""
    array = {"type": "array", "elementType": struct(a=kind), "containsNull": True}
    reader = json_reader(StructType.fromJson(struct(v=array if nested else kind, other="integer")).fields)
    for text in ("null", "true", *NUMBERS, *map(json.dumps, STRINGS)):
        document = f'{{"v":[{{"a":{text}}}]}}' if nested else f'{{"v":{text}}}'
        [alone, _], misfits = reader.read(pa.array([document]))
        [converted, _], more = reader.read(pa.array([document, '{"other":"x"}']))
        assert more == [*misfits, Misfit(1, 1, "string")]
        assert physical(alone) == physical(converted.slice(0, 1)), text


def physical(column: pa.Array) -> str:
    """Return the values with integers for times, which Python cannot represent in the year 0."""
    if pa.types.is_list(column.type):
        return "null" if column.null_count else physical(column.flatten().flatten()[0])
    times = {"timestamp[us, tz=UTC]": pa.int64(), "date32[day]": pa.int32()}
    return repr(column.cast(times.get(str(column.type), column.type)).to_pylist())


def test_a_misfit_has_its_row_its_member_and_its_type() -> None:
    reader = json_reader([StructField("a", IntegerType()), StructField("b", IntegerType())])
    columns, misfits = reader.read(pa.array(['{"a":1,"b":2}', None, '{"a":"x","b":[3]}', '{"b":{}}']))
    assert [column.to_pylist() for column in columns] == [[1, None, None, None], [2, None, None, None]]
    assert misfits == [Misfit(2, 0, "string"), Misfit(2, 1, "array"), Misfit(3, 1, "object")]


@pytest.mark.parametrize(
    ("text", "found"),
    [("3.14", "number"), ("2147483648", "number"), ("true", "boolean"), ('{"b":1}', "object"), ("[1]", "array")],
)
def test_a_value_that_does_not_fit_is_null_and_has_its_json_type(text: str, found: str) -> None:
    [column], misfits = json_reader([StructField("a", IntegerType())]).read(pa.array([f'{{"a":{text}}}']))
    assert (column.to_pylist(), misfits) == ([None], [Misfit(0, 0, found)])


@pytest.mark.parametrize(
    "kind",
    [
        MapType(IntegerType(), StringType()),
        DayTimeIntervalType(),
        StructType([StructField("x", IntegerType()), StructField("x", IntegerType())]),
    ],
    ids=["map", "interval", "repeated member"],
)
def test_a_type_that_cannot_be_read_is_refused_with_its_column(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"column c is .*, which cannot be read from JSON: read it as string"):
        json_reader([StructField("c", kind)])


TABLE = "null_members"
MEMBERS = [StructField("n", LongType()), StructField("Rare", LongType()), StructField("rare", LongType())]


def scan(service: Service, rows: int) -> list[pa.RecordBatch]:
    target = TableOptions(Connection(service.url), f"{TABLE}_{rows}", ("k",), TableSchema())
    schema = StructType([StructField("k", StringType()), *MEMBERS])
    reader = TableReader(target, Decoder.from_schema(schema, target, "fail"), ReadOptions(1))
    return list(reader.read(PageScan(None, None)))


@pytest.mark.parametrize("rows", [ROWS_MIN - 1, ROWS_MIN])
def test_a_large_task_names_the_members_that_no_record_has(
    service: Service, caplog: pytest.LogCaptureFixture, rows: int
) -> None:
    with Client(service.url) as client:
        records = ((f"k{at}", {"n": at, "rare": 7} if at == 250 else {"n": at}) for at in range(rows))
        client.table(f"{TABLE}_{rows}").load(records)
    with caplog.at_level(logging.WARNING, logger="tableside_spark"):
        assert sum(map(len, scan(service, rows))) == rows
    messages = [record.getMessage() for record in caplog.records]
    expected = (
        f"table {TABLE}_{rows}: none of {rows} rows with a record has a value for Rare: compare the schema with a "
    )
    assert messages == ([f"{expected}record"] if rows == ROWS_MIN else [])
