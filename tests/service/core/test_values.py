"""Which values are valid, and that their canonical text is stable."""

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from tableside.core import values
from tableside.core.errors import InvalidOperation, MalformedRequest, TooLarge
from tableside.core.values import ELEMENTS_MAX, SLOW_NUMBERS_MAX, NotJson


def canonical(text: str) -> bytes:
    """Parse JSON text and encode it, as a put does."""
    return values.encode(values.parse(text))


def nested(depth: int, leaf: str = "{}", opening: str = '{"d":', closing: str = "}") -> str:
    """Return JSON text with this nesting depth, which includes the leaf."""
    return opening * (depth - 1) + leaf + closing * (depth - 1)


@pytest.mark.parametrize(
    ("literal", "number"),
    [
        ("0", "0"), ("-0", "0"), ("-0.0", "0"), ("0e5", "0"), ("1.0", "1"), ("-1.0", "-1"), ("1E2", "100"),
        ("1e-1", "0.1"),
        ("0.1", "0.1"), ("10e-1", "1"), ("9007199254740993", "9007199254740993"),
        ("9007199254740992.0", "9007199254740992"), ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"), ("-9223372036854775808.0", "-9223372036854775808"),
        ("1e18", "1000000000000000000"), ("123456789012345680.0", "123456789012345680"),
        ("999999999999999900.0", "999999999999999872"), ("100000000000000000000000.0", "1e+23"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"), ("5e-324", "5e-324"), ("1e-400", "0"),
    ],
)  # fmt: skip
def test_a_number_has_one_text(literal: str, number: str) -> None:
    wanted = f'{{"n":{number}}}'.encode()
    assert canonical(f'{{"n":{literal}}}') == wanted
    assert canonical(f'{{"n":[{literal}]}}') == f'{{"n":[{number}]}}'.encode()
    assert canonical(f'{{"n":[{literal},"x"]}}') == f'{{"n":[{number},"x"]}}'.encode()
    assert canonical(wanted.decode()) == wanted


@pytest.mark.parametrize(
    "text",
    [
        '{"n":NaN}', '{"n":Infinity}', '{"n":-Infinity}', '{"n":1e400}', '{"n":-1e999}', '{"n":01}',
        '{"n":.5}', '{"n":1.}',
        '{"s":"\\ud800"}', '{"s":"\\udc00x"}', '{"s":"\\ud800\\ud800"}', '{"\\udfff":1}', '{"s":"\\x"}', '{"s":"\t"}',
        "", " ", "{", "[1", '{"a":1,}', "{a:1}", "{'a':1}", "{}{}", '{"a"}', "nul",
        "// x\n{}", "\ufeff{}", "[" * 100_000,
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_invalid_json_is_malformed(text: str) -> None:
    with pytest.raises(MalformedRequest) as refusal:
        values.parse(text)
    assert refusal.value.detail.startswith("not JSON")


@pytest.mark.parametrize(
    ("text", "position", "detail"),
    [
        (b'{"a":1,}', 6, "not JSON at byte 6: trailing comma is not allowed"),
        ('{"ü":"x', 8, "not JSON at byte 8: unexpected end of data"),
        ('{"ü":hunter2}'.encode(), 6, "not JSON at byte 6: unexpected character, expected a JSON value"),
        ('{"ü":1e400}'.encode(), 6, "not JSON at byte 6: number is infinity when parsed as double"),
        ('{"ü":"\\ud800"}'.encode(), 7, "not JSON at byte 7: no low surrogate in string"),
        (b'{"s":"\xed\xa0\x80"}', 6, "not JSON at byte 6: invalid UTF-8"),
        (b"{}{}", 2, "not JSON at byte 2: unexpected content after document"),
        (b"", None, "not JSON: the text is empty"),
        ("[" * 100_000, None, "not JSON: nested too deep"),
    ],
    ids=lambda argument: str(argument)[:20],
)
def test_a_rejection_names_the_first_wrong_byte(text: str | bytes, position: int | None, detail: str) -> None:
    with pytest.raises(NotJson) as rejection:
        values.parse(text)
    assert (rejection.value.position, rejection.value.detail) == (position, detail)


@pytest.mark.parametrize(
    "text",
    [
        nested(30),
        nested(30, "[]"),
        nested(30, '{"a":"' + "[{" * 50 + '"}'),
        '{"a":[' + ",".join(["{}"] * 50) + "]}",
    ],
    ids=lambda text: text[:20],
)
def test_a_value_is_nested_thirty_deep_at_most(text: str) -> None:
    assert values.decode(canonical(text)) == orjson.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        nested(31),
        nested(30, "[[]]"),
        '{"a":' + nested(30, "[]", "[", "]") + "}",
        '{"b":1,"a":[1,2,' + nested(29, "{}") + "]}",
        nested(500),
    ],
    ids=lambda text: text[:20],
)
def test_a_value_that_is_nested_deeper_is_refused(text: str) -> None:
    with pytest.raises(InvalidOperation, match="30"):
        canonical(text)


@pytest.mark.parametrize(
    "text",
    ['{"a":"_ts"}', '{"a":{"_ts":1}}', '{"a":[{"_tsx":1}]}', '{"a_ts":1}', '{"_t":1}', '{"_TS":1}', '{" ":1}',
     '{"a":""}',
     '{"$set":1}', '{"a.b":1}', '{"a":"\\\\u0000"}', '{"a":"\\"\\":"}', '{"a":"1.0,"}', '{"a":null}', "{}"],
)  # fmt: skip
def test_values_that_only_look_invalid_are_unchanged(text: str) -> None:
    assert canonical(text) == text.encode()


def test_invalid_surrogates_and_numbers_in_objects_are_rejected() -> None:
    members: list[values.Json] = ["\ud800", ["x\udfff"], {"\ud800": 1}, {"a": ["ü", {"b": "🛫\udc00"}]}, 2**63, [2**64]]
    for member in members:
        with pytest.raises(InvalidOperation):
            values.normalize({"a": member})
        with pytest.raises(InvalidOperation):
            values.encode({"a": member})


numbers = st.one_of(
    st.integers(-(2**64), 2**64),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**63), 2**63 - 1).map(float),
    st.sampled_from([2.0**63, -(2.0**63), 2.0**62, 1e16, 1e17, 1e18, -0.0, 5e-324]),
)
texts = st.text(max_size=8) | st.sampled_from(
    ["", "\0", "_ts", "a\0", '"":', "1.0,", "1e5", "0" * 19, "\\u0000", "[{[{"]
)
members = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
deep = st.builds(
    lambda depth, leaf, text: values.parse(nested(depth, orjson.dumps(leaf).decode(), *text)),
    st.integers(26, 33),
    st.sampled_from([{}, [], 1, [1.0]]),
    st.sampled_from([('{"d":', "}"), ("[", "]")]),
)


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(texts, members | deep, max_size=4))
def test_the_fast_path_of_encoding_equals_full_validation(value: dict[str, Any]) -> None:
    try:
        wanted = orjson.dumps(values.normalize(value))
    except InvalidOperation:
        with pytest.raises(InvalidOperation):
            values.encode(value)
        return
    assert values.encode(value) == wanted


