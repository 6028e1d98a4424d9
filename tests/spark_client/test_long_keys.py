"""Many rows on one key: every operator applies them in order and once, also after an interruption."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit

from spark_client.sessions import jvm, stored
from support.running import Service
from tableside_spark import Table, WriteSummary
from tableside_spark.executor.write_task import WriteTask
from tableside_spark.plan import grouping
from tableside_spark.write import job

pytestmark = jvm("spark")

PART_ROWS = 20
"""The size of a part in a test that does not run at full size."""


@dataclass(frozen=True)
class Interrupted:
    """A `WriteTask` that fails after the first chunks, and so between two parts of a key."""

    sending: WriteTask
    chunks: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send the first chunks, then fail."""
        for number, outcome in enumerate(self.sending(batches), start=1):
            yield outcome
            if number == self.chunks:
                raise RuntimeError("interrupted between two parts")


@dataclass(frozen=True)
class Size:
    """The number of rows, and the number of rows in a part."""

    rows: int
    part: int


@pytest.fixture
def size(full: bool, monkeypatch: pytest.MonkeyPatch) -> Size:
    if full:
        return Size(5_000_000, grouping.PART_ROWS_MAX)
    monkeypatch.setattr(grouping, "PART_ROWS_MAX", PART_ROWS)
    return Size(110, PART_ROWS)


def rows_of_one_key(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).select(lit("k").alias("k"), col("id").alias("n"))


def interrupt(monkeypatch: pytest.MonkeyPatch, write: Callable[[], Any], chunks: int) -> None:
    """Run a write that is stopped between two parts of its key."""
    register: Any = cloudpickle.register_pickle_by_value
    register(sys.modules[__name__])
    with monkeypatch.context() as patched:
        patched.setattr(job, "WriteTask", lambda *given, **named: Interrupted(WriteTask(*given, **named), chunks))
        with pytest.raises(Exception, match="interrupted between two parts"):
            write()


def counts(summary: WriteSummary) -> tuple[int, int, int]:
    return summary.applied, summary.replayed, summary.failed


