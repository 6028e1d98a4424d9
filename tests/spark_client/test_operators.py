"""The table of update operators, in the client and in the service."""

from typing import Any

import pytest
from pyspark.sql import (
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)

from spark_client.sessions import jvm
from tableside.core import update_operators
from tableside_client.operators import OPERATORS, UpdateOperator
from tableside_spark.plan.update_documents import read_update

pytestmark = jvm("spark")


SERVICE: Any = update_operators.OPERATORS
FOLDS = {"least": "better", "greatest": "better", "append": "both", "union": "both", "last": "last"}
"""The service's names for rules of folding. It does not fold sums."""


def test_client_and_service_have_the_same_operators() -> None:
    assert set(OPERATORS) == set(SERVICE)


def test_where_client_and_service_fold_they_do_so_by_the_same_rule() -> None:
    rules = {name: rule.fold for name, rule in SERVICE.items()} if isinstance(SERVICE, dict) else {}
    both = [name for name, operator in OPERATORS.items() if operator.fold is not None and rules.get(name) is not None]
    assert [FOLDS.get(OPERATORS[name].fold or "") for name in both] == [rules[name] for name in both]


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