@settings(max_examples=400, deadline=None)
@given(st.lists(st.dictionaries(texts, members | deep, max_size=4), max_size=4))
def test_many_values_are_encoded_like_single_ones(each: list[dict[str, Any]]) -> None:
    try:
        wanted = [values.encode(value) for value in each]
    except InvalidOperation:
        assert values.encode_all(each) is None
        return
    for texts in ((), wanted, [b" "] * len(each)):
        assert values.encode_all(each, texts) in (wanted, None)


def test_numbers_of_many_values_become_canonical_together() -> None:
    each = [{"a": 1.0, "b": [1e18, 0.5], "c": 2**62}, {"s": "1.0,"}, {"d": {"e": -(2**62)}}]
    assert values.encode_all(each) == [values.encode(value) for value in each]
    assert values.encode_all([{"n": 2**63}]) is None


@pytest.mark.parametrize("long", [b'"s"', b"[" * (ELEMENTS_MAX + 1), b'"%b"' % (b"s" * ELEMENTS_MAX)], ids=len)
def test_many_texts_are_parsed_like_single_ones(long: bytes) -> None:
    texts: list[bytes | str] = [b"{", b'{"a":1}', "\ud800", b'{"n":1e400}', long, b"\xff", b"[" * 2000, b"[1]"]
    parsed, rejected = values.parse_all(texts)
    for at, text in enumerate(texts):
        if at in rejected:
            assert parsed[at] == {}
            with pytest.raises((MalformedRequest, TooLarge)):
                values.parse(text)
        else:
            assert parsed[at] == values.parse(text)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(texts, members, max_size=4))
