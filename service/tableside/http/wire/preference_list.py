"""Parses the list of preferences in the header `Prefer` (RFC 7240)."""

import re

_QUOTED = r'"(?:[^"\\]|\\.)*+"'
_PREFERENCE = re.compile(
    r'([^\s,;="]+)\s*'  # its name
    rf'(?:=\s*({_QUOTED}|[^,;"]*))?'  # its value
    rf'(?:[^,"]|{_QUOTED}?)*+(?:,|$)'  # its parameters, up to a comma outside of quotes
)


def parse_preferences(text: str) -> dict[str, str]:
    """Return the values of preferences by their names in lower case. Of a repeated preference the first one counts.

    A value is without its quotes, and empty if it is absent. Parameters are ignored.
    """
    found: dict[str, str] = {}
    for name, value in _PREFERENCE.findall(text):
        found.setdefault(name.lower(), unquoted(value.rstrip()))
    return found


def unquoted(text: str) -> str:
    """Return the content of a quoted string, or the text if it is not quoted."""
    quoted = len(text) > 1 and text[0] == text[-1] == '"'
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if quoted else text
