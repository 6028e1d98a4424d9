"""Divide the rows of a key into parts, so that the size of an operation does not depend on the number of rows."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from tableside_spark.executor.operation_batch import LATER_PARTS, internal
from tableside_spark.plan.frames import quoted

PART_ROWS_MAX = 2_048
"""The maximum number of a key's rows in one operation. It divides `PART_BYTES_MAX`, so that full parts reach it."""
PART_BYTES_MAX = 2**20
"""The size of the JSON texts of a part's rows, above which the next row begins another part."""

ELEMENT_BYTES = 21
"""An element of a row's JSON text counts as at least this many bytes.

A part therefore has at most 100,000 elements, the service's limit (`elements_max`), even if its first row begins in the
part before. Commas and brackets within strings count as well, which only makes parts smaller.
"""

_ELEMENT = r"[,\[{]"
_COUNTED_BYTES_MIN = 64
"""Elements of shorter texts are not counted: `PART_ROWS_MAX` of them have fewer than the limit."""

_WEIGHT = internal("weight")


def add_later_parts(
    rows: DataFrame, keys: Sequence[str], text: str, order: Sequence[Column], counted: Column
) -> DataFrame:
    """Add `LATER_PARTS`, the number of parts of the key after the row's part.

    The division depends only on the rows of the key and on the constants of this module. A repeated micro-batch
    therefore consists of the same parts, which their tokens require. Parts are numbered from the last row, so that a
    key with few rows has the single part 0.

    Args:
        rows: The rows.
        keys: The key columns.
        text: The column with the JSON text of a row.
        order: The order of the key's rows, descending. Rows that it does not distinguish are ordered by `text`.
        counted: The condition for rows that are part of the update. Other rows have no size.
    """
    least = PART_BYTES_MAX // PART_ROWS_MAX
    elements = F.when(F.octet_length(text) >= _COUNTED_BYTES_MIN, F.regexp_count(text, F.lit(_ELEMENT))).otherwise(0)
    size = F.greatest(F.octet_length(text), elements * ELEMENT_BYTES, F.lit(least))
    size = F.least(size, F.lit(PART_BYTES_MAX))
    weight = F.when(counted, size).otherwise(0).cast("long").alias(_WEIGHT)
    of_key = Window.partitionBy(*map(quoted, keys)).orderBy(*order, F.desc(text))
    so_far = F.sum(_WEIGHT).over(of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    part = F.floor((F.greatest(so_far, F.lit(1)) - 1) / PART_BYTES_MAX).cast("int")
    return rows.select("*", weight).withColumn(LATER_PARTS, part).drop(_WEIGHT)
