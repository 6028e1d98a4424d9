"""The tables of update operators of the client and of the service, and what Spark folds by the client's."""

import re
from typing import Any

import pytest
from pyspark.sql import (
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)

from spark_client.sessions import jvm
from support.running import Service
from tableside.core import update_operators
from tableside_client import Client
from tableside_client.operators import OPERATORS, UpdateOperator
from tableside_spark import Table
from tableside_spark.plan.update_documents import read_update

pytestmark = jvm("spark")


def stored(service: Service, table: Table) -> Any:
    with Client(service.url) as client:
        return client.table(table.name).get("a")


SERVICE: Any = update_operators.OPERATORS


def test_client_and_service_have_the_same_operators() -> None:
    assert set(OPERATORS) == set(SERVICE)


def test_only_operators_with_a_rule_are_folded(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATORS, "$later", UpdateOperator("$later", False, OPERATORS["$inc"].operands))
    update = {"$inc": {"n": F.lit(1)}}
    assert read_update(update).is_foldable
    assert not read_update(update | {"$later": {"m": F.lit(1)}}).is_foldable
    assert not read_update(F.lit("{}")).is_foldable


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ({"$set": {"a": 1}, "$unset": ["b"], "$max": {"c": 1}}, True),
        ({"$set": {"a": 1}, "$inc": {"b": 1}}, False),
        ({"$push": {"a": 1}}, False),
        ({"$addToSet": {"a": 1}}, True),
        ({"a": 1}, True),
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
    assert stored(service, table) == {"last": [7, 8, 9], "top": top, "open": [77], "more": [77]}


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
    assert stored(service, table) == {"product": 24, "kept": [1, 2, 3, 4], "first": 1}
    assert table.update(rows, "k", update, default={}, order_by="id").applied == 4
    assert stored(service, table)["first"] == 1


@pytest.mark.parametrize(
    ("operand", "problem"),
    [
        ({"$push": {"a": {"$each": [1], "$position": 0}}}, "$push a: $each does not allow $position beside it"),
        ({"$addToSet": {"a": {"$each": [1], "$slice": 1}}}, "$addToSet a: $each does not allow $slice beside it"),
        ({"$pull": {"a": {"$in": [1], "b": 1}}}, "$pull a: $in does not allow b beside it"),
    ],
)
def test_an_unknown_modifier_is_refused_on_the_driver(
    spark: SparkSession, operand: dict[str, object], problem: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        read_update(operand)
