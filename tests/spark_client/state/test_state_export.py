"""The state of real queries in a table is listed, read as frames, and removed, in both checkpoint formats."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from scripts.state_jar import ensure_jar
from servers.jdk import ensure_javac
from spark_client.sessions import jvm
from spark_client.state.providers import FORMAT, query_id, state_session
from spark_client.state.written import Written, service
from tableside_client import Client
from tableside_spark.state import State, export, settings

pytestmark = jvm("state")

BATCHES = [["a", "b", "a"], ["b", "c"], ["a", "d"]]
COUNTS = [{"a": 2, "b": 1}, {"a": 2, "b": 2, "c": 1}, {"a": 3, "b": 2, "c": 1, "d": 1}]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with service(tmp_path_factory.mktemp("service")) as opened:
        yield opened


@pytest.fixture(scope="module")
def spark(client: Client) -> Iterator[SparkSession]:
    ensure_jar(ensure_javac())
    with state_session("local[2]", settings(client.url, "pair")) as started:
        yield started


@pytest.mark.parametrize(("table", "number"), [("pair", 1), ("string", 2)])
def test_the_state_of_a_query_is_listed_read_as_frames_and_removed(
    spark: SparkSession, client: Client, tmp_path: Path, table: str, number: int
) -> None:
    spark.conf.set("spark.tableside.state.table", table)
    spark.conf.set(FORMAT, str(number))
    checkpoint = str(tmp_path / "checkpoint")
    (tmp_path / "words").mkdir()
    for index, words in enumerate(BATCHES):
        (tmp_path / "words" / f"{index}.json").write_text("".join(json.dumps({"w": word}) + "\n" for word in words))
        count_words(spark, tmp_path / "words", checkpoint)

    state = State(client, table)
    query = state.query(query_id(tmp_path / "checkpoint"))
    assert query.id in [each.id for each in state.queries()]
    assert (query.checkpoint or "").endswith(checkpoint)
    assert [(store.operator, store.name, store.partitions) for store in query.stores] == [(0, "default", 2)]
    contents = [state.contents(place) for place in query.places()]
    for each in contents:
        finished = [version for version in each.versions if version.finished]
        assert [version.number for version in finished] == [1, 2, 3]
        assert {version.format for version in finished} == {number}
    assert sum(each.latest.records for each in contents if each.latest) == 4

    assert counts(export(spark, checkpoint)) == COUNTS[-1]
    assert [counts(export(spark, checkpoint, batch_id=batch)) for batch in range(3)] == COUNTS
    with pytest.raises(ValueError, match="cannot be combined"):
        export(spark, checkpoint, join_side="left", store_name="default")

    written = Written(client, table, query.id)
    there = written.left()
    assert state.delete(query.id) == len(there) > 10
    assert written.left() == set()


def count_words(spark: SparkSession, folder: Path, checkpoint: str) -> None:
    """Count the words in new files of a folder."""
    frame = spark.readStream.schema("w string").json(str(folder)).groupBy("w").count()
    writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination(120)


def counts(frame: DataFrame) -> dict[str, int]:
    """Return the words and their counts."""
    return {row.w: row.n for row in frame.select("key.w", col("value.count").alias("n")).collect()}
