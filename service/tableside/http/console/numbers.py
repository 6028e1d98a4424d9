"""Formats numbers with at most three significant digits and a unit."""

_THOUSANDS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))

_SHORT = ((0.0009995, 1e6, "µs"), (0.9995, 1e3, "ms"), (120, 1, "s"))
_LONG = ((86400, "days"), (3600, "h"), (60, "min"))

NONE = "\N{EN DASH}"


def count(number: float | None) -> str:
    """Format a count: 0, 0.25, 7.5, 430, 12.3k."""
    if number is None:
        return NONE
    size, letter = next(((size, letter) for size, letter in _THOUSANDS if number >= size * 0.9995), (1, ""))
    return _digits(number / size) + letter


def rate(number: float | None) -> str:
    """Format a rate per second: 0/s, 7.5/s, 12.3k/s."""
    return NONE if number is None else f"{count(number)}/s"


def seconds(number: float | None) -> str:
    """Format a duration: 850 µs, 1.25 ms, 3.5 s, 2 min, 24 h."""
    if number is None:
        return NONE
    if number == 0:
        return "0 s"
    for limit, factor, unit in _SHORT:
        if number < limit:
            return f"{_digits(number * factor)} {unit}"
    size, unit = next((size, unit) for size, unit in _LONG if number >= 2 * size)
    return f"{number / size:.0f} {unit}"


def share(number: float | None) -> str:
    """Format a share in percent: 0 %, <0.1 %, 2.5 %, 98 %."""
    if number is None:
        return NONE
    if 0 < number < 0.001:
        return "<0.1 %"
    return f"{_trimmed(f'{number * 100:.1f}')} %" if number < 0.1 else f"{number * 100:.0f} %"


def size_bytes(number: float | None) -> str:
    """Format a size in bytes: 12 B, 3.4 KiB, 16 MiB."""
    if number is None:
        return NONE
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= size:
            return f"{_digits(number / size)} {unit}"
    return f"{number:.0f} B"


def _digits(number: float) -> str:
    if number >= 100:
        return f"{number:.0f}"
    return _trimmed(f"{number:.1f}" if number >= 10 else f"{number:.2f}")


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
