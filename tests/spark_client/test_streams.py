"""Streaming frames written to tables: every change counts once, in spite of repeated work."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit
from pyspark.sql.streaming.query import StreamingQuery
from redis import Redis

from servers.redis import redis
from spark_client.sessions import jvm, stored
from support.running import Service, running
from tableside_client import Client
from tableside_spark import Table, TableError, progress
from tableside_spark.write import tokens

pytestmark = jvm("spark")

FILES, ROWS, KEYS = 2, 200, 20


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """Files of events, one per micro-batch: key, number, and the operation of a change stream."""
    directory = tmp_path / "events"
    directory.mkdir()
    for file in range(FILES):
        rows = [{"k": f"k{at % KEYS}", "n": file * ROWS + at, "op": "cud"[at % 3]} for at in range(ROWS)]
        path = directory / f"{file}.json"
        path.write_text("\n".join(json.dumps(row) for row in rows))
        os.utime(path, (file, file))  # a stream reads files in this order
    return directory


def reading(spark: SparkSession, events: Path) -> DataFrame:
    stream = spark.readStream.schema("k string, n long, op string").option("maxFilesPerTrigger", 1)
    return stream.json(str(events))


def finished(query: StreamingQuery, timeout_s: int = 120) -> StreamingQuery:
    query.awaitTermination(timeout_s)
    assert not query.isActive
    return query


def sums(times: int = 1) -> dict[str, dict[str, int]]:
    """Return the expected content of the table when every event counts this many times."""
    found: dict[str, dict[str, int]] = {}
    for n in range(FILES * ROWS):
        record = found.setdefault(f"k{n % ROWS % KEYS}", {"count": 0, "sum": 0, "max": n})
        record["count"] += times
        record["sum"] += n * times
        record["max"] = max(record["max"], n)
    return found


def counted() -> dict[str, Any]:
    """Return the update that counts an event."""
    return {"$inc": {"count": lit(1), "sum": col("n")}, "$max": {"max": col("n")}}


ZERO = {"count": 0, "sum": 0}


def uncommitted(checkpoint: Path) -> None:
    """Remove the commit of the query's last micro-batch, so that it runs again."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("fold", [True, False])
def test_an_update_counts_once_over_repeated_micro_batches_and_restarts(
    spark: SparkSession, service: Service, events: Path, tmp_path: Path, fold: bool
) -> None:
    table = Table(f"stream_update_{fold}", service.url)
    counting = table.update(reading(spark, events), "k", counted(), default=ZERO, fold=fold)
    checkpoint = tmp_path / "checkpoint"
    assert repr(counting).startswith(f"<update of table {table.name} by k; not started: call start(")
    query = finished(counting.start(str(checkpoint), availableNow=True))
    assert stored(service, table.name) == sums()
    done = progress(query)
    assert [(batch.batch_id, batch.operations, batch.applied) for batch in done] == [
        (number, KEYS, ROWS) for number in range(FILES)
    ]
    assert (table.stats.writes, table.stats.applied) == (FILES, FILES * ROWS)
    uncommitted(checkpoint)
    again = finished(counting.start(str(checkpoint), availableNow=True))
    assert [(batch.batch_id, batch.applied, batch.replayed) for batch in progress(again)] == [(FILES - 1, 0, ROWS)]
    assert stored(service, table.name) == sums()


def test_the_progress_of_the_query_counts_rows_and_rejected_rows(
    spark: SparkSession, service: Service, events: Path, tmp_path: Path
) -> None:
    handed: list[tuple[int | None, list[Any]]] = []
    stream = reading(spark, events).withColumn("k", F.when(col("n") % 100 != 7, col("k")))
    counting = Table("stream_progress", service.url).update(
        stream, "k", counted(), default=ZERO, on_error=lambda failed, batch: handed.append((batch, failed.collect()))
    )
    query = finished(counting.start(str(tmp_path / "checkpoint"), query_name="counting", availableNow=True))
    observed = [each["observedMetrics"]["tableside_stream_progress"] for each in query.recentProgress]
    assert [(each.rows, each.refused) for each in observed] == [(ROWS, 2)] * FILES
    assert [(batch.applied, batch.failed) for batch in progress(query)] == [(ROWS - 2, 2)] * FILES
    assert [batch for batch, _ in handed] == [*range(FILES)]
    reasons = [(row.k, row.rows, row.code, row.detail) for row in handed[0][1]]
    assert reasons == [(None, 1, "invalid_operation", "key column k is null")] * 2


