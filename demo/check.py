"""Compare what the service answered with what Spark alone makes of the same data."""

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.functions import col, lit

from demo.job import Flights

SHOWN_MAX = 10


@dataclass(frozen=True)
class Comparison:
    """How many rows and figures were compared, and the first rows that only one side has."""

    rows: int
    figures: int
    missing: list[Row]
    surplus: list[Row]

    @property
    def equal(self) -> bool:
        """Tell whether both sides have the same rows, each as often."""
        return not self.missing and not self.surplus


def compare(expected: DataFrame, actual: DataFrame) -> Comparison:
    """Compare two frames both ways, in every column of the expected one; the order of rows does not matter."""
    expected = expected.cache()
    actual = actual.select(expected.columns).cache()
    try:
        rows = expected.count()
        missing = expected.exceptAll(actual).limit(SHOWN_MAX).collect()
        surplus = actual.exceptAll(expected).limit(SHOWN_MAX).collect()
        return Comparison(rows, rows * len(expected.columns), missing, surplus)
    finally:
        expected.unpersist()
        actual.unpersist()


def expected_aircraft(flights: Flights) -> DataFrame:
    """Return the records that the aircraft should have, by Spark's own aggregation."""
    departed = flights.departed.groupBy("tailnum").agg(
        sql.count("*").alias("flights"),
        sql.sum("distance").alias("miles"),
        sql.min("departed_at").alias("first_departure"),
        sql.max("departed_at").alias("last_departure"),
        sql.max("dep_delay").alias("worst_delay_min"),
        sql.collect_set("dest").alias("destinations"),
    )
    cancelled = flights.cancelled.groupBy("tailnum").agg(sql.count("*").alias("cancelled"))
    start = {"flights": lit(0), "miles": lit(0), "cancelled": lit(0), "destinations": sql.array()}
    records = departed.join(cancelled, "tailnum", "full")
    return sort_destinations(records.withColumns({name: sql.coalesce(name, start[name]) for name in start}))


def sort_destinations(aircraft: DataFrame) -> DataFrame:
    """Give the set of destinations an order, since a set has none."""
    return aircraft.withColumn("destinations", sql.array_sort("destinations"))


def expected_join(spark: SparkSession, flights: DataFrame, folder: Path) -> DataFrame:
    """Return the flights with plane, destination and airline, by Spark's own joins."""
    planes, airports, airlines = (
        spark.read.parquet(str(folder / f"{name}.parquet")) for name in ("planes", "airports", "airlines")
    )
    airports = airports.select(col("faa").alias("dest"), col("name").alias("destination"), "lat", "lon")
    flights = flights.select("departed_at", "carrier", "flight", "tailnum", "origin", "dest", "distance")
    return (
        flights.join(planes.select("tailnum", "manufacturer", "model", "seats"), "tailnum", "left")
        .join(airports, "dest", "left")
        .join(airlines.withColumnRenamed("name", "airline"), "carrier", "left")
    )
