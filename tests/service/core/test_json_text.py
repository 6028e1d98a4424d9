"""The limit on the elements of a text, and doubles that msgspec would take long to parse."""

import json

import pytest

from tableside.core import values
from tableside.core.errors import TooLarge
from tableside.core.values import ELEMENTS_MAX, SLOW_NUMBERS_MAX, NotJson, check_elements

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
