"""What `test_ways` runs as a job of its own: is the client there, on executors and where the format is planned?"""

import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from tableside_spark import Table, register

ROWS = 100


def classic(url: str, table: str, *added: str) -> None:
    """Write and read, after each of the files has been added; a failure is printed."""
    spark = SparkSession.builder.getOrCreate()
    for file in ("", *added):
        if file:
            spark.sparkContext.addPyFile(file)
        try:
            use(spark, url, table)
        except Exception as error:  # noqa: BLE001 - what it is, is to be seen
            print("FAILED:", str(error).strip().splitlines()[-1])
    spark.stop()


def connect(url: str, table: str, remote: str, kind: str, file: str) -> None:
    """Write and read through Spark Connect, after what the executors need has been added to the session."""
    spark = SparkSession.builder.remote(remote).create()
    if kind == "archive":
        spark.addArtifacts(f"{file}#environment", archive=True)
        spark.conf.set("spark.sql.execution.pyspark.python", "environment/bin/python")
    else:
        spark.addArtifacts(file, pyfile=True)
    register(spark)  # A server whose own Python has no Tableside does not find the format by itself.
    use(spark, url, table)
    spark.stop()


def use(spark: SparkSession, url: str, table: str) -> None:
    """Put, look up, and read and write as a format; print what came of it, and where executors found the client."""
    frame = spark.range(ROWS).selectExpr("cast(id as string) k", "id n")
    print("applied:", Table(table, url).put(frame, "k").applied)
    found = Table(table, url).join(frame.select("k"), "k", "n long").selectExpr("sum(n)").collect()[0][0]
    print("sum:", found)
    places = spark.range(4, numPartitions=2).mapInArrow(place, "place string").distinct().collect()
    print("executors:", *sorted(row.place for row in places))
    options = {"url": url, "table": f"{table}_format"}
    frame.write.format("tableside").options(**options, key="k").mode("append").save()
    print("format:", spark.read.format("tableside").options(**options).load().count())


def place(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Where this executor has the client."""
    import tableside_spark

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"place": [str(tableside_spark.__file__)]})


if __name__ == "__main__":
    if sys.argv[1] == "classic":
        classic(*sys.argv[2:])
    else:
        connect(*sys.argv[2:])
