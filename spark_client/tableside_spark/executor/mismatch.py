"""The error for a value that does not fit the schema, the same for lookups and scans."""

import json
from typing import Any, Literal

OnMismatch = Literal["fail", "null"]


class MismatchError(ValueError):
    """A value does not fit the schema of a scan."""


def mismatch(table: str, column: str, json_type: str, key: Any, wanted: str) -> str:
    """Return the message, without the value. `json_type` is the type of the value, `wanted` that of the column."""
    return (
        f"table {table}: column {column} is a JSON {json_type} for key {key_text(key)}, which does not fit {wanted}; "
        'correct the record or the schema, or set on_mismatch to "null"'
    )


def key_text(key: Any) -> str:
    """Return a key as JSON, with all parts as strings. A composite key is a dictionary of its parts."""
    parts = [str(part) for part in key.values()] if isinstance(key, dict) else str(key)
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def require_known(on_mismatch: str) -> None:
    """Raise `ValueError` if the argument or option `on_mismatch` is not `fail` or `null`."""
    if on_mismatch not in ("fail", "null"):
        raise ValueError(f"on_mismatch is fail or null, not {on_mismatch!r}")
