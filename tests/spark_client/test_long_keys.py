"""Updates of keys with few and many rows: operators apply them in order and once, also after an interruption."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
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
from tableside.core import update_operators
from tableside_client.operators import OPERATORS
from tableside_spark import Table, WriteSummary
from tableside_spark.executor.write_task import WriteTask
from tableside_spark.plan import grouping
from tableside_spark.plan.update_documents import read_update
from tableside_spark.write import job

pytestmark = jvm("spark")


PART_ROWS = 20


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


def every_operator() -> dict[str, Any]:
    return {
        "$inc": {"n": lit(1), "a": col("n") / 7},
        "$set": {"size": col("n")},
        "$unset": ["made"],
        "$min": {"b": -col("n")},
        "$max": {"c": col("n")},
        "$push": {"d": F.when(col("n") % 11 == 0, col("n"))},
        "$addToSet": {"#x": col("n") % 5},
    }


def test_every_operator_applies_the_rows_of_a_key_once_in_order(
    spark: SparkSession, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "PART_ROWS_MAX", PART_ROWS)
    count, sent = 110, 50
    table, rows = Table("operators", service.url), rows_of_one_key(spark, count)

    def write() -> Any:
        default = {"made": lit(1), "n": lit(0)}
        return table.update(rows, "k", every_operator(), default=default, order_by="n", nulls="omit", token=("job", 1))

    interrupt(monkeypatch, write, 3)
    assert stored(service, table.name)["k"]["n"] == sent
    expected = {
        "n": count, "a": [*accumulate(n / 7 for n in range(count))][-1], "size": count - 1,
        "b": 1 - count, "c": count - 1,
        "d": [*range(0, count, 11)], "#x": [0, 1, 2, 3, 4],
    }  # fmt: skip
    for counted in ((count - sent, sent, 0), (0, count, 0)):
        assert counts(write()) == counted
        assert stored(service, table.name) == {"k": expected}
    following = table.update(rows.limit(1), "k", {"$inc": {"n": lit(1)}}, token=("job", 2))
    assert counts(following) == (1, 0, 0)


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


def test_client_and_service_have_the_same_operators() -> None:
    assert set(OPERATORS) == set(update_operators.OPERATORS)


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ({"$set": {"a": 1}, "$unset": ["b"], "$max": {"c": 1}}, True),
        ({"$set": {"a": 1}, "$inc": {"b": 1}}, False),
        ({"$push": {"a": 1}}, False),
        ({"$addToSet": {"a": 1}}, True),
        ({}, True),
    ],
)
def test_an_update_is_idempotent_if_all_of_its_operators_are(
    spark: SparkSession, update: dict[str, object], expected: bool
) -> None:
    assert read_update(update).is_idempotent == expected


@pytest.mark.parametrize("fold", [True, False])
def test_rows_that_pull_and_push_with_constant_modifiers_are_folded(
    spark: SparkSession, service: Service, fold: bool
) -> None:
    table = Table(f"spark_recent_{fold}", service.url)
    n, event = F.col("id"), F.struct((F.col("id") % 5).alias("at"), F.col("id").alias("n"))
    update = {
        "$push": {
            "last": {"$each": F.array(n), "$slice": -3},
            "top": {"$each": F.array(event), "$slice": 2, "$sort": {"at": -1}},
        },
        "$pull": {"open": n, "more": {"$in": F.array(n, n + 100)}},
    }
    assert read_update(update).is_foldable
    rows = spark.range(10).withColumn("k", F.lit("a"))
    default = {"open": [1, 2, 77], "more": [101, 77], "top": [{"at": 4, "n": 77}]}
    assert table.update(rows, "k", update, default=default, order_by="id", fold=fold).applied == 10
    top = [{"at": 4, "n": 77}, {"at": 4, "n": 4}]
    assert stored(service, table.name)["a"] == {"last": [7, 8, 9], "top": top, "open": [77], "more": [77]}


def test_rows_that_multiply_or_have_their_own_modifiers_are_applied_in_order(
    spark: SparkSession, service: Service
) -> None:
    table = Table("spark_listed", service.url)
    n = F.col("id")
    update = {
        "$mul": {"product": n},
        "$push": {"kept": {"$each": F.array(n), "$slice": n}},
        "$setOnInsert": {"first": n},
    }
    rows = spark.range(1, 5).withColumn("k", F.lit("a"))
    assert table.update(rows, "k", update, default={"product": 1}, order_by="id").applied == 4
    assert stored(service, table.name)["a"] == {"product": 24, "kept": [1, 2, 3, 4], "first": 1}
    assert table.update(rows, "k", update, default={}, order_by="id").applied == 4
    assert stored(service, table.name)["a"]["first"] == 1


@pytest.mark.parametrize(
    ("operand", "problem"),
    [
        ({"$push": {"a": {"$each": [1], "$position": 0}}}, "$push a: $each does not allow $position beside it"),
        ({"$addToSet": {"a": {"$each": [1], "$slice": 1}}}, "$addToSet a: $each does not allow $slice beside it"),
    ],
)
def test_an_unknown_modifier_is_refused_on_the_driver(
    spark: SparkSession, operand: dict[str, object], problem: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        read_update(operand)
