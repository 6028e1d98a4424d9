"""Encode, decode and validate JSON values.

A value is an object nested at most 30 deep. Its numbers are signed 64-bit integers or finite doubles, and a double
equal to such an integer becomes this integer. Stores keep values as the canonical text that `encode` returns, so most
operations do not decode them.

An element takes two bytes of text, but 30 to 200 bytes and 100 to 500 nanoseconds once it is a Python object. The
length of a text therefore does not bound the cost of parsing it. The number of its elements does.
"""

import re
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, TypeAlias, cast

import msgspec
import orjson

from .errors import InvalidOperation, MalformedRequest, RecordUnreadable, TableError, TooLarge

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
_INTEGRAL = [(ord("."), re.compile(rb"\.0[,}\]]")), (ord("+"), re.compile(rb"e\+1[678][,}\]]"))]
_REFUSED = [
    (ord("_"), re.compile(rb'"_ts')),
    (ord(":"), re.compile(rb'"":')),
    (ord("\\"), re.compile(rb"\\u0000")),
]
"""Doubles that equal 64-bit integers, and reserved names, empty ones, and U+0000.

Each pattern has a start to search for, and a byte that many texts do not have: the search for a byte is 30 times as
fast.
"""
_SUSPICIOUS = _INTEGRAL + _REFUSED
_UNSIGNED = tuple(map(re.compile, (rb"9[2-9][0-9]{17}", rb"1[0-8][0-9]{18}")))
"""Perhaps an integer that only an unsigned one of 64 bits can hold, which orjson encodes, too."""

_UNCHECKED_BYTES_MAX = 2**12  # too short to exceed a limit on elements or slow numbers

_DECODER: msgspec.json.Decoder[Json] = msgspec.json.Decoder()
_NORMALIZING: msgspec.json.Decoder[Json] = msgspec.json.Decoder(float_hook=lambda text: normalize_number(float(text)))


def parse(text: bytes | str) -> Json:
    """Parse the JSON text of a value or of an operation.

    Integers are exact. If a member's name is repeated, the last one is used. Raise TooLarge if the text has more than
    `ELEMENTS_MAX` elements. Raise NotJson, with the position of the error, if it is not JSON. This includes numbers
    beyond the range of a double, NaN, lone surrogates and invalid UTF-8.
    """
    decoder = _DECODER
    if len(text) > _UNCHECKED_BYTES_MAX:
        check_elements(text)
        if sum(map(_bytes(text).count, _SLOW)) > SLOW_NUMBERS_MAX:
            decoder = _NORMALIZING
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, InvalidOperation, ValueError):
        raise not_json(text) from None
    except RecursionError:
        raise NotJson("nested too deep") from None


def encode(value: object, option: int = 0) -> bytes:
    """Return the canonical JSON text of a value. Raise InvalidOperation if the value is not valid.

    `option` is one of orjson.
    """
    if type(value) is not dict:
        raise InvalidOperation("a value must be a JSON object")
    try:
        text = orjson.dumps(value, None, option | orjson.OPT_STRICT_INTEGER)
        brackets = _brackets(text)
    except (orjson.JSONEncodeError, RecursionError):
        brackets = None
    if brackets is None:
        text = orjson.dumps(normalize(value), None, option)
    elif brackets > DEPTH_MAX:
        check_depth(value)
    return _compact(text)


def encode_sorted(value: object) -> bytes:
    """Return the canonical JSON text of a value with its members sorted by name at every depth."""
    return encode(value, orjson.OPT_SORT_KEYS)


def encode_foreign(text: bytes) -> bytes:
    """Return the canonical text of a value that another tool wrote. Raise RecordUnreadable if it is not valid."""
    try:
        return encode(parse(text))
    except TooLarge as error:
        raise RecordUnreadable(f"another tool wrote the record: {error.detail}") from None
    except TableError:
        raise RecordUnreadable("another tool wrote the record, and it is not a valid JSON object") from None


def parse_all(texts: Sequence[bytes | str]) -> tuple[list[Json], list[int]]:
    """Parse many JSON texts. Return the values, `{}` for a text that `parse` rejects, and the positions of these."""
    is_short = max(map(len, texts), default=0) <= _UNCHECKED_BYTES_MAX
    parsed, rejected = list[Json](), list[int]()
    values = map(_DECODER.decode if is_short else parse, texts)
    while len(parsed) < len(texts):
        try:
            parsed.extend(values)  # An exception leaves the values before it in the list.
        except (TableError, msgspec.DecodeError, ValueError, RecursionError):
            rejected.append(len(parsed))
            parsed.append({})
    return parsed, rejected


