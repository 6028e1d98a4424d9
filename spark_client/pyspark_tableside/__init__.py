"""The entry point for Spark: it finds the data source `tableside` in installed modules named `pyspark_*`."""

from tableside_spark.datasource.source import TablesideSource as DefaultSource

__all__ = ["DefaultSource"]
