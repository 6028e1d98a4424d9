"""The encoding of keys preserves their order and is reversible, and the bounds of a scan are exact."""

from typing import Any
from urllib.parse import quote

from hypothesis import example, given, settings, strategies as st

from contract import COMPOSITE, INTEGERS, STRINGS, THREE_PARTS
from tableside.core import PageBuilder, Record, Scan
from tableside.core.keys import KeyField, KeySchema
from tableside.core.operations import Key

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


def test_a_page_ends_when_its_keys_reach_the_limit_of_bytes_as_json() -> None:
    page = PageBuilder(Scan(1000, bytes_max=100_000))
    while not page.complete:
        page.add(("\1" * 1024,) * 8, Record(b"{}", "e"))
    assert len(page.records) == 3, "each has 48 KiB"
