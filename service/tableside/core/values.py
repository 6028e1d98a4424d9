"""Encode, decode and validate JSON values.

A value is an object nested at most 30 deep. Its numbers are signed 64-bit integers or finite doubles, and a double
equal to such an integer is that integer. Stores keep values as the canonical text that `encode` returns, so most
operations do not decode them.
"""

import re
from typing import TypeAlias

import msgspec
import orjson

from .errors import InvalidOperation
from .json_errors import NotJson, not_json

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
JsonObject: TypeAlias = dict[str, Json]

DEPTH_MAX = 30
INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**63 - 1
RESERVED_PREFIX = "_ts"

_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    str: "a string",
    list: "an array",
    tuple: "an array",
    dict: "an object",
}
_SURROGATE = re.compile("[\ud800-\udfff]")
_CLASS_OF = bytes.maketrans(b"123456789[", b"000000000{")


def parse(text: bytes | str) -> Json:
    """Parse JSON text. Integers are exact; if a member's name is repeated, the last one is used.

    Raise NotJson, with the position of the error, if the text is not JSON. This includes numbers beyond the range of a
    double, NaN, lone surrogates and invalid UTF-8.
    """
    try:
        value: Json = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        raise not_json(text) from None
    except RecursionError:
        raise NotJson("nested too deep") from None
    return value


def encode(value: object) -> bytes:
    """Return the canonical JSON text of a value. Raise InvalidOperation if the value is not valid."""
    if type(value) is not dict:
        raise InvalidOperation("a value is a JSON object")
    try:
        text = orjson.dumps(value)
    except (orjson.JSONEncodeError, RecursionError):
        return orjson.dumps(normalize(value))
    if _needs_normalization(text):
        return orjson.dumps(normalize(value))
    return text


def encode_sorted(value: object) -> bytes:
    """Return the canonical JSON text of a value with its members sorted by name at every depth."""
    if type(value) is not dict:
        raise InvalidOperation("a value is a JSON object")
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONEncodeError, RecursionError):
        return orjson.dumps(normalize(value), option=orjson.OPT_SORT_KEYS)
    if _needs_normalization(text):
        return orjson.dumps(normalize(value), option=orjson.OPT_SORT_KEYS)
    return text


def decode(text: bytes) -> JsonObject:
    """Decode the canonical text of a value."""
    value: JsonObject = orjson.loads(text)
    return value


def normalize(value: Json) -> JsonObject:
    """Return a copy of a value with canonical numbers. Raise InvalidOperation if the value is not valid."""
    if type(value) is not dict:
        raise InvalidOperation("a value is a JSON object")
    for name in value:
        if name.startswith(RESERVED_PREFIX):
            raise InvalidOperation("a top-level member's name may not begin with _ts")
    copy = normalize_member(value)
    assert isinstance(copy, dict)
    return copy


def normalize_member(value: Json, depth: int = 1) -> Json:
    """Return a copy of a value's member at any depth, with canonical numbers. Raise InvalidOperation if not valid."""
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
    """Return the integer. Raise InvalidOperation if it does not fit in 64 bits."""
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


def is_number(value: object) -> bool:
    """Return whether a JSON value is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def kind_of(value: object) -> str:
    """Return the type of a JSON value with its article, such as `a string`."""
    return "a number" if is_number(value) else _KINDS[type(value)]


def project(text: bytes, fields: frozenset[str]) -> bytes:
    """Return a value's text with only the given top-level members."""
    return orjson.dumps({name: member for name, member in decode(text).items() if name in fields})


def _needs_normalization(text: bytes) -> bool:
    """Return whether encoded text might break a rule or contain a number that is not canonical.

    False positives are possible. Searching a string for fixed characters is ten times as fast as a regular expression,
    and twice as fast as searching bytes. Therefore all digits, and both kinds of opening brackets, are first mapped to
    one character.
    """
    decoded = text.decode()
    if ".0" in decoded and (".0," in decoded or ".0}" in decoded or ".0]" in decoded):
        return True
    classes = text.translate(_CLASS_OF).decode("latin-1")
    return (
        "0e" in classes
        or "0000000000000000000" in classes
        or '"_ts' in classes
        or '"":' in classes
        or "\\u0000" in classes
        or classes.count("{") > DEPTH_MAX
    )


def _text(value: str) -> str:
    if "\0" in value:
        raise InvalidOperation("a string contains U+0000")
    if not value.isascii() and _SURROGATE.search(value):
        raise InvalidOperation("a string contains a lone surrogate")
    return value


def _name(name: str) -> str:
    if not name:
        raise InvalidOperation("a member's name is empty")
    return _text(name)


def _check_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise InvalidOperation(f"a value is nested more than {DEPTH_MAX} deep")
