"""JSON values to DynamoDB's attributes and back, without loss.

A number of DynamoDB has 38 decimal digits, which hold every 64-bit integer and the 17 digits that tell one double
from every other. What only other tools write is read too: a set is an array in the order of its elements, binary is
base64 text, a number that is no 64-bit integer is the nearest double. Attributes are as they stand on the wire.
Knows nothing of keys, tables or calls.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

import orjson

from ...core import INTEGER_MAX, INTEGER_MIN, InvalidOperation, Json, normalize_number

Attribute: TypeAlias = dict[str, Any]
Item: TypeAlias = dict[str, Attribute]

MAGNITUDE_MIN = 1e-130
MAGNITUDE_MAX = 9.9999999999999999999999999999999999999e125


def to_attribute(member: Json) -> Attribute:
    """Return the attribute that holds a member. Raise InvalidOperation for a number that DynamoDB has not."""
    kind = type(member)
    if kind is str:
        return {"S": member}
    if kind is int:
        return {"N": str(member)}
    if kind is float:
        return {"N": _number_text(member)}  # type: ignore[arg-type]  # just seen
    if kind is bool:
        return {"BOOL": member}
    if member is None:
        return {"NULL": True}
    if isinstance(member, dict):
        return {"M": {name: to_attribute(inner) for name, inner in member.items()}}
    assert isinstance(member, list)
    return {"L": [to_attribute(inner) for inner in member]}


def from_attribute(attribute: Attribute) -> Json:
    """Return the member that an attribute holds. Raise ValueError or KeyError if it is no attribute."""
    [(kind, raw)] = attribute.items()
    if kind == "S":
        text: str = raw
        return text
    return _FROM[kind](raw)


def alike(member: Json, present: Attribute | None) -> Attribute:
    """Return the attribute that holds a member; where a present one holds it already, or parts of it, as that does.

    So a set stays a set, and a number keeps its digits, beside what has changed.
    """
    if present is None:
        return to_attribute(member)
    if isinstance(member, dict) and "M" in present:
        inner = present["M"]
        return {"M": {name: alike(one, inner.get(name)) for name, one in member.items()}}
    if isinstance(member, list) and "L" in present:
        elements = present["L"]
        return {"L": [alike(one, elements[at] if at < len(elements) else None) for at, one in enumerate(member)]}
    return present if same(from_attribute(present), member) else to_attribute(member)


def same(one: Json, other: Json) -> bool:
    """Whether two are the same JSON; in Python 1, 1.0 and True are equal."""
    return type(one) is type(other) and one == other and orjson.dumps(one) == orjson.dumps(other)


def size_bytes(name: str, attribute: Attribute) -> int:
    """Return how many bytes an attribute counts for, by DynamoDB's rules."""
    return len(name.encode()) + _size(attribute)


def to_number(text: str) -> Json:
    """Return the 64-bit integer that a number is, or else the nearest double."""
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
        raise InvalidOperation("DynamoDB has no numbers beyond 1e-130 to 9.99e125 in magnitude")
    return repr(member)


def _map(raw: dict[str, Attribute]) -> Json:
    return {name: from_attribute(attribute) for name, attribute in raw.items()}


def _list(raw: list[Attribute]) -> Json:
    return [from_attribute(attribute) for attribute in raw]


def _null(raw: object) -> Json:
    return None


def _as_it_is(raw: Any) -> Json:
    result: Json = raw
    return result


def _numbers(raw: list[str]) -> Json:
    return [to_number(text) for text in sorted(raw, key=Decimal)]


def _strings(raw: list[str]) -> Json:
    return [*sorted(raw)]


_FROM: dict[str, Callable[[Any], Json]] = {
    "S": _as_it_is,
    "N": to_number,
    "BOOL": _as_it_is,
    "NULL": _null,
    "M": _map,
    "L": _list,
    "SS": _strings,
    "NS": _numbers,
    "B": _as_it_is,
    "BS": _strings,
}


def _size(attribute: Attribute) -> int:
    [(kind, raw)] = attribute.items()
    match kind:
        case "S":
            return len(raw.encode())
        case "N":
            return _number_size(raw)
        case "M":
            return 3 + sum(1 + size_bytes(name, one) for name, one in raw.items())
        case "L":
            return 3 + sum(1 + _size(one) for one in raw)
        case "B":
            return len(raw) * 3 // 4
        case "SS" | "NS" | "BS":
            return sum(_size({kind[0]: one}) for one in raw)
    return 1


def _number_size(text: str) -> int:
    """Return one byte for each two digits that count, and one; and one for a sign."""
    digits = text.lower().partition("e")[0].lstrip("-").replace(".", "").strip("0")
    return (len(digits) + 1) // 2 + 1 + text.startswith("-")
