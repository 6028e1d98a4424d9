"""Where Spark finds the format `tableside`: it looks into every installed module named `pyspark_…`."""

from tableside_spark.datasource.source import TablesideSource as DefaultSource

__all__ = ["DefaultSource"]
