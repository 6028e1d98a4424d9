"""Find texts with many doubles that msgspec would take long to decode.

msgspec takes 6 microseconds for a double near the ends of the range, such as `4.9e-324`, and 0.03 for others. Python's
`float` takes 0.2 for any of them.
"""

import math

SLOW_NUMBERS_MAX = 7000
"""Number of such doubles that msgspec decodes: 42 ms."""

_SLOW_NUMBER_BYTES_MIN = 6  # with the comma after it: 1e-310 without its digits
_CLASSES = bytes.maketrans(b"123456789E", b"000000000e")
_EXPONENT = b"0e"
_ZEROS = b"0" * 256


def has_slow_numbers(text: bytes | str) -> bool:
    """Return whether JSON text may have more than `SLOW_NUMBERS_MAX` doubles that take long. Strings count too.

    Such a double has an exponent or many zeros.
    """
    if len(text) <= SLOW_NUMBERS_MAX * _SLOW_NUMBER_BYTES_MIN:
        return False
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return data.translate(_CLASSES).count(_EXPONENT) + data.count(_ZEROS) > SLOW_NUMBERS_MAX


def finite_double(text: str) -> float:
    """Return the double of a JSON number. Raise ValueError if it is out of range."""
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is out of range")
    return number