def encode_all(values: Sequence[object], texts: Sequence[Any] = ()) -> Sequence[bytes] | None:
    """Return the canonical JSON texts of many values. None means that one may be invalid: encode each alone.

    If the values were parsed from `texts` of type bytes, and these are canonical, they are returned: comparing them
    takes less time than encoding each value.
    """
    if not set(map(type, values)) <= {dict}:
        return None
    try:
        whole = _dumped(values)
        if (brackets := _brackets(whole)) is None:
            values = cast("list[object]", _NORMALIZING.decode(whole))
            whole = orjson.dumps(values)
            brackets = _brackets(whole, _REFUSED)
        if set(map(type, texts)) != {bytes} or whole != b"[%b]" % b",".join(texts):
            texts = [b"%b" % orjson.dumps(value) for value in values]
        if brackets is not None and (brackets <= len(texts) + 1 or max(map(_count_brackets, texts)) <= DEPTH_MAX):
            return texts
    except (orjson.JSONEncodeError, RecursionError):
        pass
    return None


def encode_canonical(value: JsonObject) -> bytes:
    """Return the JSON text of a value that is known to be valid and to have only canonical numbers."""
    return _compact(orjson.dumps(value))


def decode(text: bytes) -> JsonObject:
    """Decode the canonical text of a value."""
    value: JsonObject = orjson.loads(text)
    return value


def copied(value: Json) -> Json:
    """Return a copy of a valid value's member that shares no mutable parts with it."""
    return orjson.loads(orjson.dumps(value)) if isinstance(value, (dict, list)) else value  # faster than deepcopy


def normalize(value: Json) -> JsonObject:
    """Return a copy of a value with canonical numbers. Raise InvalidOperation if the value is not valid."""
    if type(value) is not dict:
        raise InvalidOperation("a value must be a JSON object")
    for name in value:
        if name.startswith(RESERVED_PREFIX):
            raise InvalidOperation("a top-level member's name may not begin with _ts")
    return cast("JsonObject", normalize_member(value))


def normalize_member(value: Json, depth: int = 1) -> Json:
    """Return a copy of a value's member at any depth, with canonical numbers. Raise InvalidOperation if not valid."""
    if (scalar := _SCALARS.get(type(value))) is not None:
        return scalar(value)
    if depth > DEPTH_MAX:
        raise _too_deep()
    of, depth = _SCALARS.get, depth + 1
    if isinstance(value, dict):
        return {
            _name(name): scalar(member) if (scalar := of(type(member))) else normalize_member(member, depth)
            for name, member in value.items()
        }
    assert isinstance(value, list)
    return [scalar(member) if (scalar := of(type(member))) else normalize_member(member, depth) for member in value]


def check_depth(value: object) -> None:
    """Raise InvalidOperation if an object or array is nested too deep."""
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        level = [
            member
            for outer in level
            for member in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(member, (dict, list, tuple))
        ]
        if not level:
            return
    raise _too_deep()


def checked_integer(value: int) -> int:
    """Return the integer. Raise InvalidOperation if it does not fit in 64 bits."""
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise InvalidOperation("an integer is beyond 64 bits")
    return value


def normalize_number(value: float) -> int | float:
    """Return the double, or the 64-bit integer that it equals. Raise InvalidOperation if it is not finite."""
    if value.is_integer():
        return int(value) if INTEGER_MIN <= value <= INTEGER_MAX else value
    if not isfinite(value):
        raise InvalidOperation("a number is not finite")
    return value


def is_number(value: object) -> bool:
    """Return whether a JSON value is a number."""
    return type(value) in (int, float)  # A bool is an int, too.


def kind_of(value: object) -> str:
    """Return the type of a JSON value with its article, such as `a string`."""
    return "a number" if is_number(value) else _KINDS[type(value)]


def _dumped(values: Sequence[object]) -> bytes:
    """Return the text of values. Raise JSONEncodeError if one cannot be valid."""
    try:
        return orjson.dumps(values, None, orjson.OPT_STRICT_INTEGER)
    except orjson.JSONEncodeError:  # Perhaps because of an integer of 54 to 64 bits.
        text = orjson.dumps(values)
        if any(pattern.search(text) for pattern in _UNSIGNED):
            raise
        return text


