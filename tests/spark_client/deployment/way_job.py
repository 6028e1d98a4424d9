"""The job of `test_ways`: checks that executors and the process that plans the format have the client."""

import re
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from tableside_spark import Table, register

ROWS = 100


def classic(url: str, token: str, table: str, *added: str) -> None:
    """Write and read after each of the files has been added, and print failures."""
    spark = SparkSession.builder.getOrCreate()
    for file in ("", *added):
        if file:
            spark.sparkContext.addPyFile(file)
        attempt(spark, Table(table, url, token=token))
    spark.stop()


def connect(url: str, token: str, table: str, remote: str, archive: str, packages: str) -> None:
    """Write and read through Spark Connect, after an archive and after packages have been added."""
    spark = SparkSession.builder.remote(remote).create()
    spark.addArtifacts(f"{archive}#environment", archive=True)
    spark.conf.set("spark.sql.execution.pyspark.python", "environment/bin/python")
    register(spark)
    attempt(spark, Table(table, url, token=token))
    spark.addArtifacts(packages, pyfile=True)
    register(spark)  # Only then, since a registered format keeps the packages that the session had at the registration.
    attempt(spark, Table(table, url, token=token))
    spark.stop()


def attempt(spark: SparkSession, table: Table) -> None:
    """Use the table, and print the results, or the missing module of a failure."""
    try:
        use(spark, table)
    except Exception as error:  # noqa: BLE001 - the job prints any failure
        print("FAILED:", *re.findall("ModuleNotFoundError.*", str(error))[-1:] or [error])


def use(spark: SparkSession, table: Table) -> None:
    """Put, look up, and read and write as a format. Print the results, and where executors found the client."""
    frame = spark.range(ROWS).selectExpr("cast(id as string) k", "id n")
    print("applied:", table.put(frame, "k").applied)
    found = table.join(frame.select("k"), "k", "n long").selectExpr("sum(n)").collect()[0][0]
    print("sum:", found)
    places = spark.range(4, numPartitions=2).mapInArrow(place, "place string").distinct().collect()
    print("executors:", *sorted(row.place for row in places))
    options = {"url": table.url, "table": f"{table.name}_format"}
    frame.write.format("tableside").options(**options, key="k").mode("append").save()
    print("format:", spark.read.format("tableside").options(**options).load().count())


def place(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the location of the client on this executor."""
    import tableside_spark

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"place": [str(tableside_spark.__file__)]})


if __name__ == "__main__":
    if sys.argv[1] == "classic":
        classic(*sys.argv[2:])
    else:
        connect(*sys.argv[2:])
