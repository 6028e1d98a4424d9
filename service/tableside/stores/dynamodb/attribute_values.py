"""Converts JSON values to DynamoDB's attributes and back, without loss.

DynamoDB's numbers have 38 decimal digits, enough for every 64-bit integer and for the 17 digits that identify a double.
Attribute types that only other tools write can be read too: a set becomes a sorted array, binary becomes base64 text,
and a number that is not a 64-bit integer becomes the nearest double. Attributes have their wire format.
"""

from collections.abc import Callable
from decimal import Decimal
from itertools import zip_longest
from typing import Any, TypeAlias

import orjson

from ...core import INTEGER_MAX, INTEGER_MIN, InvalidOperation, Json, normalize_number

Attribute: TypeAlias = dict[str, Any]
Item: TypeAlias = dict[str, Attribute]

MAGNITUDE_MIN = 1e-130
MAGNITUDE_MAX = 9.9999999999999999999999999999999999999e125


def to_attribute(member: Json) -> Attribute:
    """Return a member's attribute. Raise InvalidOperation for a number that DynamoDB cannot represent."""
    kind = type(member)
    if kind is str:
        return {"S": member}
    if kind is int:
        return {"N": str(member)}
    if kind is float:
        return {"N": _number_text(member)}  # type: ignore[arg-type]  # checked above
    if kind is bool:
        return {"BOOL": member}
    if member is None:
        return {"NULL": True}
    if isinstance(member, dict):
        return {"M": {name: to_attribute(inner) for name, inner in member.items()}}
    assert isinstance(member, list)
    return {"L": [to_attribute(inner) for inner in member]}


def from_attribute(attribute: Attribute) -> Json:
    """Return an attribute's member. Raise ValueError or KeyError if it is not a valid attribute."""
    [(kind, raw)] = attribute.items()
    if kind == "S":
        text: str = raw
        return text
    return _CONVERTERS[kind](raw)


def to_attribute_like(member: Json, present: Attribute | None) -> Attribute:
    """Return a member's attribute, reusing the present attribute, or the parts of it, that have the same value.

    So unchanged sets stay sets, and unchanged numbers keep all digits.
    """
    if present is None:
        return to_attribute(member)
    if isinstance(member, dict) and "M" in present:
        inner = present["M"]
        return {"M": {name: to_attribute_like(value, inner.get(name)) for name, value in member.items()}}
    if isinstance(member, list) and "L" in present:
        elements = present["L"]
        pairs = zip_longest(member, elements[: len(member)])
        return {"L": [to_attribute_like(value, element) for value, element in pairs]}
    return present if equal_json(from_attribute(present), member) else to_attribute(member)


def equal_json(one: Json, other: Json) -> bool:
    """Return whether two values are the same JSON. In Python, 1, 1.0 and True are equal."""
    return type(one) is type(other) and one == other and orjson.dumps(one) == orjson.dumps(other)


def size_bytes(name: str, attribute: Attribute) -> int:
    """Return an attribute's size by DynamoDB's rules."""
    return len(name.encode()) + _attribute_size(attribute)


def parse_number(text: str) -> Json:
    """Return a number as a 64-bit integer, or else as the nearest double."""
    try:
        whole = int(text)
    except ValueError:
        exact = Decimal(text)
        if not INTEGER_MIN <= exact <= INTEGER_MAX or exact != exact.to_integral_value():
            return normalize_number(float(text))
        return int(exact)
    return whole if INTEGER_MIN <= whole <= INTEGER_MAX else normalize_number(float(whole))


def _number_text(member: float) -> str:
    if member and not MAGNITUDE_MIN <= abs(member) <= MAGNITUDE_MAX:
        raise InvalidOperation("DynamoDB supports numbers with magnitudes from 1e-130 to 9.99e125")
    return repr(member)


def _from_map(raw: dict[str, Attribute]) -> Json:
    return {name: from_attribute(attribute) for name, attribute in raw.items()}


def _from_list(raw: list[Attribute]) -> Json:
    return [from_attribute(attribute) for attribute in raw]


def _from_null(raw: object) -> Json:
    return None


def _unchanged(raw: Any) -> Json:
    result: Json = raw
    return result


def _from_number_set(raw: list[str]) -> Json:
    return [parse_number(text) for text in sorted(raw, key=Decimal)]


def _from_string_set(raw: list[str]) -> Json:
    return [*sorted(raw)]


_CONVERTERS: dict[str, Callable[[Any], Json]] = {
    "S": _unchanged,
    "N": parse_number,
    "BOOL": _unchanged,
    "NULL": _from_null,
    "M": _from_map,
    "L": _from_list,
    "SS": _from_string_set,
    "NS": _from_number_set,
    "B": _unchanged,
    "BS": _from_string_set,
}


def _attribute_size(attribute: Attribute) -> int:
    [(kind, raw)] = attribute.items()
    match kind:
        case "S":
            return len(raw.encode())
        case "N":
            return _number_size(raw)
        case "M":
            return 3 + sum(1 + size_bytes(name, one) for name, one in raw.items())
        case "L":
            return 3 + sum(1 + _attribute_size(one) for one in raw)
        case "B":
            return len(raw) * 3 // 4
        case "SS" | "NS" | "BS":
            return sum(_attribute_size({kind[0]: one}) for one in raw)
    return 1


def _number_size(text: str) -> int:
    """Return one byte for every two significant digits, one more, and one for a minus sign."""
    digits = text.lower().partition("e")[0].lstrip("-").replace(".", "").strip("0")
    return (len(digits) + 1) // 2 + 1 + text.startswith("-")
