"""What `test_multicast_connect` runs in a process of its own: a Connect session cannot live beside a classic one."""

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.functions import col, lit

from tableside_spark import BROADCAST, DEFAULT, StreamPartitioner, multicast


class Thirds(StreamPartitioner):
    """A third of the rows to every partition, a third dropped, a third left to Kafka."""

    def partitions(self, topic: str, key: Any, value: Any, num_partitions: int) -> Any:
        return (BROADCAST, [], DEFAULT)[int(value) % 3]


def main(directory: Path) -> None:
    """A partitioner, a column and a stream, through Spark Connect."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    rows = spark.range(300).select(lit("k").alias("key"), col("id").cast("string").alias("value"), "id")
    in_columns = F.expr("case id % 3 when 0 then array(-1) when 1 then array() else array(null) end")
    expected = {0: 100, 1: 100, None: 100}
    counts = {"rows": 300, "dropped": 100, "records": 300}
    for partitions in (Thirds(), in_columns):
        observed = Observation()
        copies = multicast(rows, partitions, num_partitions=2, topic="t", observed=observed)
        assert {row.partition: row["count"] for row in copies.groupBy("partition").count().collect()} == expected
        assert observed.get == counts, observed.get
    for wrong in (lambda *_: [2], F.array(lit(2))):
        with pytest.raises(Exception, match="partitions are 0 to 1, or -1 alone for all of them; a record is for 2"):
            multicast(rows, wrong, num_partitions=2, topic="t").collect()

    rows.write.parquet(str(directory / "in"))
    stream = spark.readStream.schema(rows.schema).parquet(str(directory / "in"))
    copies = multicast(stream, Thirds(), num_partitions=2, topic="t")
    query = copies.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    started = query.trigger(availableNow=True).start(str(directory / "out"))
    started.awaitTermination()
    out = spark.read.parquet(str(directory / "out"))
    assert {row.partition: row["count"] for row in out.groupBy("partition").count().collect()} == expected
    progress = started.lastProgress
    assert progress is not None
    # Through Connect, what was observed comes as a row of values and a schema.
    assert list(progress["observedMetrics"]["multicast_t"]["values"]) == [300, 100, 300]
    spark.stop()
    print("multicast works through Connect")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
