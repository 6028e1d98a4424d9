"""Tables for Spark: `Table` joins DataFrames with a table and writes DataFrames to it."""

from tableside_spark.table.table import Table

__all__ = ["Table"]
