"""From the JSON text that PostgreSQL prints to a value's canonical text.

`jsonb` prints numbers as it keeps them, which is as decimals of any length (`1.0`, `1e300` as 301 digits), and a space
after `:` and `,`, which may stay. Most texts need no work: that is seen by looking for a few bytes, once over all the
texts of an answer, which takes a twentieth of the time of parsing them. Knows nothing of tables.
"""

import re

import orjson

from ...core import InvalidOperation, Json, RecordUnreadable, values

LINE = b"\n"
"""What divides the texts of an answer; it never stands inside one, since JSON escapes it."""

_OF_NUMBERS = b"0123456789.,}]{[\n"
_NOT_OF_NUMBERS = bytes(set(range(256)) - set(_OF_NUMBERS))
_ONES = bytes.maketrans(b"123456789", b"111111111")
_ALL_ONES = bytes.maketrans(b"023456789", b"111111111")
_LONG = b"1" * 19
_INTEGRAL = re.compile(rb"\.0+[,}\]]")
_RESERVED_NAME = re.compile(rb'"_ts')
_EMPTY_NAME = re.compile(rb'"":')


def canonical_or_error(text: bytes) -> bytes | RecordUnreadable:
    """Return a value's canonical text, or why there is none."""
    try:
        return canonical(text)
    except RecordUnreadable as error:
        return error


def canonical(text: bytes) -> bytes:
    """Return a value's canonical text. Raise RecordUnreadable if it is none."""
    if text[:1] == b"{" and not suspect(text, 1):
        return text
    try:
        return values.encode(_in_range(orjson.loads(text)))
    except (orjson.JSONDecodeError, InvalidOperation):
        raise RecordUnreadable("the record was written by something else, and is no legal JSON object") from None


def suspect(texts: bytes, count: int) -> bool:
    """Whether some of `count` objects, one a line, might break a rule or hold a number that is not canonical."""
    skeleton = texts.translate(_ONES, _NOT_OF_NUMBERS)
    return (
        (b".0" in skeleton and _INTEGRAL.search(skeleton) is not None)
        or _LONG in skeleton.translate(_ALL_ONES)
        or skeleton.count(b"{") + skeleton.count(b"[") - count >= values.DEPTH_MAX
        or (b"_" in texts and _RESERVED_NAME.search(texts) is not None)
        or _EMPTY_NAME.search(texts) is not None
    )


def _in_range(value: Json) -> Json:
    """Return the same with integers beyond 64 bits as doubles: `jsonb` does not tell 1e20 from its digits."""
    match value:
        case bool():
            return value
        case int():
            return value if value <= values.INTEGER_MAX else float(value)
        case dict():
            return {name: _in_range(member) for name, member in value.items()}
        case list():
            return [_in_range(member) for member in value]
    return value
