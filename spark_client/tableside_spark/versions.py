"""The differences between the supported versions of PySpark, 3.5 to 4.3. Other modules do not compare versions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame, types
from pyspark.sql.pandas import functions as pandas_functions
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

FEATURES: Mapping[str, str] = {
    "Spark Connect": "4.0",
    "a list of values of several types": "4.0",
    "the data source tableside": "4.0",
    "the data source tableside for streaming writes": "4.1",
    "the option pushdown": "4.1",
    "the state store": "4.1",
}
"""The features that older versions lack, and the first version of PySpark that has each of them."""


class PySparkVersionError(RuntimeError):
    """The installed PySpark lacks a feature. The message names the feature and the version that it needs."""


class _NoVariantType(DataType):
    """The variant type of PySpark 3.5: no column has it."""


if TYPE_CHECKING:
    from pyspark.sql.types import VariantType as VariantType
else:
    VariantType = getattr(types, "VariantType", _NoVariantType)


def supports(feature: str) -> bool:
    """Whether the installed PySpark has one of `FEATURES`."""
    return _numbers(pyspark.__version__) >= _numbers(FEATURES[feature])


def require(feature: str) -> None:
    """Raise `PySparkVersionError` unless the installed PySpark has one of `FEATURES`."""
    if not supports(feature):
        raise PySparkVersionError(
            f"{feature} needs PySpark {FEATURES[feature]} or later; this is PySpark {pyspark.__version__}"
        )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of Spark's columns, with timestamps in UTC."""
    if _numbers(pyspark.__version__) >= (4, 2):
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def parse_variant(text: str) -> dict[str, bytes]:
    """Return JSON text as the members of a variant in Arrow."""
    found = types.VariantVal.parseJson(text)
    return {"value": bytes(found.value), "metadata": bytes(found.metadata)}


def with_arrow_column(
    frame: DataFrame, name: str, function: Callable[..., pa.Array], inputs: Sequence[Column], kind: DataType
) -> DataFrame:
    """Add a column computed once per row in Python. Before 4.1, Arrow needs the types of all columns."""
    if not hasattr(pandas_functions, "arrow_udf"):
        return _map_with_column(frame, name, function, inputs, kind)

    def call(*arrays: pa.Array) -> pa.Array:
        return function(*arrays)

    # Spark calls a nondeterministic function once per row, even if the plan uses its result several times.
    udf: Any = pandas_functions.arrow_udf(call, kind)  # type: ignore[call-overload]  # its overloads do not include this
    return frame.withColumn(name, udf.asNondeterministic()(*inputs))


def _map_with_column(
    frame: DataFrame, name: str, function: Callable[..., pa.Array], inputs: Sequence[Column], kind: DataType
) -> DataFrame:
    names = frame.columns
    # Columns are numbered, because PySpark interprets dots and backticks in names.
    numbers = [f"c{position}" for position in range(len(names) + len(inputs))]
    numbered = frame.select("*", *inputs).toDF(*numbers)
    kept = numbered.schema.fields[: len(names)]
    added = StructField(f"c{len(names)}", kind)

    def add(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [*batch.columns[: len(names)], function(*batch.columns[len(names) :])]
            yield pa.RecordBatch.from_arrays(columns, [*numbers[: len(names)], added.name])

    return numbered.mapInArrow(add, StructType([*kept, added])).toDF(*names, name)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))
