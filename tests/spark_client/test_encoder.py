"""Rows of the format that have no JSON: the error names the column and counts the rows."""

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from tableside_client.table_schema import TableSchema
from tableside_spark.datasource.options import TableOptions
from tableside_spark.datasource.writers import Encoder
from tableside_spark.executor.task_client import Connection

INVALID = pa.array([b"a", b"\xff", b"\xfe"], pa.binary()).view(pa.string())
VALID = pa.array(["{}"] * 3)


@pytest.mark.parametrize(
    ("columns", "value", "message"),
    [
        ({"k": INVALID, "s": VALID}, None, "key column k is not valid UTF-8 in 2 rows"),
        ({"k": VALID, "s": INVALID}, "s", "column s is not valid UTF-8 in 2 rows"),
        ({"k": VALID, "s": INVALID}, None, "column s contains text that is not valid UTF-8 in 2 rows"),
    ],
)
def test_text_that_is_not_valid_utf8_is_refused_with_its_column(
    columns: dict[str, pa.Array], value: str | None, message: str
) -> None:
    target = TableOptions(Connection("http://127.0.0.1:1"), "t", ("k",), TableSchema(), value)
    schema = StructType([StructField(name, StringType()) for name in columns])
    with pytest.raises(ValueError, match=message):
        Encoder.from_schema(schema, target, "number").encode(pa.RecordBatch.from_pydict(columns))
