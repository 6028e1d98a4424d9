"""Values that the executor decodes are those of Spark's `from_json`, and all others remain text."""

import json
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import IntegerType, StructType

from tableside_spark.executor.found_values import VALUE_COLUMN, FoundValues
from tableside_spark.plan.decodable import arrow_members
from tableside_spark.plan.typed_values import TypedValue

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SCALARS = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "double")
NUMBERS = (
    *("0", "-0", "0.0", "-0.0", "1", "-1", "1.0", "1e2", "127", "128", "-128", "-129", "255", "256", "32768", "5e-324"),
    *("2147483648", "-9223372036854775808", "9223372036854775807", "9223372036854775808", "0.1", "1e-400"),
    *("3.141592653589793238462643383279", "1.7976931348623157e308", "9007199254740993", "123456789012345678.5"),
)
ODD = (
    *("NaN", "Infinity", "-Infinity", "INF", "1e400", "01", "+1", "0x10", "1.", ".5", "'a'", "tru", '"\n"', '"\\x"'),
)  # fmt: skip
STRINGS = ("", "a", "1", "true", "null", "NaN", "2013-07-01", "ü\U0001f600", '"\\/\b\f\n\r\t', "\x00\u2028", "x" * 300)
WHOLE = (
    *("", "null", "1", "[]", '[{"a":1}]', "{", "}", "{}", " {}", "{} ", "{}{}", '{"a":1}{"a":2}', '{"a":1},', "{]"),
)  # fmt: skip

kinds = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        inner.map(lambda kind: f"array<{kind}>"),
        st.lists(inner, min_size=1, max_size=3).map(lambda found: _struct(found, "struct<{}>", ": ")),
    ),
    max_leaves=4,
)
schemas = st.lists(kinds, min_size=1, max_size=3).map(lambda found: _struct(found, "{}", " "))
scalars = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(STRINGS).map(json.dumps),
    st.sampled_from(["null", "true", "false"]),
    st.sampled_from(STRINGS).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.text(max_size=5).map(json.dumps),
    st.sampled_from(ODD),
)
names = st.sampled_from(["a", "b", "c", "A", "other"]).map(json.dumps)
members = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda found: f"[{', '.join(found)}]"),
        st.lists(st.tuples(names, inner), max_size=3).map(lambda found: _object(found)),
    ),
    max_leaves=6,
)
texts = st.one_of(
    st.lists(st.tuples(names, members), max_size=4).map(lambda found: _object(found)), st.sampled_from(WHOLE)
)


def struct_type(schema: str) -> StructType:
    kind = StructType.fromDDL(schema)
    assert isinstance(kind, StructType)
    return kind


def _struct(found: list[str], form: str, separator: str) -> str:
    return form.format(", ".join(f"{name}{separator}{kind}" for name, kind in zip("abc", found, strict=False)))


def _object(found: list[tuple[str, str]]) -> str:
    return f"{{{','.join(f'{name}:{member}' for name, member in found)}}}"


def fitting(kind: Any) -> st.SearchStrategy[str]:
    """Texts that mostly fit an Arrow type, with nulls and absent members."""
    if pa.types.is_struct(kind):
        options = [st.tuples(st.just(json.dumps(field.name)), fitting(field.type)) for field in kind]
        return st.lists(st.one_of(options), max_size=4, unique_by=lambda pair: pair[0]).map(_object)
    if pa.types.is_list(kind):
        return st.lists(fitting(kind.value_type), max_size=3).map(lambda found: f"[{','.join(found)}]")
    if pa.types.is_boolean(kind):
        return st.sampled_from(["true", "false", "null"])
    if pa.types.is_string(kind):
        return st.one_of(st.just("null"), st.text(max_size=9).map(json.dumps), st.sampled_from(STRINGS).map(json.dumps))
    numbers = (
        st.integers(-300, 300).map(str)
        if pa.types.is_integer(kind)
        else st.floats(allow_nan=False, allow_infinity=False).map(repr)
    )
    return st.one_of(numbers, st.sampled_from(NUMBERS), st.just("null"))


