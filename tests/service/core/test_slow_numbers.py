"""Doubles that msgspec would take long to decode are the same doubles."""

import msgspec
import pytest

from tableside.core import values
from tableside.core.json_errors import NotJson
from tableside.core.slow_numbers import SLOW_NUMBERS_MAX, has_slow_numbers

SLOW = ("4.9e-324", "1.2345678901234567e-300", "1.7976931348623157E+308", "1.5e308", "-5E-320", "0." + "0" * 315 + "12")
MANY = SLOW_NUMBERS_MAX + 1


def array(number: str, count: int = MANY) -> str:
    return f"[{','.join([number] * count)}]"


@pytest.mark.parametrize("number", SLOW)
def test_many_slow_numbers_keep_their_values(number: str) -> None:
    assert has_slow_numbers(array(number))
    assert has_slow_numbers(array(number).encode())
    assert values.parse(array(number)) == [float(number)] * MANY
    assert not has_slow_numbers(array(number, 100))


@pytest.mark.parametrize("number", SLOW)
def test_msgspec_does_not_decode_many_of_them(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msgspec.json, "decode", None)
    assert values.parse(array(number)) == [float(number)] * MANY


@pytest.mark.parametrize("text", [array("1.5"), array("1234567"), array('"some letters e"'), array('{"price":12.5}')])
def test_other_texts_are_not_slow(text: str) -> None:
    assert not has_slow_numbers(text)


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