def _brackets(text: bytes, patterns: Sequence[tuple[int, re.Pattern[bytes]]] = _SUSPICIOUS) -> int | None:
    """Return how many opening brackets encoded text has, or None if it has one of the patterns."""
    for byte, pattern in patterns:
        if byte in text and pattern.search(text):
            return None
    return _count_brackets(text)


def _count_brackets(text: bytes) -> int:
    # `count` visits every byte, while `replace` jumps from one bracket to the next.
    return 2 * len(text) - len(text.replace(b"{", b"")) - len(text.replace(b"[", b""))


def _compact(text: bytes) -> bytes:
    """Return a copy of orjson's result: orjson's own buffer has at least 4 KiB, even for a short text."""
    return b"%b" % text if len(text) < 2**12 else text


def _text(value: str) -> str:
    if "\0" in value:
        raise InvalidOperation("a string contains U+0000")
    if not value.isascii() and _SURROGATE.search(value):
        raise InvalidOperation("a string contains a lone surrogate")
    return value


_SCALARS: dict[type, Callable[[Any], Json]] = {
    str: _text,
    int: checked_integer,
    float: normalize_number,
    bool: lambda value: value,
    type(None): lambda value: value,
}


def _name(name: str) -> str:
    if not name:
        raise InvalidOperation("a member's name is empty")
    return _text(name)


def _too_deep() -> InvalidOperation:
    return InvalidOperation(f"a value is nested more than {DEPTH_MAX} deep")


# Text before it is parsed


ELEMENTS_MAX = 100_000
"""Maximum number of elements of a value, or of the JSON text of one operation.

Every comma, `[` and `{` outside of strings counts as one: members and array elements at all depths, and an empty array
or object twice.
"""

SLOW_NUMBERS_MAX = 5_000
"""Number of doubles such as `4.9e-324` that msgspec parses, in 6 microseconds each. Python's `float` takes 0.2."""

_SLOW = (b"e", b"E", b"0" * 256)  # exponents and long numbers, or letters of strings
_SLICE_BYTES = 2**16


class NotJson(MalformedRequest):
    """A text is not JSON. `position` is the index of the first wrong byte, None if it is unknown.

    `operation` is the index of the operation of a batch that contains this byte.
    """

    def __init__(self, reason: str, position: int | None = None, operation: int | None = None) -> None:
        where = "" if position is None else f" at byte {position}"
        super().__init__(f"not JSON{where}{'' if operation is None else f', in operation {operation}'}: {reason}")
        self.reason = reason
        self.position = position


def check_elements(text: bytes | str) -> None:
    """Raise TooLarge if JSON text has more than `ELEMENTS_MAX` elements. Text that is not JSON may pass."""
    if len(text) <= ELEMENTS_MAX:  # an element has at least one byte
        return
    data = _bytes(text)
    if _count(data) > ELEMENTS_MAX and _exceeds_outside_strings(data):
        raise TooLarge(f"a value or an operation may have at most {ELEMENTS_MAX} elements (elements_max)")


def not_json(text: bytes | str) -> NotJson:
    """Return the error for a text that msgspec has rejected.

    The position is from orjson. msgspec reports none for texts that end too early, numbers that are too large and
    invalid UTF-8. Its positions of other errors are up to two bytes late.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode()
        orjson.loads(decoded)
    except UnicodeDecodeError as wrong:
        return NotJson("invalid UTF-8", wrong.start)
    except orjson.JSONDecodeError as wrong:
        if not decoded.isspace() and decoded:
            return NotJson(wrong.msg, len(decoded[: wrong.pos].encode()))
        return NotJson("the text is empty")
    return NotJson("invalid encoding or number")


def _bytes(text: bytes | str) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def _count(data: bytes) -> int:
    return sum(map(data.count, (b",", b"[", b"{")))


def _exceeds_outside_strings(data: bytes) -> bool:
    """Count exactly, in slices that need little memory: every second part between quotes is a string."""
    count, in_string, start = 0, False, 0
    while start < len(data):
        piece = data[start : start + _SLICE_BYTES]
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        end = start + len(piece) + backslashes % 2  # divides no escape sequence
        parts = data[start:end].replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        count += _count(b" ".join(parts[in_string::2]))
        if count > ELEMENTS_MAX:
            return True
        in_string ^= len(parts) % 2 == 0
        start = end
    return False
