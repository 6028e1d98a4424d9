"""Checkpoints that are older than the table: numbers of micro-batches return, with the same or with other rows."""

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_client.sessions import jvm, stored
from support.running import Service
from tableside_client import Client
from tableside_spark import Table, progress
from tableside_spark.executor.task_client import Connection
from tableside_spark.write.query_memory import Content, MicroBatchChangedError, sequence_of

pytestmark = jvm("spark")

Write = Callable[[DataFrame, str], Any]
"""Starts and finishes a query that writes a stream, with a checkpoint."""


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


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def updated(table: Table) -> Write:
    def write(stream: DataFrame, checkpoint: str) -> Any:
        counting = table.update(stream, "k", {"$inc": {"count": lit(1)}}, default={"count": 0})
        return counting.start(checkpoint, availableNow=True)

    return write


def updated_in_foreach_batch(table: Table) -> Write:
    def write(stream: DataFrame, checkpoint: str) -> Any:
        def each(frame: DataFrame, number: int) -> None:
            table.update(frame, "k", {"$inc": {"count": lit(1)}}, default={"count": 0})

        return ended(stream.writeStream.foreachBatch(each), checkpoint)

    return write


def put(table: Table) -> Write:
    return lambda stream, checkpoint: table.put(stream, "k", columns=["n"], order_by="n", delete_when="gone").start(
        checkpoint, availableNow=True
    )


def set_members(table: Table) -> Write:
    update = {"$max": {"n": col("n")}, "$set": {"set": col("n")}}
    return lambda stream, checkpoint: table.update(stream, "k", update, default={}, order_by="n").start(
        checkpoint, availableNow=True
    )


def formatted(table: Table) -> Write:
    def write(stream: DataFrame, checkpoint: str) -> Any:
        writer = stream.select("k", "n").writeStream.format("tableside")
        return ended(writer.options(url=table.url, table=table.name, key="k"), checkpoint)

    return write


def ended(writer: DataStreamWriter, checkpoint: str) -> StreamingQuery:
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


UPDATES: dict[str, Callable[[Table], Write]] = {"update": updated, "foreachBatch": updated_in_foreach_batch}
PUTS: dict[str, Callable[[Table], Write]] = {"put": put, "format": formatted}


def run(write: Write, stream: DataFrame, checkpoint: Path) -> Any:
    query = write(stream, str(checkpoint))
    query.awaitTermination(120)
    assert not query.isActive
    return query


def with_backup(write: Write, source: Source, checkpoint: Path, *, files_max: int | None = 1) -> None:
    """Write three files, and restore the checkpoint as it was after the first."""
    source.add()
    run(write, source.read(files_max), checkpoint)
    backup = shutil.copytree(checkpoint, checkpoint.with_name("backup"))
    source.add(2)
    run(write, source.read(files_max), checkpoint)
    shutil.rmtree(checkpoint)
    shutil.move(backup, checkpoint)


def counts(files: int) -> dict[str, Any]:
    return {"a": {"count": files}, **{f"k{number}": {"count": 1} for number in range(files)}}


def newest(files: int) -> dict[str, Any]:
    return {"a": {"n": files - 1}, **{f"k{number}": {"n": number} for number in range(files)}}


@pytest.mark.parametrize("kind", UPDATES)
def test_the_same_micro_batches_after_a_restored_backup_count_once(
    kind: str, service: Service, source: Source, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = Table(f"returning_same_{kind}", service.url)
    write = UPDATES[kind](table)
    with_backup(write, source, checkpoint)
    source.add()
    with caplog.at_level(logging.WARNING):
        query = run(write, source.read(), checkpoint)
    assert stored(service, table.name) == counts(4)
    assert f"table {table.name}" in caplog.text
    assert "2 of 2 rows were ignored: applied before with this token" in caplog.text
    if kind == "update":
        assert [(batch.applied, batch.replayed) for batch in progress(query)] == [(0, 2), (0, 2), (2, 0)]


@pytest.mark.parametrize(("kind", "files_max", "then"), [("update", 2, 1), ("foreachBatch", 1, None)])
def test_updates_of_other_micro_batches_after_a_restored_backup_fail_and_count_nothing_twice(
    kind: str, files_max: int, then: int | None, service: Service, source: Source, checkpoint: Path
) -> None:
    table = Table(f"returning_{kind}_{files_max}_{then}", service.url)
    write = UPDATES[kind](table)
    with_backup(write, source, checkpoint, files_max=files_max)
    source.add()
    with pytest.raises(StreamingQueryException, match="micro-batch 1 was written before with other rows"):
        run(write, source.read(then), checkpoint)
    assert stored(service, table.name) == counts(3)


@pytest.mark.parametrize(("kind", "files_max", "then"), [("put", 2, 1), ("put", 1, None), ("format", 1, 1)])
def test_puts_after_a_restored_backup_store_the_newest_rows(
    kind: str, files_max: int, then: int | None, service: Service, source: Source, checkpoint: Path
) -> None:
    table = Table(f"returning_put_{kind}_{files_max}_{then}", service.url)
    write = PUTS[kind](table)
    with_backup(write, source, checkpoint, files_max=files_max)
    source.add()
    run(write, source.read(then), checkpoint)
    assert stored(service, table.name) == newest(4)


def test_a_checkpoint_with_only_its_metadata_ends_updates(service: Service, source: Source, checkpoint: Path) -> None:
    table = Table("only_metadata", service.url)
    source.add(2)
    run(updated(table), source.read(), checkpoint)
    for log in ("offsets", "commits"):
        shutil.rmtree(checkpoint / log)
    source.add()
    with pytest.raises(StreamingQueryException, match="micro-batch 0 was written before with other rows"):
        run(updated(table), source.read(), checkpoint)
    assert stored(service, table.name) == counts(2)


def test_idempotent_updates_after_a_restored_backup_are_applied_again(
    service: Service, source: Source, checkpoint: Path
) -> None:
    table = Table("returning_idempotent", service.url)
    write = set_members(table)
    with_backup(write, source, checkpoint)
    source.add()
    run(write, source.read(None), checkpoint)
    assert stored(service, table.name) == {
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
    kind: str, service: Service, source: Source, checkpoint: Path
) -> None:
    table = Table(f"lost_offsets_{kind}", service.url)
    write = PUTS[kind](table)
    source.add(2)
    run(write, source.read(), checkpoint)
    without_last(checkpoint, "offsets", "commits", "sources/0")
    (source.directory / "1.json").unlink()
    source.add()
    run(write, source.read(), checkpoint)
    assert stored(service, table.name) == newest(3)


def test_an_update_repeats_exactly_once_offsets_are_restored_from_the_table(
    service: Service, source: Source, checkpoint: Path
) -> None:
    table = Table("lost_offsets_update", service.url)
    write = updated(table)
    source.add(2)
    query = run(write, source.read(), checkpoint)
    last = without_last(checkpoint, "offsets", "commits")
    source.add()
    with pytest.raises(StreamingQueryException, match=f"store them as the file offsets/{last} of the checkpoint"):
        run(write, source.read(None), checkpoint)
    assert stored(service, table.name) == counts(2)
    without_last(checkpoint, "offsets")
    with Client(service.url) as client:
        remembered = client.table(f"{table.name}@runs").get(str(query.id))
    assert remembered is not None
    (checkpoint / "offsets" / str(last)).write_text(remembered["offsets"])
    run(write, source.read(None), checkpoint)
    assert stored(service, table.name) == counts(3)


def test_a_table_without_a_memory_warns_and_is_written(
    service: Service, source: Source, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
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
