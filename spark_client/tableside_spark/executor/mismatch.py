"""The message for a value that does not fit the schema. Lookups fill it in the JVM, scans in Python."""

from typing import Literal

OnMismatch = Literal["fail", "null"]

MESSAGE = (
    "table %s: column %s is a JSON %s for key %s, which does not fit %s; "
    'correct the record or the schema, or set on_mismatch to "null"'
)
"""Takes the table, the column, the JSON type of the value, the key as JSON, and the column's type. Never the value."""


class MismatchError(ValueError):
    """A value does not fit the schema of a scan."""


def require_known(on_mismatch: str) -> None:
    """Raise `ValueError` if the argument or option `on_mismatch` is not `fail` or `null`."""
    if on_mismatch not in ("fail", "null"):
        raise ValueError(f"on_mismatch is fail or null, not {on_mismatch!r}")
