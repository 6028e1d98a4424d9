"""Join, put and replacement of a million rows from PySpark on all cores, against alternatives without the service."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from examples.demo.service import running
from examples.demo.session import session
from pyspark.sql import Column, DataFrame, SparkSession, functions as f

from tableside_spark import Table

from . import records
from .report import Result
from .turns import Comparison, measured, rates

SCHEMA = "manufacturer string, seats int, year int"


def run(rows: int, rounds: int) -> list[Result]:
    """Measure all variants in turn over several rounds, and return the medians in rows per second."""
    with tempfile.TemporaryDirectory() as folder:
        _fill_in(Path(folder))
        with running(Path(folder) / "service") as service, session(Path(folder) / "spark") as spark:
            spark.conf.set("spark.sql.shuffle.partitions", 8)
            table = Table(records.TABLE, url=service.url)
            put = {
                "put, through the service, durable": partial(_write, table.put, spark, rows),
                "replace": partial(_write, table.replace, spark, rows),
            }
            frames = {
                "join, keys unique": _frame(spark, rows, f.col("id")),
                "join, keys unique, in no order": _frame(spark, rows, f.col("id") * 7919 % rows),
                "join, 1 key in 100 unique": _frame(spark, rows, f.pmod(f.hash("id"), f.lit(rows // 100))),
            }
            joins = [_joins(name, spark, table, service.url, frame, rows) for name, frame in frames.items()]
            return measured([Comparison("put", "rows", rates(put, rows)), *joins], rounds, warm=True)


def _fill_in(folder: Path) -> None:
    for name in ("service", "spark"):
        (folder / name).mkdir()


def _write(method: Callable[..., Any], spark: SparkSession, rows: int) -> None:
    frame = spark.range(rows).select(
        f.format_string("N%06d", "id").alias("tailnum"),
        f.lit("BOEING").alias("manufacturer"),
        f.format_string("737-%d", "id").alias("model"),
        (f.col("id") % 300).alias("seats"),
        (f.col("id") % 50 + 1970).alias("year"),
        f.lit("Fixed wing multi engine").alias("type"),
    )
    summary = method(frame, key="tailnum")
    assert summary.applied == rows, summary


def _frame(spark: SparkSession, rows: int, number: Column) -> DataFrame:
    return spark.range(rows).select(f.format_string("N%06d", number).alias("tailnum"), "id")


def _joins(name: str, spark: SparkSession, table: Table, url: str, frame: DataFrame, rows: int) -> Comparison:
    def service() -> DataFrame:
        return table.enrich(frame, on="tailnum", schema=SCHEMA, how="inner")

    def source() -> DataFrame:
        read = spark.read.format("tableside").option("url", url).option("table", records.TABLE)
        return frame.join(read.schema(f"key string, {SCHEMA}").load(), frame["tailnum"] == f.col("key"))

    values = _broadcast(spark, frame)
    ways: dict[str, Callable[[], DataFrame]] = {
        "through the service": service,
        "dictionary broadcast to the workers": lambda: _from_dictionary(frame, values),
        "table read by the data source, joined in Spark": source,
    }
    work = {way: partial(_consume, joined, rows) for way, joined in ways.items()}
    return Comparison(name, "rows", rates(work, rows))


def _broadcast(spark: SparkSession, frame: DataFrame) -> Any:
    keys = [row[0] for row in frame.select("tailnum").distinct().collect()]
    return spark.sparkContext.broadcast({key: records.value(int(key[1:])) for key in keys})


def _from_dictionary(frame: DataFrame, values: Any) -> DataFrame:
    def look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [values.value.get(key) for key in batch["tailnum"].to_pylist()]
            yield batch.append_column("value", pa.array(found, pa.string()))

    joined = frame.mapInArrow(look_up, "tailnum string, id long, value string")
    return joined.select("tailnum", "id", f.from_json("value", SCHEMA).alias("value")).select(
        "tailnum", "id", "value.*"
    )


def _consume(joined: Callable[[], DataFrame], rows: int) -> None:
    [row] = joined().agg(f.count("manufacturer"), f.sum("seats"), f.max("year")).collect()
    assert row[0] == rows, row
