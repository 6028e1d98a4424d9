"""When the record of a row expires: after a time to live in seconds, or at a time."""

from numbers import Real
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import DataType, DateType, DoubleType, NumericType, TimestampNTZType, TimestampType

from tableside_spark.executor.operation_batch import EXPIRY
from tableside_spark.plan.frames import named_column
from tableside_spark.plan.json_columns import Check

TtlS = float | str | Column | None
ExpiresAt = str | Column | None
ExpiryArgument = Literal["ttl_s", "expires_at"]

_TYPES: dict[ExpiryArgument, tuple[tuple[type[DataType], ...], str]] = {
    "ttl_s": ((NumericType,), "a number of seconds"),
    "expires_at": ((TimestampType, TimestampNTZType, DateType), "a timestamp or a date"),
}


def checked_ttl_s(ttl_s: Any) -> TtlS:
    """Return a number as a float, and a column or its name as it is. Raises `TypeError` for anything else."""
    if ttl_s is None or isinstance(ttl_s, str | Column):
        return ttl_s
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, Real):
        raise TypeError(f"ttl_s must be a number of seconds or a column, not {ttl_s!r}")
    return float(ttl_s)


def require_one(ttl_s: TtlS, expires_at: ExpiresAt) -> None:
    """Raise `ValueError` if both are given."""
    if ttl_s is not None and expires_at is not None:
        raise ValueError("ttl_s and expires_at cannot be combined")


def require_expiry_type(argument: ExpiryArgument, kind: DataType) -> None:
    """Raise `ValueError` for a column of another type than the argument accepts."""
    kinds, wanted = _TYPES[argument]
    if not isinstance(kind, kinds):
        raise ValueError(f"{argument} is {kind.simpleString()}: it must be {wanted}")


def expiry_columns(frame: DataFrame, ttl_s: TtlS, expires_at: ExpiresAt) -> list[Column]:
    """Return the column `EXPIRY`, if given. Raises `ValueError` if it is missing or has another type."""
    require_one(ttl_s, expires_at)
    if expires_at is not None:
        return [_typed(frame, "expires_at", expires_at).alias(EXPIRY)]
    if isinstance(ttl_s, str | Column):
        return [_typed(frame, "ttl_s", ttl_s).cast("double").alias(EXPIRY)]
    return [] if ttl_s is None else [F.lit(ttl_s).alias(EXPIRY)]


def expiry_checks(rows: DataFrame) -> list[Check]:
    """Return the condition for rows whose time to live is not valid, and their problem."""
    if EXPIRY not in rows.columns or not isinstance(rows.schema[EXPIRY].dataType, DoubleType):
        return []
    ttl_s = F.col(EXPIRY)
    is_invalid = F.isnan(ttl_s) | ((ttl_s <= 0) & (ttl_s != -1))
    return [(is_invalid, "ttl_s must be a number above 0, or -1 for no expiry")]


def _typed(frame: DataFrame, argument: ExpiryArgument, given: str | Column) -> Column:
    column = named_column(frame, given) if isinstance(given, str) else given
    require_expiry_type(argument, frame.select(column.alias(EXPIRY)).schema[EXPIRY].dataType)
    return column
