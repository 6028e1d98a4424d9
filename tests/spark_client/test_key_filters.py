"""Keys of a task and of reads: distinct keys, remembered values, options, and filters that select records."""

from collections import deque
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
    StringStartsWith,
)
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from tableside_client.key_columns import distinct_keys
from tableside_client.table_schema import TableSchema
from tableside_spark.datasource.key_filters import KEY_BYTES_MAX, KEYS_MAX, select
from tableside_spark.datasource.options import parse_read_options
from tableside_spark.datasource.reader import Selection
from tableside_spark.executor.lookup_task import KeyMemory, RememberedLimits
from tableside_spark.plan.join import join_type

TEXT = TableSchema()
PAIR = TableSchema(("who", "at"), ("string", "integer"))
TEXTS = TableSchema(("who", "what"), ("string", "string"))
TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "collated": StringType("UTF8_LCASE"),
}


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
    columns, longer = "who string, what string", StringStartsWith(("who",), "ab")
    assert chosen(TEXTS, columns, first, longer) == (Selection(prefix="ab"), [first, longer])
    assert chosen(TEXTS, columns, who, second) == (Selection(leading=("a",), prefix="x"), [who, second])
    assert chosen(TEXTS, columns, second) == (Selection(), [])


@pytest.mark.parametrize(
    ("columns", "filter_"),
    [
        ("key int", EqualTo(("key",), 1)),
        ("key string", EqualTo(("key",), 1)),
        ("key string", EqualTo(("key",), None)),
        ("key collated", EqualTo(("key",), "a")),
        ("key string", GreaterThan(("key",), "a")),
        ("key string, n int", EqualTo(("n",), 1)),
        ("key string", In(("key",), tuple(map(str, range(KEYS_MAX + 1))))),
    ],
)
def test_other_filters_are_left_to_spark(columns: str, filter_: Filter) -> None:
    assert chosen(TEXT, columns, filter_) == (Selection(), [])


