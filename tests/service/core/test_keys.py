"""Keys: which are valid, how they are written in a path, and that their encoding preserves their order."""

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import assume, example, given, settings, strategies as st

from contract import COMPOSITE, INTEGERS, STRINGS, THREE_PARTS, UNUSUAL_KEYS
from tableside.core.errors import InvalidOperation, MalformedRequest
from tableside.core.keys import KeyField, KeySchema, prefix_end
from tableside.core.operations import Key
from tableside.core.values import JsonObject

TWO_STRINGS = KeySchema((KeyField("a", "string"), KeyField("b", "string")))
STRING_IN_THE_MIDDLE = KeySchema((KeyField("a", "integer"), KeyField("b", "string"), KeyField("c", "integer")))
SCHEMAS = [STRINGS, INTEGERS, COMPOSITE, TWO_STRINGS, THREE_PARTS, STRING_IN_THE_MIDDLE]

# Few characters, so that parts often share a prefix. Some are adjacent in byte order but not in UTF-16 order.
strings = st.text(st.sampled_from("\x01 abz\x7f\u0080ü\u07ff\uffff\U00010000\U0010ffff"), min_size=1, max_size=5)
integers = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 255, 256, -256, 2**63 - 1, -(2**63)])
PARTS: dict[str, st.SearchStrategy[Any]] = {"string": strings, "integer": integers}


def keys_of(schema: KeySchema) -> st.SearchStrategy[Any]:
    parts = st.tuples(*(PARTS[field.type] for field in schema.fields))
    return parts if schema.composite else parts.map(lambda tuple_of_one: tuple_of_one[0])


def order(key: Key) -> list[bytes | int]:
    """Return the sort key of a key: each part as UTF-8 bytes or as a number."""
    return [part.encode() if isinstance(part, str) else part for part in (key if isinstance(key, tuple) else (key,))]


with_two_keys = st.sampled_from(SCHEMAS).flatmap(
    lambda schema: st.tuples(st.just(schema), keys_of(schema), keys_of(schema))
)


@settings(max_examples=800, deadline=None)
@given(with_two_keys)
@example((TWO_STRINGS, ("a", "b"), ("a\x01", "a")))
@example((TWO_STRINGS, ("a", "\U0010ffff"), ("aa", "\x01")))
@example((COMPOSITE, ("a", 2**63 - 1), ("a\x01", -(2**63))))
def test_encoded_keys_sort_as_keys_do(given_keys: tuple[KeySchema, Key, Key]) -> None:
    schema, one, other = given_keys
    one_text, other_text = schema.encode(one), schema.encode(other)
    assert (one_text < other_text) == (order(one) < order(other))
    assert (one_text == other_text) == (one == other)


@settings(max_examples=500, deadline=None)
@given(with_two_keys)
def test_encoding_and_path_of_a_key_are_reversible(given_keys: tuple[KeySchema, Key, Key]) -> None:
    schema, key, _ = given_keys
    assert schema.decode(schema.encode(key)) == key
    segments = [quote(str(part), safe="").encode() for part in (key if isinstance(key, tuple) else (key,))]
    assert schema.from_path(segments) == key
    assert schema.from_json(list(key) if isinstance(key, tuple) else key) == key


@settings(max_examples=200, deadline=None)
@given(with_two_keys)
def test_keys_encoded_together_equal_keys_encoded_separately(given_keys: tuple[KeySchema, Key, Key]) -> None:
    schema, *keys = given_keys
    assert schema.encode_all(keys, b"t\0") == [b"t\0" + schema.encode(key) for key in keys]


@pytest.mark.parametrize("key", UNUSUAL_KEYS, ids=lambda key: key[:10].encode("unicode_escape").decode())
def test_unusual_keys_are_valid_in_a_path(key: str) -> None:
    assert STRINGS.from_path([quote(key, safe="").encode()]) == key
    assert STRINGS.from_json(key) == key
    assert STRINGS.decode(STRINGS.encode(key)) == key


@pytest.mark.parametrize(
    ("segment", "key"),
    [(b"a%2Fb", "a/b"), (b"%20", " "), (b"%C3%BC", "ü"), (b"%c3%bc", "ü"), (b"%252F", "%2F"), (b"%25", "%"),
     (b"+", "+"), ("ü".encode(), "ü"), (b"a%3Fb%23c", "a?b#c"), (b"%2e%2e", "..")],
)  # fmt: skip
def test_a_segment_of_a_path_is_percent_decoded_once(segment: bytes, key: str) -> None:
    assert STRINGS.from_path([segment]) == key


@pytest.mark.parametrize("segment", [b"%", b"%2", b"%zz", b"a%G0", b"100%"])
def test_a_broken_escape_is_malformed(segment: bytes) -> None:
    with pytest.raises(MalformedRequest):
        STRINGS.from_path([segment])


@pytest.mark.parametrize(
    ("schema", "segments"),
    [
        (STRINGS, []), (STRINGS, [b"a", b"b"]), (STRINGS, [b""]), (STRINGS, [b"%00"]), (STRINGS, [b"a%00b"]),
        (STRINGS, [b"%FF"]), (STRINGS, [b"%ED%A0%80"]), (STRINGS, [b"x" * 1025]), (STRINGS, [b"%C3%BC" * 513]),
        (INTEGERS, [b""]), (INTEGERS, [b"a"]), (INTEGERS, [b"1.0"]), (INTEGERS, [b"+1"]), (INTEGERS, [b"01"]),
        (INTEGERS, [b"-"]), (INTEGERS, [b"1e3"]), (INTEGERS, [b" 1"]), (INTEGERS, [b"1%0A"]), (INTEGERS, [b"\xd9\xa1"]),
        (INTEGERS, [b"9223372036854775808"]), (INTEGERS, [b"-9223372036854775809"]), (INTEGERS, [b"1" * 100]),
        (COMPOSITE, [b"u"]), (COMPOSITE, [b"u", b"x"]), (COMPOSITE, [b"u", b"1", b"2"]), (COMPOSITE, [b"", b"1"]),
    ],
)  # fmt: skip
def test_an_illegal_key_in_a_path_is_refused(schema: KeySchema, segments: list[bytes]) -> None:
    with pytest.raises(InvalidOperation):
        schema.from_path(segments)


