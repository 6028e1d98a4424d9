"""Projections of many values give the same as those of one."""

import orjson
import pytest
from hypothesis import given, strategies as st

from tableside.http.wire.projections import DECODER_FIELDS_MAX, VALUES_MIN, projection

names = st.sampled_from(["a", "b", "ü", "a.b", "member_0", 'quo"te', "back\\slash", "line\n", " "])
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text())
members = st.recursive(
    scalars.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(names, members), st.frozensets(names))
def test_a_projection_of_many_values_equals_single_projections(
    value: dict[str, object], fields: frozenset[str]
) -> None:
    text = orjson.dumps(value)
    [one, many] = [orjson.loads(projection(fields, count)(text)) for count in (1, VALUES_MIN)]
    assert one == many == {name: member for name, member in value.items() if name in fields}


@pytest.mark.parametrize("count", [1, VALUES_MIN])
def test_a_projection_has_the_requested_members(count: int) -> None:
    text = b'{"a":9007199254740993,"b":{"a":1},"c":null,"d":0.1}'
    assert projection(frozenset({"a", "c", "x"}), count)(text) == b'{"a":9007199254740993,"c":null}'
    assert projection(frozenset(), count)(text) == b"{}"
    assert projection(frozenset({"b", "d"}), count)(text) == b'{"b":{"a":1},"d":0.1}'


def test_numbers_and_nested_texts_are_unchanged() -> None:
    text = b'{"large":9007199254740993,"nested":{"x":[1,{"y":0.1}]},"none":null,"text":"\\u0007"}'
    fields = frozenset(["large", "nested", "none", "text", "absent"])
    assert projection(fields, VALUES_MIN)(text) == projection(fields, 1)(text)


@pytest.mark.parametrize("count", [1, VALUES_MIN])
@pytest.mark.parametrize(
    "fields", [frozenset[str](), frozenset(str(number) for number in range(DECODER_FIELDS_MAX + 1))]
)
def test_no_field_and_more_than_the_maximum_are_projected(count: int, fields: frozenset[str]) -> None:
    assert projection(fields, count)(b'{"0":[1],"x":2}') == (b'{"0":[1]}' if fields else b"{}")
