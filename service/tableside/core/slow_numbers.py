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
_SLICE_BYTES = 2**16  # counted in one call, while no other thread can run


def has_slow_numbers(text: bytes | str) -> bool:
    """Return whether JSON text may have more than `SLOW_NUMBERS_MAX` doubles that take long. Strings count too.

    Such a double has an exponent or many zeros.
    """
    if len(text) <= SLOW_NUMBERS_MAX * _SLOW_NUMBER_BYTES_MIN:
        return False
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return sum(_count(data, start) for start in range(0, len(data), _SLICE_BYTES)) > SLOW_NUMBERS_MAX


def _count(data: bytes, start: int) -> int:
    """Count the exponents and the runs of zeros that begin in a slice. A run may count in two slices."""
    end = start + _SLICE_BYTES
    exponents = data[start : end + len(_EXPONENT) - 1].translate(_CLASSES).count(_EXPONENT)
    return exponents + data.count(_ZEROS, start, end + len(_ZEROS) - 1)


def finite_double(text: str) -> float:
    """Return the double of a JSON number. Raise ValueError if it is out of range."""
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is out of range")
    return number
