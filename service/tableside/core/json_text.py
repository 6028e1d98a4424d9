"""Checks JSON text before it is parsed, and finds the reason and position if it is not JSON, without any of the text.

An element takes two bytes of text, but 30 to 200 bytes and 100 to 500 nanoseconds once it is a Python object. The
length of a text therefore does not bound the cost of parsing it. The number of its elements does.
"""

import orjson

from .errors import MalformedRequest, TooLarge

ELEMENTS_MAX = 100_000
"""Maximum number of elements of a value, or of the JSON text of one operation.

Every comma, `[` and `{` outside of strings counts as one: members and array elements at all depths, and an empty array
or object twice.
"""

SLOW_NUMBERS_MAX = 5_000
"""Number of doubles such as `4.9e-324` that msgspec parses, in 6 microseconds each. Python's `float` takes 0.2."""

_COUNTED = (b",", b"[", b"{")
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
    if has_too_many_elements(text):
        raise TooLarge(f"a value or an operation may have at most {ELEMENTS_MAX} elements (elements_max)")


def has_too_many_elements(text: bytes | str) -> bool:
    """Return whether JSON text has more than `ELEMENTS_MAX` elements. For text that is not JSON, perhaps not."""
    if len(text) <= ELEMENTS_MAX:  # an element has at least one byte
        return False
    data = _bytes(text)
    return _count(data) > ELEMENTS_MAX and _exceeds_outside_strings(data)


def has_slow_numbers(text: bytes | str) -> bool:
    """Return whether JSON text may have more than `SLOW_NUMBERS_MAX` slow doubles. Letters of strings count too."""
    return sum(map(_bytes(text).count, _SLOW)) > SLOW_NUMBERS_MAX


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
    return sum(map(data.count, _COUNTED))


def _exceeds_outside_strings(data: bytes) -> bool:
    """Count exactly, in slices that need little memory: every second part between quotes is a string."""
    count, in_string, start = 0, False, 0
    while start < len(data):
        end = _end_of_slice(data, start)
        parts = data[start:end].replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        count += _count(b" ".join(parts[in_string::2]))
        if count > ELEMENTS_MAX:
            return True
        in_string ^= len(parts) % 2 == 0
        start = end
    return False


def _end_of_slice(data: bytes, start: int) -> int:
    """Return where a slice ends that divides no escape sequence of two characters."""
    piece = data[start : start + _SLICE_BYTES]
    backslashes = len(piece) - len(piece.rstrip(b"\\"))
    return start + len(piece) + backslashes % 2
