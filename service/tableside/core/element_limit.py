"""Limit the number of elements of JSON text before it is parsed.

An element takes two bytes of text, but 30 to 200 bytes and 100 to 500 nanoseconds once it is a Python object. The
length of a text therefore does not bound the cost of parsing it. The number of its elements does.
"""

from .errors import TooLarge

ELEMENTS_MAX = 100_000
"""Maximum number of elements of a value, or of the JSON text of one operation.

Every comma, `[` and `{` outside of strings counts as one: members and array elements at all depths, and an empty array
or object twice.
"""

_COUNTED = (b",", b"[", b"{")
_SLICE_BYTES = 2**16


def check_elements(text: bytes | str) -> None:
    """Raise TooLarge if JSON text has more than `ELEMENTS_MAX` elements. Text that is not JSON may pass."""
    if len(text) > ELEMENTS_MAX and has_too_many_elements(text):
        raise TooLarge(f"a value or an operation may have at most {ELEMENTS_MAX} elements (elements_max)")


def has_too_many_elements(text: bytes | str) -> bool:
    """Return whether JSON text has more than `ELEMENTS_MAX` elements. For text that is not JSON, perhaps not."""
    if len(text) <= ELEMENTS_MAX:  # an element has at least one byte
        return False
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return _count(data) > ELEMENTS_MAX and _exceeds_outside_strings(data)


def _count(data: bytes) -> int:
    """Count in slices. Another thread can run between two of them, because each is one short call."""
    slices = range(0, len(data), _SLICE_BYTES)
    return sum(data.count(one, start, start + _SLICE_BYTES) for start in slices for one in _COUNTED)


def _exceeds_outside_strings(data: bytes) -> bool:
    """Count exactly, in slices: without escaped quotes, every second part between quotes is a string."""
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
