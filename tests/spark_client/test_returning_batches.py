"""Checkpoints that are older than the table: numbers of micro-batches return, with the same or with other rows."""

import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_client.sessions import jvm, stored
from support.running import Service
from tableside_spark import Table, progress
from tableside_spark.executor.task_client import Connection
from tableside_spark.write.query_memory import (
    BATCH_NUMBERS,
    BATCHES_MAX,
    RUNS_MAX,
    Content,
    MicroBatchChangedError,
    QueryMemory,
    sequence_of,
)

pytestmark = jvm("spark")


class Source:
    """Files of a stream. Each is a micro-batch, unless `files_max` is higher. File `n` has two rows, with the keys `a`
    and the number of the file."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.files = 0
        directory.mkdir()

    def add(self, count: int = 1) -> None:
        for number in range(self.files, self.files + count):
            rows = [{"k": key, "n": number, "gone": False} for key in ("a", f"k{number}")]
            path = self.directory / f".{number}"
            path.write_text("\n".join(map(json.dumps, rows)))
            os.utime(path, (number, number))  # a stream reads files in this order
            path.rename(self.directory / f"{number}.json")
        self.files += count

    def read(self, files_max: int | None = 1) -> DataFrame:
        stream = self.spark.readStream.schema("k string, n long, gone boolean")
        return (stream if files_max is None else stream.option("maxFilesPerTrigger", files_max)).json(
            str(self.directory)
        )


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    return Source(spark, tmp_path / "events")


COUNT = {"$inc": {"count": 1}}
Start = Callable[[Table, DataFrame, str], Any]
"""Starts a query that writes a stream to a table, with a checkpoint."""


def updated(table: Table, stream: DataFrame, checkpoint: str) -> Any:
    return table.update(stream, "k", COUNT, default={"count": 0}).start(checkpoint, availableNow=True)


def updated_in_foreach_batch(table: Table, stream: DataFrame, checkpoint: str) -> Any:
    def each(frame: DataFrame, number: int) -> None:
        table.update(frame, "k", COUNT, default={"count": 0})

    return ended(stream.writeStream.foreachBatch(each), checkpoint)


def put(table: Table, stream: DataFrame, checkpoint: str) -> Any:
    writing = table.put(stream, "k", columns=["n"], order_by="n", delete_when="gone")
    return writing.start(checkpoint, availableNow=True)


def set_members(table: Table, stream: DataFrame, checkpoint: str) -> Any:
    update = {"$max": {"n": col("n")}, "$set": {"set": col("n")}}
    return table.update(stream, "k", update, default={}, order_by="n").start(checkpoint, availableNow=True)


def formatted(table: Table, stream: DataFrame, checkpoint: str) -> Any:
    writer = stream.select("k", "n").writeStream.format("tableside")
    return ended(writer.options(url=table.url, table=table.name, key="k"), checkpoint)


def ended(writer: DataStreamWriter, checkpoint: str) -> StreamingQuery:
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


STARTS: dict[str, Start] = {
    "update": updated,
    "foreachBatch": updated_in_foreach_batch,
    "put": put,
    "format": formatted,
}


class Written:
    """A table, and the query that writes files of the source to it."""

    def __init__(self, start: Start, table: Table, source: Source, checkpoint: Path) -> None:
        self.start, self.table, self.source, self.checkpoint = start, table, source, checkpoint

    def run(self, files_max: int | None = 1) -> Any:
        query = self.start(self.table, self.source.read(files_max), str(self.checkpoint))
        query.awaitTermination(120)
        assert not query.isActive
        return query

    def run_with_backup(self, files_max: int = 1) -> None:
        """Write three files, restore the checkpoint as it was after the first, and add a file."""
        self.source.add()
        self.run(files_max)
        backup = shutil.copytree(self.checkpoint, self.checkpoint.with_name("backup"))
        self.source.add(2)
        self.run(files_max)
        shutil.rmtree(self.checkpoint)
        shutil.move(backup, self.checkpoint)
        self.source.add()


@pytest.fixture
def written(service: Service, source: Source, tmp_path: Path) -> Callable[..., Written]:
    """A function that returns a query of this kind on a table of its own."""
    name = f"returning_{uuid.uuid4().hex}"
    return lambda start: Written(start, Table(name, service.url), source, tmp_path / "checkpoint")


def counts(files: int) -> dict[str, Any]:
    return {"a": {"count": files}, **{f"k{number}": {"count": 1} for number in range(files)}}


def newest(files: int) -> dict[str, Any]:
    return {"a": {"n": files - 1}, **{f"k{number}": {"n": number} for number in range(files)}}


@pytest.mark.parametrize("kind", ["update", "foreachBatch"])
def test_the_same_micro_batches_after_a_restored_backup_count_once(
    kind: str, service: Service, written: Callable[..., Written], caplog: pytest.LogCaptureFixture
) -> None:
    query = written(STARTS[kind])
    query.run_with_backup()
    with caplog.at_level(logging.WARNING):
        done = query.run()
    assert stored(service, query.table.name) == counts(4)
    assert "2 of 2 rows were ignored: applied before with this token" in caplog.text
    if kind == "update":
        assert [(batch.applied, batch.replayed) for batch in progress(done)] == [(0, 2), (0, 2), (2, 0)]


@pytest.mark.parametrize(("kind", "files_max", "then"), [("update", 2, 1), ("foreachBatch", 1, None)])
def test_updates_of_other_micro_batches_after_a_restored_backup_fail_and_count_nothing_twice(
    kind: str, files_max: int, then: int | None, service: Service, written: Callable[..., Written]
) -> None:
    query = written(STARTS[kind])
    query.run_with_backup(files_max)
    with pytest.raises(StreamingQueryException, match="micro-batch 1 was written before with other rows"):
        query.run(then)
    assert stored(service, query.table.name) == counts(3)


@pytest.mark.parametrize(("kind", "then"), [("put", None), ("format", 1)])
def test_puts_after_a_restored_backup_store_the_newest_rows(
    kind: str, then: int | None, service: Service, written: Callable[..., Written]
) -> None:
    query = written(STARTS[kind])
    query.run_with_backup()
    query.run(then)
    assert stored(service, query.table.name) == newest(4)


def test_idempotent_updates_after_a_restored_backup_are_applied_again(
    service: Service, written: Callable[..., Written]
) -> None:
    query = written(set_members)
    query.run_with_backup()
    query.run(None)
    assert stored(service, query.table.name) == {
        key: {"n": n, "set": n} for key, n in {"a": 3, "k0": 0, "k1": 1, "k2": 2, "k3": 3}.items()
    }


def without_last(checkpoint: Path, *logs: str) -> int:
    """Delete the newest entry of logs of the checkpoint, and return its number."""
    last = max(int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*"))
    for log in logs:
        (checkpoint / log / str(last)).unlink(missing_ok=True)
        (checkpoint / log / f".{last}.crc").unlink(missing_ok=True)
    return last


@pytest.mark.parametrize("kind", ["put", "format"])
def test_puts_after_the_newest_offsets_were_deleted_store_the_newest_rows(
    kind: str, service: Service, written: Callable[..., Written], source: Source
) -> None:
    query = written(STARTS[kind])
    source.add(2)
    query.run()
    without_last(query.checkpoint, "offsets", "commits", "sources/0")
    (source.directory / "1.json").unlink()
    source.add()
    query.run()
    assert stored(service, query.table.name) == newest(3)


def test_an_update_repeats_exactly_once_offsets_are_restored_from_the_table(
    service: Service, written: Callable[..., Written], source: Source
) -> None:
    query = written(updated)
    source.add(2)
    done = query.run()
    last = without_last(query.checkpoint, "offsets", "commits")
    source.add()
    with pytest.raises(StreamingQueryException, match=f"store them as the file offsets/{last} of the checkpoint"):
        query.run(None)
    assert stored(service, query.table.name) == counts(2)
    without_last(query.checkpoint, "offsets")
    remembered = stored(service, f"{query.table.name}@runs")[str(done.id)]
    (query.checkpoint / "offsets" / str(last)).write_text(remembered["offsets"])
    query.run(None)
    assert stored(service, query.table.name) == counts(3)


def test_a_table_without_a_memory_warns_and_is_written(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """A table whose companion cannot be opened: its name in PostgreSQL or DynamoDB would need another table."""
    with caplog.at_level(logging.WARNING):
        assert sequence_of(Connection(service.url), "not a name", "q", 7, Content("digest"), harmless=False) == 7
    assert "table not a name remembers no streaming queries" in caplog.text


def test_a_row_of_a_late_task_does_not_replace_a_newer_one(service: Service) -> None:
    """Tasks of two runs of a query, as the format sends them."""

    def begin(run: str, number: int) -> int:
        content = Content(digest=run, run=run)
        return sequence_of(Connection(service.url), "late_tasks", "q", number, content, harmless=True)

    assert [begin("one", 0), begin("one", 1), begin("one", 1)] == [0, 1, 1]
    again = begin("two", 1)
    assert again > 1
    with pytest.raises(MicroBatchChangedError, match="this task is late"):
        begin("one", 1)
    assert begin("two", 2) == again + 1


# The memory of a query decides whether a micro-batch is repeated, or a number that returns.


def remembered(*digests: str) -> QueryMemory:
    memory = QueryMemory()
    for number, digest in enumerate(digests):
        memory = memory.begin(number, Content(digest))
    return memory


@pytest.mark.parametrize(
    ("number", "digest", "repeats"), [(0, "a", True), (1, "b", True), (0, "b", False), (1, "c", False), (0, "", False)]
)
def test_a_number_with_the_same_content_is_a_repetition(number: int, digest: str, repeats: bool) -> None:
    assert remembered("a", "b").repeats(number, digest) == repeats


@pytest.mark.parametrize(("before", "digest"), [("", "b"), ("b", ""), ("", "")])
def test_without_a_digest_the_latest_number_is_a_repetition(before: str, digest: str) -> None:
    assert remembered("a", before).repeats(1, digest)


def test_a_returning_number_begins_an_epoch_and_forgets_later_ones() -> None:
    memory = remembered("a", "b", "c").begin(1, Content("d"))
    assert (memory.epoch, memory.digests) == (1, {0: "a", 1: "d"})
    assert memory.sequence(1) == BATCH_NUMBERS + 1 > remembered("a", "b", "c").sequence(2)


def test_an_old_micro_batch_is_forgotten() -> None:
    memory = remembered(*map(str, range(BATCHES_MAX + 1)))
    assert (min(memory.digests), len(memory.digests)) == (1, BATCHES_MAX)
    assert not memory.repeats(0, "0")


def test_the_latest_runs_are_remembered_in_order() -> None:
    memory = QueryMemory()
    for number in range(RUNS_MAX + 2):
        memory = memory.begin(number, Content(run=f"run {number}")).begin(number + 1, Content(run=f"run {number}"))
    assert memory.runs == tuple(f"run {number}" for number in range(2, RUNS_MAX + 2))
