"""Filters on key columns become a selection of records. A filter that it uses is exact."""

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from tableside_client.table_schema import TableSchema
from tableside_spark.datasource.key_filters import KEY_BYTES_MAX, KEYS_MAX, LEADING_MAX, select
from tableside_spark.datasource.reader import Selection

TEXT = TableSchema()
PAIR = TableSchema(("who", "at"), ("string", "integer"))
TEXTS = TableSchema(("who", "what"), ("string", "string"))
TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "collated": StringType("UTF8_LCASE"),
    "struct": StructType([StructField("key", StringType())]),
}
COPIES = TableSchema(partitions=3)


def chosen(
    table: TableSchema, columns: str, *filters: Filter, given: Selection | None = None
) -> tuple[Selection, list[Filter]]:
    schema = StructType([StructField(name, TYPES[kind]) for name, kind in map(str.split, columns.split(", "))])
    keys = [name or "key" for name in table.key_names]
    return select(filters, keys, schema, table, given or Selection())


def test_equality_and_in_select_distinct_keys_that_all_filters_allow() -> None:
    filters = [In(("key",), ("a", "b", None, "b", "c")), In(("key",), ("c", "b")), IsNotNull(("key",))]
    assert chosen(TEXT, "key string, n int", *filters) == (Selection(keys=(("b",), ("c",))), filters[:2])
    equal: Filter = EqualNullSafe(("key",), "a")
    assert chosen(TEXT, "key string", equal) == (Selection(keys=(("a",),)), [equal])
    contradiction: list[Filter] = [EqualTo(("key",), "a"), EqualTo(("key",), "b")]
    assert chosen(TEXT, "key string", *contradiction) == (Selection(keys=()), contradiction)


def test_a_composite_key_needs_all_parts_else_its_first_part_selects_scans() -> None:
    who, at = In(("who",), ("a", "b")), EqualTo(("at",), 7)
    assert chosen(PAIR, "who string, at int", at, who)[0] == Selection(keys=(("a", 7), ("b", 7)))
    assert chosen(PAIR, "who string, at int", who) == (Selection(leading=("a", "b")), [who])
    assert chosen(PAIR, "who string, at int", at) == (Selection(), [])
    assert chosen(PAIR, "at int", at) == (Selection(), [])


def test_a_prefix_applies_to_the_first_part_or_within_a_partition_to_the_second() -> None:
    who, first, second = EqualTo(("who",), "a"), StringStartsWith(("who",), "a"), StringStartsWith(("what",), "x")
    longer = StringStartsWith(("who",), "ab")
    columns = "who string, what string"
    assert chosen(TEXTS, columns, first, longer) == (Selection(prefix="ab"), [first, longer])
    assert chosen(TEXTS, columns, who, second) == (Selection(leading=("a",), prefix="x"), [who, second])
    assert chosen(TEXTS, columns, second) == (Selection(), [])
    assert chosen(TEXTS, columns, first, StringStartsWith(("who",), "b")) == (Selection(), [])
    assert chosen(TEXT, "key string", StringStartsWith(("key",), "")) == (Selection(), [])


@pytest.mark.parametrize(
    ("columns", "filter_"),
    [
        ("key int", EqualTo(("key",), 1)),
        ("key string", EqualTo(("key",), 1)),
        ("key string", EqualTo(("key",), None)),
        ("key collated", EqualTo(("key",), "a")),
        ("key string", Not(EqualTo(("key",), "a"))),
        ("key string", GreaterThan(("key",), "a")),
        ("key string, n int", EqualTo(("n",), 1)),
        ("key string, s struct", EqualTo(("s", "key"), "a")),
        ("key string", In(("key",), tuple(map(str, range(KEYS_MAX + 1))))),
    ],
)
def test_other_filters_are_left_to_spark(columns: str, filter_: Filter) -> None:
    assert chosen(TEXT, columns, filter_) == (Selection(), [])


def test_more_first_parts_than_the_maximum_are_left_to_spark() -> None:
    many = In(("who",), tuple(map(str, range(LEADING_MAX + 1))))
    assert chosen(PAIR, "who string, at int", many) == (Selection(), [])


@pytest.mark.parametrize("text", ["", "a\0", "ü" * (KEY_BYTES_MAX // 2) + "x"])
def test_a_text_that_no_key_can_contain_selects_nothing(text: str) -> None:
    columns, impossible, some = "who string, what string", EqualTo(("who",), text), In(("who",), ("a", text))
    assert chosen(TEXTS, columns, impossible) == (Selection(keys=()), [impossible])
    assert chosen(TEXTS, columns, some) == (Selection(leading=("a",)), [some])
    assert chosen(TEXTS, columns, some, EqualTo(("what",), "b"))[0] == Selection(keys=(("a", "b"),))
    assert chosen(TEXTS, columns, EqualTo(("what",), text))[0] == Selection(keys=())
    assert chosen(TEXT, "key string", EqualTo(("key",), text))[0] == Selection(keys=())
    longest = "x" * KEY_BYTES_MAX
    assert chosen(TEXTS, columns, EqualTo(("who",), longest))[0] == Selection(leading=(longest,))


def test_partitions_of_a_partitioned_table_are_selected_by_their_column() -> None:
    where = In(("partition",), (2, 0, 9))
    columns = "key string, partition int"
    assert chosen(COPIES, columns, where) == (Selection(partitions=(0, 2)), [where])
    given = Selection(partitions=(1, 2))
    assert chosen(COPIES, columns, where, given=given)[0] == Selection(partitions=(2,))
    nowhere, key = EqualTo(("partition",), 3), EqualTo(("key",), "a")
    assert chosen(COPIES, columns, nowhere, key) == (Selection(keys=()), [nowhere])
    assert chosen(COPIES, columns, where, key) == (Selection(keys=(("a",),), partitions=(0, 2)), [where, key])
    assert chosen(TEXT, columns, where) == (Selection(), [])


def test_an_option_that_selects_keys_is_not_combined_with_filters_on_the_key() -> None:
    given = Selection(prefix="a")
    assert chosen(TEXT, "key string", EqualTo(("key",), "ab"), given=given) == (given, [])
