"""The program of `test_state_connect`: a stateful query through Spark Connect."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from tableside_spark import state

JAR = "spark.jars"


def main(url: str, directory: Path, remote: str) -> None:
    """Run a counting query, and restart it. The server has the jar, and the session configures the state's table."""
    spark = SparkSession.builder.remote(remote).getOrCreate()
    for name, value in state.settings(url, "state").items():
        if name != JAR:
            spark.conf.set(name, value)
    rows = spark.range(100).select((col("id") % 7).alias("k"))
    for run in (1, 2):
        rows.write.mode("append").parquet(str(directory / "in"))
        counts = spark.readStream.schema("k long").parquet(str(directory / "in")).groupBy("k").count()
        writer = counts.writeStream.outputMode("complete").format("memory").queryName(f"counts_{run}")
        query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        expected = {k: run * len(range(k, 100, 7)) for k in range(7)}
        assert dict(spark.table(f"counts_{run}").collect()) == expected
        progress = query.lastProgress
        assert progress is not None
        metrics = progress["stateOperators"][0]["customMetrics"]
        assert metrics["tablesideChunksWritten"] > 0
        assert (metrics["tablesideChunksRead"] > 0) == (run == 2), metrics
        exported = state.export(spark, str(directory / "checkpoint")).select("key.k", "value.count")
        assert dict(exported.collect()) == expected
    spark.stop()
    print("state is kept through Connect")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
