"""Read CHANGELOG.md, which is written as Keep a Changelog asks."""

import re

from packaging.version import Version

HEADING = re.compile(r"(?m)^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?[^\n]*\n")


def describes(text: str, version: Version) -> bool:
    """Tell whether there is an entry with a date, and words in it, for a version."""
    _, *parts = HEADING.split(text)
    entries = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return any(named == str(version) and date and words.strip() for named, date, words in entries)
