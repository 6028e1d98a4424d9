"""The reader that uses filters on the key. Requires PySpark 4.1, and `spark.sql.python.filterPushdown.enabled`."""

from collections.abc import Iterable
from typing import Any

from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from tableside_spark.datasource.key_filters import select
from tableside_spark.datasource.reader import TableReader


class PushdownReader(TableReader):
    """Reads only the records that filters on the key select."""

    def __init__(self, schema: StructType, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._schema = schema

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Use the filters on the key, and return the others."""
        target = self._target
        self._selection, used = select(filters, target.keys, self._schema, target.table_schema, self._selection)
        return [condition for condition in filters if not any(condition is one for one in used)]