@pytest.mark.parametrize(
    ("schema", "raw"),
    [
        (STRINGS, ""), (STRINGS, 1), (STRINGS, None), (STRINGS, True), (STRINGS, ["a"]), (STRINGS, {}),
        (STRINGS, "a\0"), (STRINGS, "\0" + "x" * 500), (STRINGS, "x" * 1025), (STRINGS, "ü" * 513),
        (STRINGS, "🛫" * 257),
        (INTEGERS, "1"), (INTEGERS, True), (INTEGERS, None), (INTEGERS, 1.5), (INTEGERS, 2**63),
        (INTEGERS, -(2**63) - 1),
        (INTEGERS, 2.0**63), (INTEGERS, float("inf")), (INTEGERS, float("nan")), (INTEGERS, [1]),
        (COMPOSITE, "u"), (COMPOSITE, ["u"]), (COMPOSITE, ["u", "1"]), (COMPOSITE, [1, 1]), (COMPOSITE, ["u", 1, 1]),
        (COMPOSITE, ["", 1]), (COMPOSITE, {"user": "u", "day": 1}), (COMPOSITE, ["u", None]), (COMPOSITE, []),
    ],
    ids=lambda one: str(one)[:30].replace("\0", "NUL"),
)  # fmt: skip
def test_an_illegal_key_in_json_is_refused(schema: KeySchema, raw: object) -> None:
    with pytest.raises(InvalidOperation):
        schema.from_json(raw)


@pytest.mark.parametrize("length", [1, 10, 256, 257, 1000])
def test_a_lone_surrogate_in_a_key_is_refused(length: int) -> None:
    with pytest.raises(InvalidOperation):
        STRINGS.from_json("\ud800" + "x" * (length - 1))


@pytest.mark.parametrize("raw", ["x" * 1024, "ü" * 512, "🛫" * 256, "x" * 255 + "ü", "ü" * 256, "ü" * 257])
def test_a_string_in_a_key_has_up_to_1024_bytes(raw: str) -> None:
    assert STRINGS.from_json(raw) == raw


def test_an_integer_in_a_key_may_be_written_as_a_double() -> None:
    key = INTEGERS.from_json(1.0)
    assert (type(key), key) == (int, 1)


def test_members_equal_to_the_key_are_removed_and_different_ones_rejected() -> None:
    assert COMPOSITE.without_key({"user": "u", "day": 1, "n": 2}, ("u", 1)) == {"n": 2}
    assert COMPOSITE.without_key({"day": 1.0, "n": 2}, ("u", 1)) == {"n": 2}
    assert STRINGS.without_key({"key": "other"}, "k") == {"key": "other"}
    others: list[JsonObject] = [
        {"user": "v"},
        {"day": 2},
        {"day": "1"},
        {"user": None},
        {"day": None},
        {"day": True},
        {"user": {}},
    ]
    for value in others:
        with pytest.raises(InvalidOperation):
            COMPOSITE.without_key(dict(value), ("u", 1))
    assert (COMPOSITE.has_names, INTEGERS.has_names, STRINGS.has_names) == (True, True, False)
    assert (COMPOSITE.composite, INTEGERS.composite, STRINGS.composite) == (True, False, False)


@settings(max_examples=500, deadline=None)
@given(with_two_keys, st.sampled_from(["", "a", "ü", "\uffff", "\U0010ffff", "ab"]))
def test_the_bounds_of_a_scan_contain_exactly_the_requested_keys(
    given_keys: tuple[KeySchema, Any, Any], prefix: str
) -> None:
    schema, key, other = given_keys
    text = schema.encode(key)

    def contains_key(bounds: tuple[bytes, bytes | None]) -> bool:
        return bounds[0] <= text and (bounds[1] is None or text < bounds[1])

    assert contains_key(schema.bounds(None, None))
    first = key[0] if schema.composite else key
    if schema.composite:
        partition = other[0]
        assert contains_key(schema.bounds(partition, None)) == (first == partition)
        if schema.fields[1].type == "string":
            assert contains_key(schema.bounds(partition, prefix)) == (first == partition and key[1].startswith(prefix))
    if schema.fields[0].type == "string":
        assert contains_key(schema.bounds(None, prefix)) == first.startswith(prefix)


def test_a_prefix_of_an_integer_is_refused() -> None:
    with pytest.raises(InvalidOperation):
        INTEGERS.bounds(None, "1")
    with pytest.raises(InvalidOperation):
        COMPOSITE.bounds("u", "1")
    assert INTEGERS.bounds(None, "") == INTEGERS.bounds(None, None)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=4), st.binary(max_size=6))
def test_the_end_of_a_prefix_range_is_above_all_keys_with_the_prefix(prefix: bytes, text: bytes) -> None:
    end = prefix_end(prefix)
    assume(text >= prefix)
    assert text.startswith(prefix) == (end is None or text < end) or (end is None and not prefix.strip(b"\xff"))
