"""The meaning of the columns of a frame or a schema, the same for reading and writing."""

from dataclasses import dataclass
from typing import Self

from pyspark.sql.types import IntegralType, StringType, StructField, StructType

from tableside_spark.datasource.options import TableOptions
from tableside_spark.plan.table_schema import PARTITION_COLUMN

_ROLE = "tableside"
_TEXT = {_ROLE: "value"}


def text_field(name: str) -> StructField:
    """Return the column with the JSON text of whole values, for a schema that the caller does not choose.

    Spark keeps its metadata in frames, files and views, so that a later write recognizes the text.
    """
    return StructField(name, StringType(), metadata=_TEXT)


@dataclass(frozen=True)
class Columns:
    """The columns of a table's records. Each other column is a member of the value.

    Attributes:
        keys: The key columns in the order of the key.
        partition: The column with the index of the partition, for partitioned tables.
        text: The column with the JSON text of the whole value.
        members: The other columns.
    """

    keys: tuple[str, ...]
    partition: str | None
    text: str | None
    members: tuple[StructField, ...]

    @classmethod
    def from_schema(cls, schema: StructType, target: TableOptions) -> Self:
        """Find the columns. Raises `ValueError` if a named one is missing, or has a type that is not valid."""
        for name in (*target.keys, *([target.value] if target.value else [])):
            _require_column(name, schema, target.table)
        others = [field for field in schema.fields if field.name not in target.keys]
        partition = None
        if target.table_schema.partitions:
            partition = next((field.name for field in others if field.name.lower() == PARTITION_COLUMN), None)
        text = target.value or next((field.name for field in others if field.metadata.get(_ROLE) == "value"), None)
        _require_type(schema, partition, IntegralType, "an integer, the index of a partition")
        _require_type(schema, text, StringType, "a string, the JSON text of a value")
        return cls(target.keys, partition, text, tuple(f for f in others if f.name not in (partition, text)))


def _require_column(name: str, schema: StructType, table: str) -> None:
    if name not in schema.names:
        raise ValueError(
            f"table {table}: there is no column {name!r}, only {', '.join(schema.names)}. "
            "Name it in the same case, or set the option key or value to another column"
        )


def _require_type(schema: StructType, name: str | None, kind: type, wanted: str) -> None:
    if name is not None and not isinstance(schema[name].dataType, kind):
        raise ValueError(f"column {name} is {schema[name].dataType.simpleString()}, not {wanted}")
