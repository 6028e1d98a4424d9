"""Helpers for DataFrames and sessions, classic or Connect, using the DataFrame API only."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions as F, types as T

from tableside_spark.executor.operation_batch import PARTITION
from tableside_spark.versions import require

_RESERVED_PREFIX = "__tableside_"
"""The names of internal columns begin with it, except that of the partition."""


def quoted(name: str) -> Column:
    """Return the column with exactly this name, including dots and backticks."""
    escaped = name.replace("`", "``")
    return F.col(f"`{escaped}`")


def named_column(frame: DataFrame, name: str) -> Column:
    """Return the column with exactly this name. Raises `ValueError` if the frame has none."""
    if name not in frame.columns:
        raise ValueError(f"the frame has no column {name!r}; it has {', '.join(frame.columns)}")
    return quoted(name)


def check_key_columns(frame: DataFrame, key: str | Sequence[str]) -> tuple[str, ...]:
    """Return the key columns. Raises `ValueError` if one is missing or has a type that is not valid for keys."""
    require_supported_session(frame)
    names = (key,) if isinstance(key, str | Column) else tuple(key)
    if columns := [name for name in names if not isinstance(name, str)]:
        raise ValueError(f'a key column is given by its name, such as "user_id", not as {columns[0]}')
    if not names:
        raise ValueError("no key column is named")
    for name in names:
        named_column(frame, name)
        if not isinstance(kind := frame.schema[name].dataType, T.StringType | T.IntegralType):
            raise ValueError(f"key column {name!r} is {kind.simpleString()}: a key is a string or an integer")
    return names


def require_unique_names(names: Sequence[str], frame: DataFrame) -> None:
    """Raise `ValueError` for names that are equal under the session's case sensitivity."""
    exact = str(frame.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
    seen: set[str] = set()
    for name in names:
        folded = name if exact else name.lower()
        if folded in seen:
            raise ValueError(f"two columns are named {name!r}: rename or drop one first")
        seen.add(folded)


def with_strings(frame: DataFrame) -> DataFrame:
    """Return the frame with strings in place of `char` and `varchar`, which Spark can be set to preserve."""
    kinds = {field.name: _with_strings(field.dataType) for field in frame.schema.fields}
    if all(field.dataType == kinds[field.name] for field in frame.schema.fields):
        return frame
    return frame.select(*[quoted(name).cast(kind).alias(name) for name, kind in kinds.items()])


def _with_strings(kind: T.DataType) -> T.DataType:
    match kind:
        case T.CharType() | T.VarcharType():
            return T.StringType()
        case T.StructType():
            return T.StructType(
                [T.StructField(member.name, _with_strings(member.dataType), member.nullable) for member in kind.fields]
            )
        case T.ArrayType():
            return T.ArrayType(_with_strings(kind.elementType), kind.containsNull)
        case T.MapType():
            return T.MapType(_with_strings(kind.keyType), _with_strings(kind.valueType), kind.valueContainsNull)
    return kind


def require_free_names(names: Sequence[str]) -> None:
    """Raise `ValueError` for names of internal columns."""
    if taken := [name for name in names if name.lower().startswith(_RESERVED_PREFIX) or name.lower() == PARTITION]:
        raise ValueError(f"the column name {taken[0]!r} is reserved for internal columns: rename the column first")


def map_arrow(
    frame: DataFrame, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: T.StructType
) -> DataFrame:
    """Call `mapInArrow` with columns of any name. The results may have other names than the `schema`."""
    names, results = frame.columns, schema.names
    numbered = frame.toDF(*(f"c{position}" for position in range(len(names))))

    def renamed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (found.rename_columns(results) for found in function(batch.rename_columns(names) for batch in batches))

    return numbered.mapInArrow(renamed, schema)


def require_supported_session(frame: DataFrame) -> None:
    """Raise `PySparkVersionError` for a Spark Connect session of PySpark 3.5, which has other columns."""
    if is_remote(frame):
        require("Spark Connect")


def is_remote(frame: DataFrame | SparkSession) -> bool:
    """Whether this is a session of Spark Connect, or a DataFrame of one."""
    return type(frame).__module__.startswith("pyspark.sql.connect")
