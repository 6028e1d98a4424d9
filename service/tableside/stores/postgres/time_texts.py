"""Checks the texts of dates, times and intervals before they are written.

Texts are ISO 8601 with a year from 1 to 9999 in UTC, so they sort by time, also together with `infinity` and
`-infinity`. PostgreSQL would accept more: words such as `now`, digits that it rounds, and zones that it ignores.
"""

import datetime as dt
import re

SECOND_DIGITS_MAX = 6

_DATE, _TIME, _ZONE = r"(?!0000)\d{4}-\d\d-\d\d", r"\d\d:\d\d(:\d\d(\.\d+)?)?", r"(Z|[+-]\d\d(:?\d\d){0,2})"
_INFINITY = "|-?infinity"
_FORMS = {
    name: re.compile(pattern, re.ASCII)
    for name, pattern in {
        "date": _DATE + _INFINITY,
        "timestamp": f"{_DATE}([T ]{_TIME})?{_INFINITY}",
        "timestamptz": f"{_DATE}[T ]{_TIME}{_ZONE}{_INFINITY}",
        "time": _TIME,
        "timetz": _TIME + _ZONE,
    }.items()
}
EXAMPLES = {
    "date": "2026-11-20",
    "timestamp": "2026-11-20T12:34:56.789",
    "timestamptz": "2026-11-20T12:34:56.789Z",
    "time": "12:34:56.789",
    "timetz": "12:34:56.789Z",
}
_ZONED = {"timestamp": "timestamptz", "time": "timetz"}
_IN_SPARK = {"timestamp": " (in Spark, cast it to timestamp_ntz)", "timestamptz": " (in Spark, cast it to timestamp)"}
_FRACTION = re.compile(r"\.(\d+)", re.ASCII)
_BEYOND_YEARS = re.compile(r"[+-]?\d{5,}-|[+-]\d{4}-|0000-|.* BC", re.ASCII)
_EDGES = {"0001-01-01", "9999-12-31"}

_YEARS = "the years are 1 to 9999 in UTC, because other texts do not sort by time"

TYPES_WITH_YEARS = frozenset({"date", "timestamp", "timestamptz"})
TIME_TYPES = frozenset({*_FORMS, "interval"})


def time_fault(type_name: str, modifier: int | None, text: str) -> str | None:
    """Return why a column of a time type would not store a text as it is, or None if the server decides."""
    form = _FORMS.get(type_name)  # an interval has many forms
    if form is not None and not form.fullmatch(text):
        return _form_fault(type_name, text)
    if text[:10] in _EDGES and not _has_year_in_utc(text):
        return _YEARS
    digits_max = SECOND_DIGITS_MAX if modifier is None else min(SECOND_DIGITS_MAX, modifier & 0xFFFF)
    if any(len(digits.rstrip("0")) > digits_max for digits in _FRACTION.findall(text)):
        return f"more than {digits_max} digits of a second"
    return None


def is_beyond_years(text: object) -> bool:
    """Return whether a text is a time before the year 1 or after 9999, as PostgreSQL prints it."""
    return isinstance(text, str) and _BEYOND_YEARS.match(text) is not None


def _form_fault(type_name: str, text: str) -> str:
    if type_name in TYPES_WITH_YEARS and is_beyond_years(text):
        return _YEARS
    for plain, zoned in _ZONED.items():
        if type_name == plain and _FORMS[zoned].fullmatch(text):
            return f"the type has no zone, so omit the zone of the member{_IN_SPARK.get(plain, '')}"
        if type_name == zoned and _FORMS[plain].fullmatch(text):
            return f"the member needs a zone, such as Z{_IN_SPARK.get(zoned, '')}"
    return f"it takes a string such as {EXAMPLES[type_name]}"


def _has_year_in_utc(text: str) -> bool:
    """Return whether a time on the first or last day has a year from 1 to 9999 in UTC."""
    try:
        moment = dt.datetime.fromisoformat(text)
        return moment.tzinfo is None or bool(moment.astimezone(dt.UTC))
    except (ValueError, OverflowError):
        return False