@settings(
    max_examples=25, deadline=None, phases=[Phase.generate], derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(st.data())
def test_a_decoded_value_is_that_of_from_json(spark: SparkSession, data: st.DataObject) -> None:
    schema = data.draw(schemas)
    kind = struct_type(schema)
    decoded = arrow_members(kind)
    assert decoded is not None
    values = data.draw(st.lists(st.one_of(fitting(pa.struct(list(decoded))), texts), min_size=60, max_size=60))
    frame = spark.createDataFrame(list(enumerate(values)), "position int, text string").coalesce(1)
    parsed = frame.select("position", TypedValue(kind, "t", ()).parse(F.col("text")).alias("value")).collect()
    for position, expected in sorted(parsed, key=itemgetter(0)):
        found = FoundValues(decoded).decode(pa.array([values[position]])).to_pylist()[0]
        if found[VALUE_COLUMN] is None:
            actual = [found[name] for name in FoundValues(decoded).schema.names[1:-1]]
            # The last member is the whole text if Spark cannot read a part of it.
            assert repr([*actual, None]) == repr(list(expected.asDict(recursive=True).values())), values[position]


def test_arrow_decodes_what_the_service_usually_stores() -> None:
    kind = struct_type("a int, b double, c struct<x: array<string>>, d boolean")
    found = FoundValues(arrow_members(kind)).decode(pa.array(['{"a":1,"e":2}', None, '{"c":{"x":["ü",null]},"b":2}']))
    assert found[VALUE_COLUMN].null_count == 3
    assert found["__tableside_found"].to_pylist() == [True, False, True]
    assert found["__tableside_member_2"].to_pylist() == [None, None, {"x": ["ü", None]}]


@pytest.mark.parametrize("value", ['{"a":"1"}', '{"a":1.0}', '{"a":1,"a":2}', '{"a":2147483648}', "[1]", "{}{}", ""])
def test_a_value_that_arrow_reads_differently_leaves_all_of_its_chunk_as_text(value: str) -> None:
    found = FoundValues(pa.schema([("a", pa.int32())])).decode(pa.array(['{"a":1}', value]))
    assert found[VALUE_COLUMN].to_pylist() == ['{"a":1}', value]
    assert found["__tableside_member_0"].null_count == 2


@pytest.mark.parametrize("values", [["{}{}", ""], ['{"a":1', ',"b":2}{}'], ['{"a":"', '"}{}'], ["{}", "{} {}", "{"]])
def test_texts_that_together_have_as_many_objects_are_not_decoded(values: list[str]) -> None:
    found = FoundValues(pa.schema([("a", pa.int32())])).decode(pa.array(values))
    assert found[VALUE_COLUMN].to_pylist() == values


@pytest.mark.parametrize("number", ["-0.0", "-0", "NaN"])
@pytest.mark.parametrize("form", ['{{"a":{}}}', '{{"b":[{{"c":{}}}]}}'])
def test_a_double_that_arrow_reads_differently_stays_text(number: str, form: str) -> None:
    schema = pa.schema([("a", pa.float64()), ("b", pa.list_(pa.struct([("c", pa.float64())])))])
    found = FoundValues(schema).decode(pa.array(["{}", form.format(number)]))
    assert found[VALUE_COLUMN].null_count == 0


@pytest.mark.parametrize(
    "kind",
    [
        *("date", "timestamp", "timestamp_ntz", "decimal(9,2)", "float", "binary", "map<string,int>", "variant"),
        *("char(3)", "varchar(3)", "string collate UNICODE", "array<struct<x: date>>", "struct<x: int, x: int>"),
    ],
)
def test_types_that_arrow_reads_differently_are_left_to_the_jvm(kind: str) -> None:
    assert arrow_members(struct_type(f"a int, b {kind}")) is None


def test_members_with_metadata_are_left_to_the_jvm() -> None:
    assert arrow_members(StructType().add("a", IntegerType(), metadata={"CURRENT_DEFAULT": "5"})) is None
    assert arrow_members(StructType()) is None
