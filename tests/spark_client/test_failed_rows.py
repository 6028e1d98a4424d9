"""Failures of Spark writes: every failed row is one failure, with any key and any number of rows."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import (
    Column,
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit

from spark_client.sessions import jvm, stored
from spark_client.test_streams import finished, uncommitted
from support.running import Service
from tableside_spark import Table, TableWriteError, progress
from tableside_spark.plan import grouping
from tableside_spark.write.job import LETTER_TEXT_CHARACTERS_MAX

pytestmark = jvm("spark")

NAN = float("nan")


def failing(rows: DataFrame, refused_key: Column) -> DataFrame:
    """Return rows. Seven in ten fail: by a null key (many of them equal), a NaN, or the service's refusal."""
    last = col("id") % 10
    key = F.when(last < 2, None).when(last < 4, lit("nan")).when(last < 7, refused_key)
    return rows.select(
        key.otherwise(F.concat(lit("k"), (col("id") % 1_000).cast("string"))).alias("k"),
        F.when(last < 2, F.floor(col("id") / 100)).otherwise(col("id")).alias("n"),
        F.when((last >= 2) & (last < 4), NAN).otherwise(1.0).alias("f"),
    )


def expected_failures(count: int) -> Counter[int]:
    return Counter(at // 100 if at % 10 < 2 else at for at in range(count) if at % 10 < 7)


@pytest.mark.parametrize("verb", ["put", "update"])
def test_a_stream_writes_one_dead_letter_for_every_failed_row(
    spark: SparkSession, service: Service, tmp_path: Path, verb: str
) -> None:
    count = 1_000
    table, letters = Table(f"failed_{verb}", service.url), Table(f"failed_{verb}_letters", service.url)
    texts = F.concat(lit("text"), (col("id") % 100).cast("string"))
    table.put(spark.range(100).select(texts.alias("k"), lit("text").alias("n")), "k")
    source = failing(spark.range(count), lit("") if verb == "put" else texts)
    source.repartition(2).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(source.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    if verb == "put":
        writing = table.put(stream, "k", on_error=letters)
    else:
        update = {"$inc": {"n": col("n")}, "$max": {"f": col("f")}, "$addToSet": {"seen": col("n") % 5}}
        writing = table.update(stream, "k", update, default={"n": 0}, on_error=letters)
    query = finished(writing.start(str(tmp_path / "checkpoint"), availableNow=True))
    assert query.exception() is None
    summaries = progress(query)
    assert len(summaries) == 2
    assert sum(summary.failed for summary in summaries) == count * 7 // 10
    kept = stored(service, letters.name)
    assert len(kept) == count * 7 // 10
    assert Counter(map(number_of, kept.values())) == expected_failures(count)
    assert {letter["writer"] for letter in kept.values()} == {str(query.id)}
    assert {letter["sequence"] for letter in kept.values()} == {0, 1}
    uncommitted(tmp_path / "checkpoint")
    finished(writing.start(str(tmp_path / "checkpoint"), availableNow=True))
    assert stored(service, letters.name) == kept


def number_of(letter: dict[str, Any]) -> int:
    """Return the number of the row that a dead letter contains."""
    if letter["op"] == "put":
        return int(json.loads(letter["value"])["n"])
    return int(json.loads(letter["update"])["$inc"]["n"])


def test_a_dead_letter_has_the_row_the_reason_and_its_origin(spark: SparkSession, service: Service) -> None:
    letters = Table("failed_letter", service.url)
    frame = spark.createDataFrame([(None, 1, "x"), (None, 1, "x"), (None, 1, "y")], "k string, i int, v string")
    Table("failed_origin", service.url).put(frame, ["k"], token=("nightly", 3), on_error=letters)
    kept = stored(service, letters.name)
    assert len(kept) == 3
    assert sorted(key.rpartition("-")[2] for key in kept) == ["1", "1", "2"]
    one = next(letter for letter in kept.values() if "y" in letter["value"])
    assert one.pop("time")[-1] == "Z"
    assert one == {
        "table": "failed_origin", "op": "put", "key": '{"k":null}', "value": '{"i":1,"v":"y"}', "rows": 1,
        "code": "invalid_operation", "detail": "key column k is null", "writer": "nightly", "sequence": 3,
        "truncated": False,
    }  # fmt: skip


def test_a_row_that_is_too_large_is_truncated_in_its_dead_letter_and_others_succeed(
    spark: SparkSession, service: Service
) -> None:
    table, letters = Table("failed_large", service.url), Table("failed_large_letters", service.url)
    large = F.when(col("id") == 3, F.repeat(lit("x"), 17 * 2**20)).otherwise(lit("small"))
    frame = spark.range(6).coalesce(1).select(F.concat(lit("k"), "id").alias("k"), large.alias("v"))
    summary = table.put(frame, "k", on_error=letters)
    assert (summary.applied, summary.failed) == (5, 1)
    assert stored(service, table.name).keys() == {f"k{at}" for at in (0, 1, 2, 4, 5)}
    [letter] = stored(service, letters.name).values()
    assert (letter["code"], letter["truncated"], letter["key"]) == ("too_large", True, '{"k":"k3"}')
    assert letter["value"] == ('{"v":"' + "x" * LETTER_TEXT_CHARACTERS_MAX)[:LETTER_TEXT_CHARACTERS_MAX]


@pytest.mark.parametrize("fold", [True, False])
def test_every_row_of_a_rejected_key_is_a_failure_with_its_document(
    spark: SparkSession, service: Service, fold: bool
) -> None:
    table = Table(f"failed_key_{fold}", service.url)
    table.put(spark.createDataFrame([("a", "text"), ("b", "1")], "k string, n string"), "k", nulls="omit")
    rows = [("a", 1), ("a", 2), ("a", 2), (None, 5), (None, 5), ("c", 7)]
    frame = spark.createDataFrame(rows, "k string, n int")
    summary = table.update(frame, "k", {"$inc": {"n": col("n")}}, default={}, fold=fold, on_error="collect")
    assert (summary.applied, summary.failed) == (1, 5)
    assert summary.failures is not None
    found = Counter((row.k, row.update, row.rows, row.code) for row in summary.failures.collect())
    assert found == Counter((key, f'{{"$inc":{{"n":{n}}}}}', 1, "invalid_operation") for key, n in rows if key != "c")


def test_a_text_that_is_not_valid_utf8_fails_its_row_alone(spark: SparkSession, service: Service) -> None:
    table = Table("failed_utf8", service.url)
    invalid, key = F.unhex(lit("ff")).cast("string"), F.concat(lit("k"), "id")
    frame = (
        spark.range(6)
        .coalesce(1)
        .select(
            F.when(col("id") == 3, invalid).otherwise(key).alias("k"),
            F.when(col("id") == 4, invalid).otherwise(lit('{"n": 1}')).alias("v"),
        )
    )
    summary = table.put(frame, "k", value="v", on_error="collect")
    assert (summary.applied, summary.failed) == (4, 2)
    assert summary.failures is not None
    found = {(row.k, row.code, row.detail) for row in summary.failures.collect()}
    assert found == {
        ("\ufffd", "invalid_operation", "key column k is not valid UTF-8"),
        ("k4", "invalid_operation", "the value is not valid UTF-8"),
    }
    assert stored(service, table.name).keys() == {"k0", "k1", "k2", "k5"}
    with pytest.raises(TableWriteError, match=r"1 row failed with invalid_operation.*key column k is not valid UTF-8"):
        table.delete(frame, "k")


def test_a_failed_part_fails_the_rows_after_it_and_no_others(
    spark: SparkSession, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "PART_ROWS_MAX", 10)
    table = Table("failed_part", service.url)
    texts = F.when((col("k") == "0") & (col("at") == 25), '{"$inc": {"list": 1}}').otherwise('{"$inc": {"n": 1}}')
    frame = spark.range(100).select((col("id") % 2).cast("string").alias("k"), F.floor(col("id") / 2).alias("at"))
    for expected in ((100 - 30, 0), (0, 100 - 30)):
        summary = table.update(
            frame, "k", texts, default={"n": 0, "list": []}, order_by="at", token="once", on_error="collect"
        )
        assert (summary.applied, summary.replayed, summary.failed) == (*expected, 30)
        assert summary.failures is not None
        assert {row.k for row in summary.failures.collect()} == {"0"}
        assert stored(service, table.name) == {"0": {"n": 20, "list": []}, "1": {"n": 50, "list": []}}


def test_an_error_counts_failures_by_code_and_names_the_first_key(spark: SparkSession, service: Service) -> None:
    table = Table("failed_codes", service.url)
    table.put(spark.createDataFrame([("t", "text")], "k string, n string"), "k")
    frame = spark.createDataFrame([("x", 1), ("x", 2), ("x", 3), ("t", 1), ("t", 2)], "k string, n int").coalesce(1)
    with pytest.raises(TableWriteError) as caught:
        table.update(frame, "k", {"$inc": {"n": col("n")}}, token="codes/1")
    error = caught.value
    assert error.counts == {"record_not_found": 3, "invalid_operation": 2}
    assert (error.code, error.key, error.alike, error.failed) == ("record_not_found", '"x"', 3, 5)
    start = (
        'table failed_codes: 3 rows failed with record_not_found, 2 with invalid_operation; the first has the key "x":'
    )
    assert str(error).startswith(start)
    assert "token=" not in str(error)


def test_the_error_of_an_update_without_a_token_explains_safe_reruns(spark: SparkSession, service: Service) -> None:
    table = Table("failed_rerun", service.url)
    table.put(spark.createDataFrame([("a", 1)], "k string, n int"), "k")
    frame = spark.createDataFrame([("a", 1), ("b", 1)], "k string, n int").coalesce(1)
    advice = r"Part of the write may have been applied: 1 rows were applied, 0 were not sent\. .*token="
    with pytest.raises(TableWriteError, match=advice):
        table.update(frame, "k", {"$inc": {"n": col("n")}})
    keyless = frame.withColumn("k", lit(None).cast("string"))
    with pytest.raises(TableWriteError, match=advice.replace("1 rows", "0 rows")):
        table.delete(keyless, "k")
    with pytest.raises(TableWriteError) as without:
        table.put(keyless, "k")
    assert "token=" not in str(without.value)
    broken = frame.withColumn("n", F.raise_error(lit("broken")).cast("int"))
    with pytest.raises(Exception, match="broken") as other:
        table.update(broken, "k", {"$inc": {"n": col("n")}})
    assert "token=" in "".join(other.value.__notes__)