def every_operator(count: int) -> dict[str, Any]:
    return {
        "$inc": {"n": lit(1), "a": col("n") / 7},
        "$set": {"size": col("n")},
        "$unset": ["made"],
        "$min": {"b": -col("n")},
        "$max": {"c": col("n")},
        "$push": {"d": F.when(col("n") % (count // 10) == 0, col("n"))},
        "$addToSet": {"#x": col("n") % 5},
    }


def added(count: int) -> float:
    total = 0.0
    for n in range(count):
        total += n / 7
    return total


def result_of_every_operator(count: int) -> dict[str, Any]:
    return {
        "n": count, "a": added(count), "size": count - 1, "b": 1 - count, "c": count - 1,
        "d": [*range(0, count, count // 10)], "#x": [0, 1, 2, 3, 4],
    }  # fmt: skip


def test_every_operator_applies_the_rows_of_a_key_once_in_order(
    spark: SparkSession, service: Service, size: Size, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, rows = Table("operators", service.url), rows_of_one_key(spark, size.rows)
    update, default = every_operator(size.rows), {"made": lit(1), "n": lit(0)}

    def write() -> Any:
        return table.update(rows, "k", update, default=default, order_by="n", nulls="omit", token=("job", 1))

    interrupt(monkeypatch, write, 3)
    first = size.rows % size.part or size.part
    sent = first + 2 * size.part
    if size.part == PART_ROWS:
        assert stored(service, table.name)["k"]["n"] == sent
    assert counts(write()) == (size.rows - sent, sent, 0)
    assert stored(service, table.name) == {"k": result_of_every_operator(size.rows)}
    assert counts(write()) == (0, size.rows, 0)
    assert stored(service, table.name) == {"k": result_of_every_operator(size.rows)}
    following = table.update(rows.limit(1), "k", {"$inc": {"n": lit(1)}}, token=("job", 2))
    assert counts(following) == (1, 0, 0)


def test_patches_puts_and_deletes_of_one_key(spark: SparkSession, service: Service, size: Size) -> None:
    table, rows = Table("patches", service.url), rows_of_one_key(spark, size.rows)
    patch = {"a": F.struct(col("n"), (col("n") % 3).alias("m")), "b": None}
    for expected in ((size.rows, 0, 0), (0, size.rows, 0)):
        patched = table.update(rows, "k", patch, default={"b": 1}, order_by="n", token=("patched", 1))
        assert counts(patched) == expected
        assert stored(service, table.name) == {"k": {"a": {"n": size.rows - 1, "m": (size.rows - 1) % 3}}}
    for expected in ((size.rows, 0, 0), (0, size.rows, 0)):
        assert counts(table.put(rows, "k", order_by="n", token=("put", 1))) == expected
        assert stored(service, table.name) == {"k": {"n": size.rows - 1}}
    for expected in ((size.rows, 0, 0), (0, size.rows, 0)):
        assert counts(table.delete(rows, "k", token=("deleted", 1))) == expected
        assert stored(service, table.name) == {}


@pytest.mark.parametrize("ordered", [True, False])
def test_parts_do_not_depend_on_the_order_of_the_source(
    spark: SparkSession, service: Service, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    monkeypatch.setattr(grouping, "PART_ROWS_MAX", PART_ROWS)
    table, rows = Table(f"long_reordered_{ordered}", service.url), rows_of_one_key(spark, 110)
    order = F.floor(col("n") / 50) if ordered else None

    def write(frame: DataFrame) -> Any:
        update = {"$inc": {"x": 2.0 ** (col("n") % 50), "count": lit(1)}}
        return table.update(frame, "k", update, default={}, token="t", order_by=order)

    interrupt(monkeypatch, lambda: write(rows), 2)
    shuffled = rows.repartition(7, F.xxhash64("n")).sortWithinPartitions(-col("n"))
    assert counts(write(shuffled)) == (80, 30, 0)
    assert stored(service, table.name) == {"k": {"x": sum(2.0 ** (n % 50) for n in range(110)), "count": 110}}


@pytest.mark.parametrize("fold", [True, False])
def test_rows_before_the_last_delete_of_a_long_key_do_not_count(
    spark: SparkSession, service: Service, monkeypatch: pytest.MonkeyPatch, fold: bool
) -> None:
    monkeypatch.setattr(grouping, "PART_ROWS_MAX", PART_ROWS)
    table, rows = Table(f"long_deleted_{fold}", service.url), rows_of_one_key(spark, 110)
    table.put(rows.limit(1), "k")
    gone = col("n").isin(10, 30)

    def write() -> Any:
        update = {"$inc": {"x": col("n") / 2}, "$push": {"seen": col("n")}}
        return table.update(rows, "k", update, default={}, order_by="n", delete_when=gone, fold=fold, token="t")

    interrupt(monkeypatch, write, 2)
    summary = write()
    assert summary.applied + summary.replayed == 110
    assert summary.replayed > 31
    assert stored(service, table.name) == {"k": {"x": sum(range(31, 110)) / 2, "seen": [*range(31, 110)]}}
    assert write().finished_before


def test_large_rows_of_one_key_are_divided_by_their_bytes(spark: SparkSession, service: Service) -> None:
    rows = rows_of_one_key(spark, 12).withColumn("text", F.repeat(lit("x"), 2**19 - 100))
    table = Table("long_bytes", service.url)
    summary = table.update(rows, "k", {"text": F.struct("text", "n"), "x": 1}, default={}, order_by="n")
    assert (summary.operations, summary.applied) == (6, 12)
    assert stored(service, table.name)["k"]["text"]["n"] == 11


def test_rows_of_many_elements_are_divided_by_the_limit_of_the_service(spark: SparkSession, service: Service) -> None:
    rows = rows_of_one_key(spark, 12).withColumn("many", F.sequence(lit(1), lit(12_450)))
    table = Table("long_elements", service.url)
    summary = table.update(rows, "k", {"$addToSet": {"x": {"$each": col("many")}}}, default={}, fold=False)
    assert (summary.operations, summary.applied) == (6, 12)
    assert stored(service, table.name)["k"] == {"x": list(range(1, 12_451))}


def test_keys_with_few_rows_have_one_operation_with_the_token_of_the_write(
    spark: SparkSession, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "PART_ROWS_MAX", PART_ROWS)
    table = Table("long_and_short", service.url)
    key = F.when(col("id") < 100, "long").otherwise(F.concat(lit("k"), "id"))
    rows = spark.range(130).select(key.alias("k"), "id")
    summary = table.update(rows, "k", {"$inc": {"x": col("id") / 2}}, default={}, token=("w", 5), order_by="id")
    assert (summary.operations, summary.applied) == (5 + 30, 130)
    found = stored(service, table.name)
    assert found["long"] == {"x": sum(range(100)) / 2}
    assert found["k110"] == {"x": 55.0}
