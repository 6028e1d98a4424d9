"""Converts the JSON text that PostgreSQL prints to a value's canonical text.

`jsonb` prints numbers as decimals of any length (`1.0`, or `1e300` as 301 digits), and a space after `:` and `,`. The
spaces may stay. Most texts need no conversion. `needs_parsing` detects this by searching all texts of a result for a
few byte patterns, which takes a twentieth of the time of parsing them.
"""

import re
from functools import partial

import orjson

from ...core import InvalidOperation, Json, RecordUnreadable, TooLarge, check_elements, run_in_thread, values

LINE_SEPARATOR = b"\n"
"""The separator between the texts of a result. It never occurs within a text, because JSON escapes it."""

LONG_BYTES_MIN = 2**16
"""Texts from this size are converted in a thread: a text of 100,000 elements takes up to 50 ms."""

_KEPT_BYTES = b"0123456789.,}]{[\n"
_DROPPED_BYTES = bytes(set(range(256)) - set(_KEPT_BYTES))
_NONZERO_DIGITS_TO_ONE = bytes.maketrans(b"123456789", b"111111111")
_DIGITS_TO_ONE = bytes.maketrans(b"023456789", b"111111111")
_LONG_INTEGER = b"1" * 19
_INTEGRAL = re.compile(rb"\.0+[,}\]]")
_RESERVED_NAME = re.compile(rb'"_ts')
_EMPTY_NAME = re.compile(rb'"":')


async def convert(text: bytes) -> bytes | RecordUnreadable:
    """Return a value's canonical text, or RecordUnreadable. Other tasks may run while a long text is converted."""
    return canonical(text) if len(text) < LONG_BYTES_MIN else await run_in_thread(partial(canonical, text))


def canonical(text: bytes) -> bytes | RecordUnreadable:
    """Return a value's canonical text, or RecordUnreadable if the text is not a valid value."""
    skeleton = _skeleton(text)
    plain = text[:1] == b"{" and not _is_suspicious(text, skeleton)
    if plain and _brackets(skeleton) <= values.DEPTH_MAX:
        return text
    try:
        check_elements(text)
        value = orjson.loads(text)
        if not plain:
            return values.encode(_integers_in_range(value))
        values.check_depth(value)
    except TooLarge as error:
        return RecordUnreadable(f"another tool wrote the record: {error.detail}")
    except (orjson.JSONDecodeError, InvalidOperation):
        return RecordUnreadable("another tool wrote the record, and it is not a valid JSON object")
    return text


def needs_parsing(texts: bytes, count: int) -> bool:
    """Return whether any of `count` objects, one per line, may be invalid or contain a number that is not canonical."""
    skeleton = _skeleton(texts)
    return _brackets(skeleton) - count >= values.DEPTH_MAX or _is_suspicious(texts, skeleton)


def _skeleton(texts: bytes) -> bytes:
    return texts.translate(_NONZERO_DIGITS_TO_ONE, _DROPPED_BYTES)


def _brackets(skeleton: bytes) -> int:
    return skeleton.count(b"{") + skeleton.count(b"[")


def _is_suspicious(texts: bytes, skeleton: bytes) -> bool:
    """Return whether texts may contain a number that is not canonical, or an invalid name."""
    return (
        (b".0" in skeleton and _INTEGRAL.search(skeleton) is not None)
        or _LONG_INTEGER in skeleton.translate(_DIGITS_TO_ONE)
        or (b"_" in texts and _RESERVED_NAME.search(texts) is not None)
        or _EMPTY_NAME.search(texts) is not None
    )


def _integers_in_range(value: Json) -> Json:
    """Return the value with integers beyond 64 bits as doubles: `jsonb` stores 1e20 as its digits."""
    match value:
        case bool():
            return value
        case int():
            return value if value <= values.INTEGER_MAX else float(value)
        case dict():
            return {name: _integers_in_range(member) for name, member in value.items()}
        case list():
            return [_integers_in_range(member) for member in value]
    return value
