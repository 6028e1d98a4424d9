"""Encode Arrow rows as puts, for the data source's writers.

A data source receives rows as Arrow batches, so their JSON is produced in Python, row by row. `Table.put` produces it
in the JVM, which is faster.
"""

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from tableside_spark.executor.key_columns import key_column
from tableside_spark.partitioning.times import in_utc, with_scalars
from tableside_spark.plan.json_columns import Decimals, require_json_type


@dataclass(frozen=True)
class Encoder:
    """The key columns, the members of the value, and the format of decimals."""

    keys: tuple[str, ...]
    members: tuple[str, ...]
    decimals: str

    @classmethod
    def from_schema(cls, schema: StructType, keys: Sequence[str], decimals: str) -> Self:
        """Create an encoder. Raises `ValueError` for types that JSON cannot represent."""
        missing = [key for key in keys if key not in schema.names]
        if missing:
            raise ValueError(f"the frame has no key column {missing[0]!r}")
        members = [field for field in schema.fields if field.name not in keys]
        for field in members:
            require_json_type(field.name, field.dataType, cast("Decimals", decimals))
        return cls(tuple(keys), tuple(field.name for field in members), decimals)

    def encode(self, rows: pa.RecordBatch) -> pa.Table:
        """Encode rows as puts. Raises `ValueError` for null keys, NaN and infinities, with the column and the count."""
        for name in self.keys:
            if rows.column(name).null_count:
                raise ValueError(f"key column {name} is null in {rows.column(name).null_count} rows")
        for name in self.members:
            _require_finite(name, rows.column(name))
        members = rows.select(list(self.members))
        for position, name in enumerate(self.members):
            members = members.set_column(position, name, _for_python(members.column(position)))
        values = members.to_pylist(maps_as_pydicts="strict")
        texts = [json.dumps(value, default=self._as_json, allow_nan=False, ensure_ascii=False) for value in values]
        keys = key_column([rows.column(name) for name in self.keys], self.keys)
        return pa.table({"key": keys, "value": pa.array(texts, pa.string())})

    def _as_json(self, value: Any) -> Any:
        match value:
            case dt.datetime() if value.tzinfo is not None:
                text = value.astimezone(dt.UTC).isoformat(timespec="microseconds")
                return text.replace("+00:00", "Z")
            case dt.datetime():
                return value.isoformat(timespec="microseconds")
            case dt.date():
                return value.isoformat()
            case Decimal():
                return f"{value:f}" if self.decimals == "string" else _number(value)
        raise ValueError(f"JSON cannot represent {type(value).__name__}")


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _for_python(column: pa.Array) -> pa.Array:
    """Return a column that Python converts exactly: times in UTC, and each float as the double with the same digits."""
    column = in_utc(column)
    texts = with_scalars(column.type, lambda kind: pa.string() if pa.types.is_float32(kind) else kind)
    doubles = with_scalars(column.type, lambda kind: pa.float64() if pa.types.is_float32(kind) else kind)
    return column if texts == column.type else column.cast(texts).cast(doubles)


def _require_finite(name: str, column: pa.Array) -> None:
    if pa.types.is_floating(column.type):
        count = pc.sum(pc.invert(pc.is_finite(column))).as_py()
        if count:
            raise ValueError(f"column {name} contains a NaN or an infinity in {count} rows")
