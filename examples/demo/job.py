"""The Spark job: load tables, join flights with them, and update one record per aircraft."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions as sql
from pyspark.sql.functions import col

from tableside_client import Client
from tableside_spark import ChunkSize, Table, WriteSummary

SMALL_REQUESTS = ChunkSize(rows_max=100)  # so that the service can be killed between two of them
KEYS = {"planes": "tailnum", "airports": "faa", "airlines": "carrier"}
AIRCRAFT = (
    "tailnum string, flights long, miles long, cancelled long, first_departure string,"
    " last_departure string, worst_delay_min long, destinations array<string>"
)


@dataclass(frozen=True)
class Flights:
    """All flights, and subsets of them by the updates that they contribute to an aircraft's record.

    A flight without an aircraft was cancelled before one was assigned. It has no key, so it is in no record.
    """

    every: DataFrame
    departed: DataFrame
    cancelled: DataFrame


def read_flights(spark: SparkSession, folder: Path) -> Flights:
    """Read the flights and add the departure time in UTC, which is null for a flight that did not depart."""
    flights = spark.read.parquet(str(folder / "flights.parquet"))
    scheduled_s = sql.unix_timestamp("time_hour") + 60 * col("minute")
    departed_at = sql.timestamp_seconds(scheduled_s + 60 * col("dep_delay"))
    flights = flights.withColumn("departed_at", sql.date_format(departed_at, "yyyy-MM-dd'T'HH:mm:ss'Z'"))
    assigned = flights.where(col("tailnum").isNotNull())
    return Flights(
        every=flights,
        departed=assigned.where(col("departed_at").isNotNull()),
        cancelled=assigned.where(col("departed_at").isNull()),
    )


@dataclass(frozen=True)
class Reach:
    """The service's URL, and the file with the token, if the service requires one."""

    url: str
    token_file: str | None = None

    def table(self, name: str) -> Table:
        """Return a table of the service."""
        return Table(name, url=self.url, token_file=self.token_file)


@dataclass(frozen=True)
class Counted:
    """The summaries of the updates for departed and for cancelled flights."""

    departed: WriteSummary
    cancelled: WriteSummary

    @property
    def flights(self) -> int:
        """The number of flights in the records."""
        return self._sum("applied") + self._sum("replayed")

    @property
    def sent_again(self) -> int:
        """The number of flights whose update was sent more than once."""
        return self._sum("retried")

    @property
    def replayed(self) -> int:
        """The number of flights whose update had already been applied when it was sent again."""
        return self._sum("replayed")

    def _sum(self, name: str) -> int:
        return int(getattr(self.departed, name) + getattr(self.cancelled, name))


def load(spark: SparkSession, folder: Path, service: Reach) -> int:
    """Put planes, airports and airlines into their tables, and return the number of records."""
    return sum(
        service.table(name).put(spark.read.parquet(str(folder / f"{name}.parquet")), key=key).applied
        for name, key in KEYS.items()
    )


def enrich(flights: DataFrame, service: Reach) -> DataFrame:
    """Join flights with plane, destination and airline, all from the service."""
    flights = flights.select("departed_at", "carrier", "flight", "tailnum", "origin", "dest", "distance")
    flights = service.table("planes").enrich(
        flights, on="tailnum", schema="manufacturer string, model string, seats int"
    )
    flights = service.table("airports").enrich(flights, on="dest", schema="name string, lat double, lon double")
    flights = flights.withColumnRenamed("name", "destination")
    flights = service.table("airlines").enrich(flights, on="carrier", schema="name string")
    return flights.withColumnRenamed("name", "airline")


def keep_count(flights: Flights, service: Reach) -> Counted:
    """Update the record of each flight's aircraft, starting from a default."""
    aircraft = replace(service.table("aircraft"), chunk=SMALL_REQUESTS)
    nothing_yet = {"flights": 0, "miles": 0, "cancelled": 0, "destinations": sql.array()}
    departed = aircraft.update(
        flights.departed,
        key="tailnum",
        update={
            "$inc": {"flights": 1, "miles": col("distance")},
            "$min": {"first_departure": col("departed_at")},
            "$max": {"last_departure": col("departed_at"), "worst_delay_min": col("dep_delay")},
            "$addToSet": {"destinations": col("dest")},
        },
        default=nothing_yet,
    )
    cancelled = aircraft.update(
        flights.cancelled, key="tailnum", update={"$inc": {"cancelled": 1}}, default=nothing_yet
    )
    return Counted(departed, cancelled)


def read_aircraft(spark: SparkSession, service: Reach) -> DataFrame:
    """Scan the table of aircraft."""
    options = {"url": service.url, "table": "aircraft", "key": "tailnum"}
    if service.token_file is not None:
        options["token_file"] = service.token_file
    return spark.read.format("tableside").options(**options).schema(AIRCRAFT).load()


def busiest(aircraft: pa.Table, service: Reach, count: int = 10) -> list[dict[str, Any]]:
    """Return the aircraft with the most flights, joined with the table of planes by the client without Spark."""
    order = [("flights", "descending"), ("tailnum", "ascending")]
    most = aircraft.sort_by(order).slice(0, count).to_pylist()
    with Client(service.url, token_file=service.token_file) as client:
        planes = client.table("planes").get_many([row["tailnum"] for row in most], fields=["manufacturer", "model"])
    return [row | {"plane": planes.get(row["tailnum"])} for row in most]
