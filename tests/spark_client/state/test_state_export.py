"""The state of real queries in a table is listed, read as frames, and removed, in both checkpoint formats."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from scripts.state_jar import ensure_jar
from servers.jdk import ensure_javac
from spark_client.sessions import jvm
from spark_client.state.providers import FORMAT, state_session
from spark_client.state.written import Written, service
from tableside_client import Client
from tableside_spark.state import Query, State, export, settings

pytestmark = jvm("state")

BATCHES = [["a", "b", "a"], ["b", "c"], ["a", "d"]]
COUNTS = [{"a": 2, "b": 1}, {"a": 2, "b": 2, "c": 1}, {"a": 3, "b": 2, "c": 1, "d": 1}]


@dataclass(frozen=True)
class Counted:
    """A query that has run: its checkpoint, and its state in a table."""

    checkpoint: str
    written: Written
    state: State
    query: Query
    format: int


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with service(tmp_path_factory.mktemp("service")) as opened:
        yield opened


@pytest.fixture(scope="module")
def spark(client: Client) -> Iterator[SparkSession]:
    ensure_jar(ensure_javac())
    with state_session("local[2]", settings(client.url, "pair")) as started:
        yield started


@pytest.fixture(scope="module", params=[("pair", 1), ("string", 2)], ids=str)
def counted(
    request: pytest.FixtureRequest, spark: SparkSession, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Counted:
    """A query that has counted words in three batches. The last test with this fixture removes its state."""
    folder = tmp_path_factory.mktemp("counted")
    table, number = request.param
    spark.conf.set("spark.tableside.state.table", table)
    spark.conf.set(FORMAT, str(number))
    checkpoint = str(folder / "checkpoint")
    for index, words in enumerate(BATCHES):
        (folder / "words").mkdir(exist_ok=True)
        (folder / "words" / f"{index}.json").write_text("".join(json.dumps({"w": word}) + "\n" for word in words))
        count_words(spark, folder / "words", checkpoint)
    query = str(json.loads((folder / "checkpoint" / "metadata").read_text())["id"])
    state = State(client, table)
    return Counted(checkpoint, Written(client, table, query), state, state.query(query), number)


def test_a_query_that_ran_is_listed(counted: Counted) -> None:
    assert counted.query.id in [query.id for query in counted.state.queries()]
    assert (counted.query.checkpoint or "").endswith(counted.checkpoint)
    assert [(store.operator, store.name, store.partitions) for store in counted.query.stores] == [(0, "default", 2)]
    contents = [counted.state.contents(place) for place in counted.query.places()]
    for each in contents:
        finished = [version for version in each.versions if version.finished]
        assert [version.number for version in finished] == [1, 2, 3]
        assert {version.format for version in finished} == {counted.format}
        assert each.delta_bytes > 0
    assert sum(each.latest.records for each in contents if each.latest) == 4


def test_a_version_is_read_as_a_frame(spark: SparkSession, counted: Counted) -> None:
    assert counts(export(spark, counted.checkpoint)) == COUNTS[-1]
    assert [counts(export(spark, counted.checkpoint, batch_id=batch)) for batch in range(3)] == COUNTS


def test_the_whole_state_of_a_query_is_removed(counted: Counted) -> None:
    there = counted.written.left()
    assert counted.state.delete(counted.query.id) == len(there) > 10
    assert counted.written.left() == set()
    assert counted.state.contents(next(counted.query.places())).versions == ()


def test_a_side_and_a_store_cannot_be_combined(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="cannot be combined"):
        export(spark, "/checkpoint", join_side="left", store_name=f"{uuid.uuid4()}")


def count_words(spark: SparkSession, folder: Path, checkpoint: str) -> None:
    """Count the words in new files of a folder."""
    frame = spark.readStream.schema("w string").json(str(folder)).groupBy("w").count()
    writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination(120)


def counts(frame: DataFrame) -> dict[str, int]:
    """Return the words and their counts."""
    return {row.w: row.n for row in frame.select("key.w", col("value.count").alias("n")).collect()}