@pytest.mark.parametrize(("verb", "fold"), [("put", True), ("update", True), ("update", False)])
def test_a_stream_of_changes_is_one_write(
    spark: SparkSession, service: Service, events: Path, tmp_path: Path, verb: str, fold: bool
) -> None:
    table = Table(f"stream_changes_{verb}_{fold}", service.url)
    changes = reading(spark, events)
    gone = col("op") == "d"
    if verb == "put":
        writing = table.put(changes, "k", columns=["n"], order_by="n", delete_when=gone)
    else:
        update = {"$inc": {"count": lit(1)}, "$push": {"seen": col("n")}, "$set": {"last": col("n")}}
        writing = table.update(changes, "k", update, default=ZERO, order_by="n", delete_when=gone, fold=fold)
    expected: dict[str, dict[str, Any]] = {}
    for n in range(FILES * ROWS):
        key, op = f"k{n % ROWS % KEYS}", "cud"[n % ROWS % 3]
        if op == "d":
            expected.pop(key, None)
        elif verb == "put":
            expected[key] = {"n": n}
        else:
            record = expected.setdefault(key, {"count": 0, "sum": 0, "seen": []})
            record["count"] += 1
            record["seen"].append(n)
            record["last"] = n
    query = finished(writing.start(str(tmp_path / "checkpoint"), availableNow=True))
    assert stored(service, table.name) == expected
    assert [batch.applied for batch in progress(query)] == [ROWS] * FILES
    uncommitted(tmp_path / "checkpoint")
    finished(writing.start(str(tmp_path / "checkpoint"), availableNow=True))
    assert stored(service, table.name) == expected


def test_a_failure_fails_the_query_and_names_it(
    spark: SparkSession, service: Service, events: Path, tmp_path: Path
) -> None:
    updating = Table("stream_absent", service.url).update(reading(spark, events), "k", counted())
    with pytest.raises(StreamingQueryException, match=r"table stream_absent: .* rows failed.*(record|table)_not_found"):
        finished(updating.start(str(tmp_path / "checkpoint"), availableNow=True))


