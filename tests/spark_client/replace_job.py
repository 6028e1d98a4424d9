"""The program that the test of replacements runs and kills: a job that replaces a table.

Its argument is JSON: the URL, the name of the table, and how long each of the tasks waits before its last batch. The
code of executors is in this module, since Spark ships __main__.
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.functions import col, lit

from spark_client.sessions import session
from tableside_spark import Table

ROWS = 40_000
LAST = 3
"""The last batch of each task. Spark buffers the rows between two functions of Python, so the first ones arrive."""


def main(url: str, table: str, wait_s: float) -> None:
    """Replace the table by `ROWS` records."""

    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == LAST:
                time.sleep(wait_s)
            yield batch

    with session("local[2]", {"spark.sql.execution.arrow.maxRecordsPerBatch": "5000"}) as spark:
        rows = spark.range(0, ROWS, 1, 2).select(F.concat(lit("k"), "id").alias("k"), (col("id") * 0 + 2).alias("n"))
        Table(table, url).replace(rows.mapInArrow(wait, "k string, n long"), "k")


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