def test_canonical_text_is_stable(value: dict[str, Any]) -> None:
    try:
        text = values.encode(value)
    except InvalidOperation:
        return
    assert values.encode(values.decode(text)) == text
    assert canonical(text.decode()) == text
    assert values.decode(text) == values.parse(text)


@settings(max_examples=200, deadline=None)
@given(numbers)
def test_a_number_keeps_its_value_exactly(number: float) -> None:
    try:
        member: Any = values.decode(values.encode({"n": number}))["n"]
    except InvalidOperation:
        assert isinstance(number, int)
        assert not -(2**63) <= number < 2**63
        return
    assert member == number
    whole = isinstance(number, int) or (math.isfinite(number) and number.is_integer())
    assert type(member) is (int if whole and -(2**63) <= number < 2**63 else float)


# Limits


@pytest.mark.parametrize(
    "members",
    [
        "1," * (ELEMENTS_MAX - 3) + "1",
        "[]," * (ELEMENTS_MAX // 2 - 2) + "1",
        '{"a":1},' * (ELEMENTS_MAX // 2 - 2) + "1",
        '"\\\\",' * (ELEMENTS_MAX - 3) + '"[,"',
    ],
    ids=["integers", "empty arrays", "objects", "strings"],
)
def test_a_value_may_have_as_many_elements_as_the_limit_and_no_more(members: str) -> None:
    full = f'{{"a":[{members}]}}'
    assert values.encode(values.parse(full)) == full.encode()
    for text in (f'{{"a":[{members},1,1,1]}}', f'{{"a":[{members},1,1,1]}}'.encode()):
        with pytest.raises(TooLarge, match=r"at most 100000 elements \(elements_max\)"):
            values.parse(text)


@pytest.mark.parametrize(
    "string",
    ["," * (2 * ELEMENTS_MAX), '"],[' * ELEMENTS_MAX, "\\" * ELEMENTS_MAX + "[" * ELEMENTS_MAX, '\\",{' * ELEMENTS_MAX],
    ids=["commas", "quotes", "backslashes", "backslashes and quotes"],
)
def test_strings_have_no_elements(string: str) -> None:
    for padding in range(6):  # the text is counted in slices, which may end anywhere in the string
        value = {"a": "x" * padding + string, "b": [string, "ü"]}
        for ensure_ascii in (True, False):
            assert values.parse(json.dumps(value, ensure_ascii=ensure_ascii)) == value


@pytest.mark.parametrize("number", ["4.9e-324", "1.2345678901234567e-300", "1.7976931348623157E+308", "-5E-320"])
def test_many_numbers_that_take_long_to_parse_keep_their_values(number: str) -> None:
    count = SLOW_NUMBERS_MAX + 1
    numbers = ",".join([number] * count)
    assert values.parse(f"[{numbers}]") == [float(number)] * count
    with pytest.raises(NotJson):
        values.parse(f"[{numbers},1e400]")
