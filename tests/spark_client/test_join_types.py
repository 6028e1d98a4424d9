"""The kinds of join by all their names in Spark, and the kinds that a lookup cannot perform."""

import pytest

from tableside_spark import Table
from tableside_spark.plan.join import join_type


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("left", ["left", "left_outer", "leftouter", "LEFT_OUTER"]),
        ("inner", ["inner", "Inner"]),
        ("left_semi", ["left_semi", "leftsemi", "semi"]),
        ("left_anti", ["left_anti", "leftanti", "anti"]),
    ],
)
def test_a_join_has_every_name_that_spark_gives_it(kind: str, names: list[str]) -> None:
    assert {join_type(name) for name in names} == {kind}


@pytest.mark.parametrize("name", ["right", "right_outer", "rightouter", "full", "full_outer", "outer", "cross"])
def test_a_join_that_needs_all_records_is_refused_with_the_alternative(name: str) -> None:
    with pytest.raises(ValueError, match=rf"how='{name}' returns .* in no row .* read the whole table .*tableside"):
        join_type(name)


def test_an_unknown_join_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"how is left, inner, left_semi or left_anti .*, not 'leftt'"):
        join_type("leftt")


def test_join_is_another_name_of_enrich() -> None:
    assert Table.join is Table.enrich