@pytest.mark.parametrize("text", ["", "a\0", "ü" * (KEY_BYTES_MAX // 2) + "x"])
def test_a_text_that_no_key_can_contain_selects_nothing(text: str) -> None:
    columns, impossible, some = "who string, what string", EqualTo(("who",), text), In(("who",), ("a", text))
    assert chosen(TEXTS, columns, impossible) == (Selection(keys=()), [impossible])
    assert chosen(TEXTS, columns, some) == (Selection(leading=("a",)), [some])
    assert chosen(TEXT, "key string", EqualTo(("key",), text))[0] == Selection(keys=())
    longest = "x" * KEY_BYTES_MAX
    assert chosen(TEXTS, columns, EqualTo(("who",), longest))[0] == Selection(leading=(longest,))


def test_an_option_that_selects_keys_is_not_combined_with_filters_on_the_key() -> None:
    given = Selection(prefix="a")
    assert chosen(TEXT, "key string", EqualTo(("key",), "ab"), given=given) == (given, [])


def test_partition_is_a_first_part_of_the_key_or_an_index_of_a_partitioned_table() -> None:
    copies, pairs = TableSchema(partitions=3), TableSchema(PAIR.key_names, PAIR.key_types, partitions=3)
    assert parse_read_options({"partition": "2"}, copies).partitions == (2,)
    for table in (PAIR, pairs):
        found = parse_read_options({"partition": "2"}, table)
        assert (found.partition, found.partitions) == ("2", None)
    assert parse_read_options({"partition": "a", "partitions": "2, 0,2"}, pairs).partitions == (0, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splits": "0"}, "the option splits is a number from 1 to 1024, not '0'"),
        ({"partitions": "0"}, "the option partitions is for a partitioned table"),
        ({"on_mismatch": "skip"}, "on_mismatch is fail or null, not 'skip'"),
        ({"pushdown": "yes"}, "the option pushdown is true or false"),
    ],
)
def test_an_option_that_is_not_valid_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_read_options(options, TableSchema())


@pytest.mark.parametrize("text", ["", "3", "0,,1"])
def test_indexes_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="partitions are numbers from 0 to 2, separated by commas"):
        parse_read_options({"partitions": text}, TableSchema(partitions=3))


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


PARTS = st.one_of(st.none(), st.sampled_from(["a", "b", "ü", ""]))


@given(st.lists(st.tuples(PARTS, st.one_of(st.none(), st.integers(-2, 2)), PARTS), max_size=30))
def test_composite_keys_are_distinct_and_map_to_every_row(
    rows: list[tuple[str | None, int | None, str | None]],
) -> None:
    columns = [
        pa.array([row[0] for row in rows], pa.string()),
        pa.array([row[1] for row in rows], pa.int16()),
        pa.array([row[2] for row in rows], pa.string()),
    ]
    found = distinct_keys(columns, ["x", "y", "z"])
    keys = [tuple(key.values()) for key in found.keys.to_pylist()]
    assert len(set(keys)) == len(keys)
    back = [None if position is None else keys[position] for position in found.positions.to_pylist()]
    assert back == [None if None in row else row for row in rows]


def test_composite_keys_of_many_parts_with_many_values_are_distinct() -> None:
    """With one code for all parts, both keys would have the same code modulo 2^64."""
    others = 4096
    columns = [["x", "y", *([None] * others)], ["b0", "b0", *(f"b{at % 16}" for at in range(others))]]
    columns += [[f"{name}0"] * 2 + [f"{name}{at}" for at in range(others)] for name in "cdefg"]
    found = distinct_keys([pa.array(column) for column in columns], list("abcdefg"))
    assert [key["a"] for key in found.keys.to_pylist()] == ["x", "y"]
    assert found.positions.to_pylist() == [0, 1, *([None] * others)]


def value(key: object) -> str:
    return f"value of {key}"


def join(memory: KeyMemory, chunks: Iterable[pa.Array], in_flight: int = 1) -> tuple[list[str], list[list[object]]]:
    """Return the value of each row, and the keys of each request. Plans are ahead of values by `in_flight` chunks."""
    rows: list[str] = []
    requests: list[list[object]] = []
    waiting: deque[tuple[object, pa.Array]] = deque()

    def finish() -> None:
        planned, positions = waiting.popleft()
        found = pa.record_batch([pa.array(map(value, requests[len(requests) - len(waiting) - 1]), pa.string())], ["v"])
        rows.extend(planned.values(found, positions).column("v").to_pylist())  # type: ignore[attr-defined]

    for chunk in chunks:
        columns = chunk.flatten() if pa.types.is_struct(chunk.type) else [chunk]
        keys = distinct_keys(columns, [str(position) for position in range(len(columns))])
        planned = memory.plan(keys.keys)
        requests.append(planned.new.to_pylist())
        waiting.append((planned, None if keys.is_identity else keys.positions))
        if len(waiting) >= in_flight:
            finish()
    while waiting:
        finish()
    return rows, requests


@given(
    st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=9), max_size=12),
    st.integers(1, 3),
    st.integers(1, 30),
    st.integers(1, 400),
)
def test_each_row_gets_the_value_of_its_key(
    chunks: Sequence[Sequence[int]], in_flight: int, keys_max: int, bytes_max: int
) -> None:
    memory = KeyMemory(RememberedLimits(keys_max, bytes_max))
    rows, _ = join(memory, [pa.array(chunk, pa.int64()) for chunk in chunks], in_flight)
    assert rows == [value(key) for chunk in chunks for key in chunk]


def test_a_task_with_too_many_keys_forgets_them_and_starts_again() -> None:
    chunks = [pa.array(keys) for keys in ([1, 2], [1, 3], [1, 4], [1, 4])]
    _, requests = join(KeyMemory(RememberedLimits(keys_max=4, repeated_min=0.2)), chunks)
    assert requests == [[1, 2], [3], [1, 4], []]
