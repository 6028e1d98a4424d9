"""JSON text to values and back, with the rules of what a value may be.

A value is an object nested at most 30 deep. Its numbers are signed 64-bit integers or finite doubles, and a double
equal to such an integer is that integer. Stores hold values as the canonical text that `encode` makes, so that most
of the time nobody has to look inside again. Knows nothing of keys, tables or stores.
"""

import re
from typing import TypeAlias

import msgspec
import orjson

from .errors import InvalidOperation, MalformedRequest

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
JsonObject: TypeAlias = dict[str, Json]

DEPTH_MAX = 30
INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**63 - 1
RESERVED_PREFIX = "_ts"

_SURROGATE = re.compile("[\ud800-\udfff]")
_ALIKE = bytes.maketrans(b"123456789[", b"000000000{")


def parse(text: bytes | str) -> Json:
    """Read JSON text, integers exactly and of repeated names the last. Raise MalformedRequest if it is not JSON.

    Not JSON, by the contract, are also numbers beyond a double's range, NaN, lone surrogates and wrong UTF-8.
    """
    try:
        value: Json = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise MalformedRequest(f"not JSON: {_without_text(error)}") from None
    except RecursionError:
        raise MalformedRequest("not JSON that can be read: nested too deep") from None
    return value


def encode(value: object) -> bytes:
    """Return the canonical JSON text of a value. Raise InvalidOperation if it breaks a rule."""
    if type(value) is not dict:
        raise InvalidOperation("a value is a JSON object")
    try:
        text = orjson.dumps(value)
    except (orjson.JSONEncodeError, RecursionError):
        return orjson.dumps(normalize(value))
    if _suspect(text):
        return orjson.dumps(normalize(value))
    return text


def encode_sorted(value: object) -> bytes:
    """Return the canonical JSON text of a value with its members in the order of their names, at every depth."""
    if type(value) is not dict:
        raise InvalidOperation("a value is a JSON object")
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONEncodeError, RecursionError):
        return orjson.dumps(normalize(value), option=orjson.OPT_SORT_KEYS)
    if _suspect(text):
        return orjson.dumps(normalize(value), option=orjson.OPT_SORT_KEYS)
    return text


def decode(text: bytes) -> JsonObject:
    """Read the canonical text of a value."""
    value: JsonObject = orjson.loads(text)
    return value


def normalize(value: Json) -> JsonObject:
    """Return a copy of a value with its numbers made canonical. Raise InvalidOperation if it breaks a rule."""
    if type(value) is not dict:
        raise InvalidOperation("a value is a JSON object")
    for name in value:
        if name.startswith(RESERVED_PREFIX):
            raise InvalidOperation("a top-level member's name may not begin with _ts")
    copy = normalize_member(value)
    assert isinstance(copy, dict)
    return copy


def normalize_member(value: Json, depth: int = 1) -> Json:
    """Return a copy of what may stand anywhere inside a value. Raise InvalidOperation if it breaks a rule."""
    match value:
        case str():
            return _text(value)
        case bool() | None:
            return value
        case int():
            return checked_integer(value)
        case float():
            return normalize_number(value)
        case dict():
            _check_depth(depth)
            return {_name(name): normalize_member(member, depth + 1) for name, member in value.items()}
        case list():
            _check_depth(depth)
            return [normalize_member(member, depth + 1) for member in value]


def checked_integer(value: int) -> int:
    """Return the integer. Raise InvalidOperation if it needs more than 64 bits."""
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise InvalidOperation("an integer is beyond 64 bits")
    return value


def normalize_number(value: float) -> int | float:
    """Return the double, or the 64-bit integer that it equals. Raise InvalidOperation if it is not finite."""
    if value != value or value in (float("inf"), float("-inf")):
        raise InvalidOperation("a number is not finite")
    if value.is_integer() and INTEGER_MIN <= value <= INTEGER_MAX and int(value) <= INTEGER_MAX:
        return int(value)
    return value


def project(text: bytes, fields: frozenset[str]) -> bytes:
    """Return a value's text with only those top-level members."""
    return orjson.dumps({name: member for name, member in decode(text).items() if name in fields})


def _suspect(text: bytes) -> bool:
    """Whether encoded text might break a rule or hold a number that is not canonical; it may say so too often.

    Looking for fixed characters in a string is ten times as fast as a regular expression, and twice as fast as in
    bytes; digits are made alike for it, and brackets too.
    """
    whole = text.decode()
    if ".0" in whole and (".0," in whole or ".0}" in whole or ".0]" in whole):
        return True
    alike = text.translate(_ALIKE).decode("latin-1")
    return (
        "0e" in alike
        or "0000000000000000000" in alike
        or '"_ts' in alike
        or '"":' in alike
        or "\\u0000" in alike
        or alike.count("{") > DEPTH_MAX
    )


def _text(value: str) -> str:
    if "\0" in value:
        raise InvalidOperation("a string holds U+0000")
    if not value.isascii() and _SURROGATE.search(value):
        raise InvalidOperation("a string holds a lone surrogate")
    return value


def _name(name: str) -> str:
    if not name:
        raise InvalidOperation("a member's name is empty")
    return _text(name)


def _check_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise InvalidOperation(f"a value is nested more than {DEPTH_MAX} deep")


def _without_text(error: Exception) -> str:
    """Say where it went wrong, and nothing of what stood there."""
    position = re.search(r"\(byte (\d+)\)", str(error))
    return f"wrong at byte {position[1]}" if position else "wrong encoding, number or end"
