"""Reads of JSON values with a schema: Arrow returns what the conversion of each value returns, or nothing."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pyspark.sql.types import DayTimeIntervalType, IntegerType, MapType, StringType, StructField, StructType

from spark_client.reading_cases import CASES, MISFIT
from tableside_client.json_reader import Misfit, UnreadableMembersError, read_members
from tableside_spark.executor.lookup_task import json_reader

SCALARS = ("string", "boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp")
NUMBERS = (
    *("0", "-0", "0.0", "-0.0", "1", "-1", "1.0", "1e2", "127", "128", "-128", "-129", "255", "256", "32768", "5e-324"),
    *("2147483648", "-9223372036854775808", "9223372036854775807", "9223372036854775808", "0.1", "1e-400"),
    *("3.141592653589793238462643383279", "1.7976931348623157e308", "9007199254740993", "123456789012345678.5"),
)
STRINGS = (
    *("", "a", "1", "true", "null", "NaN", "2013-07-01", "ü\U0001f600", '"\\/\b\f\n\r\t', "\x00\u2028", "x" * 300),
    *("2013-07-01T05:15:00Z", "0000-02-29 05Z", "2013-07-01T05:15-04:00", "9999-12-31T23:59:59.9-18:00", "0000-12-31"),
)  # fmt: skip

kinds = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        inner.map(lambda kind: {"type": "array", "elementType": kind, "containsNull": True}),
        st.lists(inner, min_size=1, max_size=3).map(lambda found: struct(found)),
    ),
    max_leaves=4,
)


def struct(found: list[Any]) -> dict[str, Any]:
    members = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in zip("abc", found, strict=False)
    ]  # fmt: skip
    return {"type": "struct", "fields": members}


def texts_of(kind: Any) -> st.SearchStrategy[str]:
    """Texts that mostly fit an Arrow type, with nulls and absent members."""
    if pa.types.is_struct(kind):
        options = [st.tuples(st.just(json.dumps(field.name)), texts_of(field.type)) for field in kind]
        pairs = st.lists(st.one_of(options), max_size=4, unique_by=lambda pair: pair[0])
        return pairs.map(lambda found: f"{{{','.join(f'{name}:{member}' for name, member in found)}}}")
    if pa.types.is_list(kind):
        return st.lists(texts_of(kind.value_type), max_size=3).map(lambda found: f"[{','.join(found)}]")
    if pa.types.is_boolean(kind):
        return st.sampled_from(["true", "false", "null"])
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return st.one_of(st.integers(-300, 300).map(str), st.sampled_from(NUMBERS), st.just("null"))
    return st.one_of(st.just("null"), st.sampled_from(STRINGS).map(json.dumps), st.text(max_size=9).map(json.dumps))


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_arrow_reads_the_values_of_the_conversion_or_nothing(data: st.DataObject) -> None:
    schema = StructType.fromJson(struct(data.draw(st.lists(kinds, min_size=1, max_size=3))))
    reader = json_reader(schema.fields)
    values = data.draw(st.lists(st.one_of(st.none(), texts_of(pa.struct(list(reader.schema)))), max_size=4))
    texts = pa.array(values, pa.string())
    found, misfits = reader._read_each(texts)
    fast = reader._read_with_arrow(texts)
    if fast is not None:
        assert misfits == []
        assert [repr(column.cast(_physical(column.type)).to_pylist()) for column in fast] == [
            repr(column.cast(_physical(column.type)).to_pylist()) for column in found
        ]


def _physical(kind: Any) -> Any:
    """Return a type with integers for times, which Python cannot represent in the year 0."""
    if pa.types.is_struct(kind):
        return pa.struct([(member.name, _physical(member.type)) for member in kind])
    if pa.types.is_list(kind):
        return pa.list_(_physical(kind.value_type))
    return pa.int64() if pa.types.is_timestamp(kind) else pa.int32() if pa.types.is_date(kind) else kind


def test_arrow_reads_what_the_service_usually_stores() -> None:
    kinds = {"a": "integer", "b": "double", "t": "timestamp", "d": "date", "s": "string"}
    schema = StructType.fromJson(
        {"fields": [{"name": name, "type": kind, "nullable": True} for name, kind in kinds.items()]}
    )
    reader = json_reader(schema.fields)
    texts = ['{"a":1,"e":2,"t":"2013-07-01T05:15:00.000000Z"}', None, '{"b":2,"d":"2013-07-01","s":"x"}']
    found = reader._read_with_arrow(pa.array(texts))
    assert found is not None
    assert [column.null_count for column in found] == [2, 2, 2, 2, 2]


@pytest.mark.parametrize("values", [["{}{}", ""], ['{"a":1', ',"b":2}{}'], ['{"a":"', '"}{}'], ["{}", "{} {}", "{"]])
def test_texts_that_together_have_as_many_objects_are_not_read_together(values: list[str]) -> None:
    with pytest.raises(UnreadableMembersError):
        read_members(pa.array(values), pa.schema([("a", pa.int32())]))


def test_a_misfit_has_its_row_its_member_and_its_type() -> None:
    reader = json_reader([StructField("a", IntegerType()), StructField("b", IntegerType())])
    columns, misfits = reader.read(pa.array(['{"a":1,"b":2}', None, '{"a":"x","b":[3]}', '{"b":{}}']))
    assert [column.to_pylist() for column in columns] == [[1, None, None, None], [2, None, None, None]]
    assert misfits == [Misfit(2, 0, "string"), Misfit(2, 1, "array"), Misfit(3, 1, "object")]


@pytest.mark.parametrize(
    ("text", "found"),
    [("3.14", "number"), ("2147483648", "number"), ("true", "boolean"), ('{"b":1}', "object"), ("[1]", "array")],
)
def test_a_value_that_does_not_fit_is_null_and_has_its_json_type(text: str, found: str) -> None:
    [column], misfits = json_reader([StructField("a", IntegerType())]).read(pa.array([f'{{"a":{text}}}']))
    assert (column.to_pylist(), misfits) == ([None], [Misfit(0, 0, found)])


@pytest.mark.parametrize(
    "kind",
    [
        MapType(IntegerType(), StringType()),
        DayTimeIntervalType(),
        StructType([StructField("x", IntegerType()), StructField("x", IntegerType())]),
    ],
    ids=["map", "interval", "repeated member"],
)
def test_a_type_that_cannot_be_read_is_refused_with_its_column(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"column c is .*, which cannot be read from JSON: read it as string"):
        json_reader([StructField("c", kind)])


def test_the_cases_have_misfits_and_values() -> None:
    assert {expected == MISFIT for _, _, expected in CASES} == {True, False}