def test_dead_letters_contain_the_row_and_the_reason_once(
    spark: SparkSession, service: Service, events: Path, tmp_path: Path
) -> None:
    table, letters = Table("stream_partly", service.url), Table("stream_letters", service.url)
    table.put(spark.range(KEYS // 2).select(F.concat(lit("k"), "id").alias("k"), lit("text").alias("count")), "k")
    updating = table.update(reading(spark, events), "k", {"$inc": {"count": lit(1)}}, default=ZERO, on_error=letters)
    query = finished(updating.start(str(tmp_path / "checkpoint"), availableNow=True))
    before = stored(service, "stream_letters")
    kept = list(before.values())
    assert sorted((letter["sequence"], json.loads(letter["key"])["k"]) for letter in kept) == sorted(
        (batch, f"k{number}") for batch in range(FILES) for number in range(KEYS // 2) for _ in range(ROWS // KEYS)
    )
    one = kept[0]
    assert (one["table"], one["op"], one["code"], one["rows"]) == ("stream_partly", "update", "invalid_operation", 1)
    assert (one["writer"], json.loads(one["update"])) == (str(query.id), {"$inc": {"count": 1}})
    assert {record["count"] for record in stored(service, "stream_partly").values()} == {"text", FILES * ROWS // KEYS}
    uncommitted(tmp_path / "checkpoint")
    finished(updating.start(str(tmp_path / "checkpoint"), availableNow=True))
    assert stored(service, "stream_letters") == before


def test_an_unreachable_service_causes_no_dead_letters(
    spark: SparkSession, service: Service, events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tableside_client.retries import Retries

    table = Table("stream_away", service.url, retries=Retries(attempts_max=1))
    handed: list[int | None] = []
    updating = table.update(
        reading(spark, events), "k", counted(), default=ZERO, on_error=lambda failed, batch: handed.append(batch)
    )
    object.__setattr__(updating.write.spec.connection, "url", "http://127.0.0.1:9")
    monkeypatch.setattr(tokens, "sequence_of", lambda *_, **__: 0)  # Otherwise the driver fails before the tasks.
    with pytest.raises(StreamingQueryException, match="service_unreachable"):
        finished(updating.start(str(tmp_path / "checkpoint"), availableNow=True))
    assert handed == []


def in_each_batch(
    spark: SparkSession, events: Path, checkpoint: Path, write: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    writer = reading(spark, events).writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    return finished(writer.trigger(availableNow=True).start())


def test_inside_foreach_batch_several_tables_have_the_token_of_the_query(
    spark: SparkSession, service: Service, events: Path, tmp_path: Path
) -> None:
    counts, latest = Table("batch_counts", service.url), Table("batch_latest", service.url)
    replayed: list[int] = []

    def write(frame: DataFrame, number: int) -> None:
        replayed.append(counts.update(frame, "k", counted(), default=ZERO).replayed)
        thread = InheritableThread(lambda: replayed.append(latest.put(frame, "k", order_by="n").replayed))
        thread.start()
        thread.join()

    query = in_each_batch(spark, events, tmp_path / "checkpoint", write)
    assert replayed == [0] * 2 * FILES
    uncommitted(tmp_path / "checkpoint")
    in_each_batch(spark, events, tmp_path / "checkpoint", write)
    assert replayed[2 * FILES :] == [ROWS, ROWS]
    assert stored(service, "batch_counts") == sums()
    with Client(service.url) as client:
        assert client.table("batch_latest").put("k1", {}, token=(str(query.id), FILES - 1)).replayed


def refused_inside(spark: SparkSession, events: Path, checkpoint: Path, write: Callable[[DataFrame, int], None]) -> str:
    with pytest.raises(StreamingQueryException) as refused:
        in_each_batch(spark, events, checkpoint, write)
    return str(refused.value)


def test_a_write_without_a_safe_token_is_rejected(
    spark: SparkSession, service: Service, events: Path, tmp_path: Path
) -> None:
    table = Table("batch_refused", service.url)
    errors: list[str] = []

    def update(frame: DataFrame, **how: Any) -> None:
        try:
            table.update(frame, "k", counted(), default=ZERO, **how)
        except ValueError as error:
            errors.append(str(error))

    def in_a_thread(frame: DataFrame, number: int, **how: Any) -> None:
        thread = threading.Thread(target=update, args=(frame,), kwargs=how)
        thread.start()
        thread.join()

    in_each_batch(spark, events, tmp_path / "1", in_a_thread)
    assert len(errors) == FILES
    assert "a thread started in foreachBatch does not have the query's id" in errors[0]
    with pytest.raises(TableError):
        stored(service, table.name)
    in_each_batch(spark, events, tmp_path / "2", lambda frame, at: in_a_thread(frame, at, token=("mine", at)))
    assert (len(errors), stored(service, table.name)) == (FILES, sums())
    in_each_batch(spark, events, tmp_path / "3", lambda frame, at: in_a_thread(frame, at, at_least_once=True))
    assert stored(service, table.name) == sums(2)


def test_a_second_write_to_a_table_in_one_micro_batch_requires_a_separate_token(
    spark: SparkSession, service: Service, events: Path, tmp_path: Path
) -> None:
    table = Table("batch_second", service.url)

    def twice(frame: DataFrame, number: int) -> None:
        table.update(frame, "k", counted(), default=ZERO)
        table.update(frame, "k", counted(), default=ZERO)

    def with_separate_token(frame: DataFrame, number: int) -> None:
        table.update(frame, "k", counted(), default=ZERO)
        table.update(frame, "k", counted(), default=ZERO, token=("second", number))

    assert "written a second time in micro-batch 0" in refused_inside(spark, events, tmp_path / "1", twice)
    table.delete(spark.createDataFrame([(f"k{at}",) for at in range(KEYS)], "k string"), "k")
    in_each_batch(spark, events, tmp_path / "2", with_separate_token)
    assert stored(service, table.name) == sums(2)


def test_unsupported_options_of_a_stream_are_rejected_before_it_starts(
    spark: SparkSession, service: Service, events: Path, tmp_path: Path
) -> None:
    table, stream = Table("stream_refused", service.url), reading(spark, events)
    counting = table.update(stream, "k", counted())
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: counting.start("c", output_mode="complete"), "Write them inside foreachBatch"),
        (lambda: counting.start("c", continuous="1 second"), "trigger 'continuous' is not supported"),
        (lambda: table.update(stream, "k", counted(), token="t"), "has the token of its query"),
        (lambda: table.put(stream, "k", on_error="collect"), "cannot collect failures"),
    ]
    for refused, match in refusals:
        with pytest.raises(ValueError, match=match):
            refused()


# `writeStream.format("tableside")`: rows of a stream are put once. Within a task, a key's last row wins.


def put_by_format(
    frame: DataFrame, service: Service, table: str, checkpoint: Path, mode: str = "append", **more: str
) -> None:
    options = {"url": service.url, "table": table, "key": "k", "checkpointLocation": str(checkpoint), **more}
    writer = frame.writeStream.format("tableside").options(**options).outputMode(mode)
    writer.trigger(availableNow=True).start().awaitTermination(120)


def test_the_last_row_of_a_key_wins_and_late_tasks_change_nothing(
    spark: SparkSession, service: Service, tmp_path: Path
) -> None:
    """There are more keys than a chunk has rows. A key occurs in several chunks of a task, and twice in one of them."""
    (tmp_path / "many").mkdir()
    numbers = [*range(5_500), *range(5_490, 5_500)]
    for file in range(2):
        rows = [{"k": f"k{n % 5_100}", "n": file * 100_000 + at} for at, n in enumerate(numbers)]
        (tmp_path / "many" / f"{file}.json").write_text("\n".join(map(json.dumps, rows)))
        os.utime(tmp_path / "many" / f"{file}.json", (file, file))
    checkpoint = tmp_path / "checkpoint"
    put_by_format(reading(spark, tmp_path / "many").drop("op"), service, "format_stream", checkpoint)
    expected = {f"k{n % 5_100}": {"n": 100_000 + at} for at, n in enumerate(numbers)}
    assert stored(service, "format_stream") == expected
    writer = json.loads((checkpoint / "metadata").read_text().splitlines()[-1])["id"]
    with Client(service.url) as client:
        late = client.table("format_stream").put("k1", {"n": -1}, token=(writer, 2**20 - 1))
    assert late.replayed
    assert stored(service, "format_stream") == expected


def test_unsupported_options_of_the_format_are_rejected(
    spark: SparkSession, service: Service, events: Path, tmp_path: Path
) -> None:
    frame = reading(spark, events)
    refusals: list[tuple[DataFrame, str, dict[str, str], str]] = [
        (frame.groupBy("k").count(), "update", {}, "does not support Update mode"),
        (frame, "append", {"at_least_once": "perhaps"}, "is true or false"),
        (frame, "append", {"token": "secret"}, "the option token is rejected"),
    ]
    for at, (rows, mode, more, match) in enumerate(refusals):
        with pytest.raises(Exception, match=match):
            put_by_format(rows, service, "format_refused", tmp_path / str(at), mode, **more)


@pytest.fixture(scope="module")
def evicting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service on a Redis whose eviction policy may remove tokens."""
    directory = tmp_path_factory.mktemp("evicting")
    with redis(directory) as url:
        with Redis.from_url(url) as connection:
            connection.config_set("maxmemory-policy", "allkeys-lru")
        config = {"stores": {"redis": {"kind": "redis", "url": url}}, "tables": {"plain": {"store": "redis"}}}
        (directory / "tableside.yaml").write_text(json.dumps(config))
        with running(directory, directory / "tableside.yaml") as service:
            yield service


def test_a_table_without_tokens_requires_that_duplicates_are_accepted(
    spark: SparkSession, evicting: Service, events: Path, tmp_path: Path
) -> None:
    table, stream = Table("plain", evicting.url), reading(spark, events)
    with pytest.raises(ValueError, match="table plain keeps no tokens"):
        table.update(stream, "k", counted(), default=ZERO)
    with pytest.raises(StreamingQueryException, match="table plain keeps no tokens"):
        in_each_batch(spark, events, tmp_path / "each", lambda batch, _: table.put(batch, "k"))
    with pytest.raises(Exception, match="table plain keeps no tokens"):
        put_by_format(stream, evicting, "plain", tmp_path / "format")
    assert stored(evicting, "plain") == {}
    anyway = table.update(stream, "k", counted(), default=ZERO, at_least_once=True)
    finished(anyway.start(str(tmp_path / "anyway"), availableNow=True))
    assert stored(evicting, "plain") == sums()
