"""Read CHANGELOG.md, which has the format of Keep a Changelog."""

import re

from packaging.version import Version

HEADING = re.compile(r"(?m)^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?[^\n]*\n")


def describes(text: str, version: Version) -> bool:
    """Return whether the changelog has an entry for a version, with a date and a description."""
    _, *parts = HEADING.split(text)
    entries = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return any(name == str(version) and date and body.strip() for name, date, body in entries)
