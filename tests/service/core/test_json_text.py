"""The limit on the elements of a text, and doubles that msgspec would take long to parse."""

import json
import tracemalloc

import pytest

from tableside.core import values
from tableside.core.errors import TooLarge
from tableside.core.json_text import ELEMENTS_MAX, SLOW_NUMBERS_MAX, NotJson, check_elements

FULL = {
    "integers": "1," * (ELEMENTS_MAX - 3) + "1",
    "empty arrays": "[]," * (ELEMENTS_MAX // 2 - 2) + "1",
    "objects": '{"a":1},' * (ELEMENTS_MAX // 2 - 2) + "1",
}
"""Members of an array that, with the array and the object around it, have at most as many elements as allowed."""


@pytest.mark.parametrize("members", FULL.values(), ids=FULL)
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


@pytest.mark.parametrize("string", ["x", '"', "\\", '\\"', "a\\\\"])
def test_elements_between_strings_count(string: str) -> None:
    text = json.dumps([string] * (ELEMENTS_MAX + 1), separators=(",", ":"))
    with pytest.raises(TooLarge):
        check_elements(text)
    check_elements(json.dumps([string] * (ELEMENTS_MAX - 1), separators=(",", ":")))


@pytest.mark.parametrize("element", [b"[[]]", b"1.0", b"[]", b'{"a":1}', b'""', b"[1.0]"])
def test_a_large_body_of_small_elements_takes_no_additional_memory(element: bytes) -> None:
    text = b'{"a":[' + b",".join([element] * (15 * 2**20 // (len(element) + 1))) + b"]}"
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            values.parse(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(text)


@pytest.mark.parametrize("element", ["[[]]", "1.0", "[]", '{"a":1}', '"x"', "[1.0]", "[[1.5]]"])
def test_a_full_value_takes_a_bounded_amount_of_memory(element: str) -> None:
    count = ELEMENTS_MAX // (1 + sum(map(element.count, ",[{"))) - 2
    text = f'{{"a":[{",".join([element] * count)}]}}'.encode()
    tracemalloc.start()
    try:
        values.encode(values.parse(text))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(text) + 2**26


def test_encoding_takes_memory_proportional_to_the_length() -> None:
    tracemalloc.start()
    try:
        texts = [values.encode({"n": number}) for number in range(1000)]
        texts += [values.encode_sorted({"n": float(number)}) for number in range(1000)]
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert size < 200 * len(texts)


SLOW = ("4.9e-324", "1.2345678901234567e-300", "1.7976931348623157E+308", "1.5e308", "-5E-320", "0." + "0" * 315 + "12")
MANY = SLOW_NUMBERS_MAX + 1


def array(number: str) -> str:
    return f"[{','.join([number] * MANY)}]"


@pytest.mark.parametrize("number", SLOW)
def test_many_slow_numbers_keep_their_values(number: str) -> None:
    assert values.parse(array(number)) == [float(number)] * MANY
    assert values.parse(array(number).encode()) == [float(number)] * MANY


@pytest.mark.parametrize("wrong", ["1e400", "-1E999", "NaN", "1e", "0x1", '"\ud800"'])
def test_the_same_numbers_are_rejected_among_few_and_many(wrong: str) -> None:
    for text in (f"[{wrong}]", array(SLOW[0])[:-1] + f",{wrong}]"):
        with pytest.raises(NotJson) as refusal:
            values.parse(text)
        assert refusal.value.reason


def test_numbers_next_to_slow_ones_are_unchanged() -> None:
    parsed = values.parse(array(SLOW[0])[:-1] + ",9223372036854775807,1.0,-0.0,true]")
    assert isinstance(parsed, list)
    assert parsed[MANY:] == [2**63 - 1, 1.0, 0.0, True]
    assert [type(member) for member in parsed[MANY:]] == [int, float, float, bool]
