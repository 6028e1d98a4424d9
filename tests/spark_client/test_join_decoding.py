"""A join returns the same rows whether executors or the JVM decode values, and requests repeated keys once."""

from collections.abc import Iterator

import httpx
import pytest
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)

from support.running import Service, running
from tableside_client import Client
from tableside_spark import ChunkSize, Table

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SCHEMA = "n int, d double, `x.y` string, s struct<a: array<int>>"
RECORDS = 60


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("decoding")) as service:
        with Client(service.url) as client:
            client.table("plain").load((f"k{n}", value(n)) for n in range(RECORDS))
            client.table("mixed").load((f"k{n}", value(n) | odd(n)) for n in range(RECORDS))
        yield service


def value(n: int) -> dict[str, object]:
    return {"n": n, "d": n / 7, "x.y": f"ü{n}", "s": {"a": [n, None]}, "other": [n]}


def odd(n: int) -> dict[str, object]:
    """Members that only Spark reads: a number as text, and in one record a text as number."""
    return {"x.y": n} if n % 9 == 0 else {"n": "text"} if n == 40 else {}


def rows(spark: SparkSession, count: int) -> DataFrame:
    """Rows in one task, with null, absent and repeated keys."""
    number = F.col("id") % (RECORDS + 5)
    key = F.when(F.col("id") % 11 != 0, F.concat(F.lit("k"), number))
    return spark.range(count).coalesce(1).select(key.alias("k"), "id")


@pytest.mark.parametrize("table", ["plain", "mixed"])
@pytest.mark.parametrize("how", ["left", "inner"])
def test_decoded_values_are_those_that_spark_parses(
    spark: SparkSession, service: Service, table: str, how: str
) -> None:
    lookup, frame = Table(table, service.url, chunk=ChunkSize(20)), rows(spark, 200)
    found = lookup.join(frame, "k", SCHEMA, how, on_mismatch="null")
    text = lookup.join(frame, "k", how=how).withColumn("value", F.from_json("value", SCHEMA))
    expected = text.select("k", "id", "value.*")
    assert found.schema == expected.schema
    assert found.sort("id").collect() == expected.sort("id").collect()
    assert found.where("n is not null").count() > 100


def test_a_key_that_repeats_within_a_task_is_requested_once(spark: SparkSession, service: Service) -> None:
    frame = rows(spark, 1_000)
    before = requested(service)
    assert Table("plain", service.url, chunk=ChunkSize(50)).join(frame, "k", SCHEMA, "inner").count() > 800
    assert requested(service) - before == RECORDS + 5


def requested(service: Service) -> float:
    """Return the number of gets that the service has received."""
    text = httpx.get(f"{service.url}/metrics").text
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("tableside_operations"))
