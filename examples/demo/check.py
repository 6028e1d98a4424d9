"""Compare the service's records with Spark's own computation from the same data."""

from dataclasses import dataclass
from pathlib import Path

from examples.demo.job import Flights
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.functions import col, lit

SHOWN_MAX = 5


@dataclass(frozen=True)
class Comparison:
    """The number of compared rows and figures, and the first rows that occur more often on one side."""

    rows: int
    figures: int
    differing: list[Row]


def compare(expected: DataFrame, actual: DataFrame) -> Comparison:
    """Compare two frames in both directions, in every column of the expected one. The order of rows is ignored."""
    columns = expected.columns
    sides = expected.withColumn("side", lit("expected")).unionByName(
        actual.select(columns).withColumn("side", lit("actual"))
    )
    tally = sides.groupBy(columns).agg(
        sql.count_if(col("side") == "expected").alias("expected"), sql.count_if(col("side") == "actual").alias("actual")
    )
    differs = col("expected") != col("actual")
    [totals] = tally.agg(sql.sum("expected").alias("rows"), sql.count_if(differs).alias("differing")).collect()
    differing = tally.where(differs).limit(SHOWN_MAX).collect() if totals.differing else []
    return Comparison(totals.rows, totals.rows * len(columns), differing)


def expected_aircraft(flights: Flights) -> DataFrame:
    """Return the expected records of the aircraft, from Spark's own aggregation."""
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
    """Sort the destinations, because a set has no order."""
    return aircraft.withColumn("destinations", sql.array_sort("destinations"))


def expected_join(spark: SparkSession, flights: DataFrame, folder: Path) -> DataFrame:
    """Return the flights with plane, destination and airline, from Spark's own joins."""
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
