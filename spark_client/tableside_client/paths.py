"""Parts of HTTP requests: paths of tables and records, headers, parameters, and JSON bodies."""

import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

JSON = "application/json"

_CHANGED_BY_PROXIES = re.compile(r"[\x00-\x1f\x7f/\\%;?#]")
"""Characters of a path that some proxies decode, normalize or reject, although they are percent-encoded."""

Key: TypeAlias = str | int | Sequence[str | int]
"""A string or an integer, or a sequence of them for a composite key."""


def json_bytes(document: Any) -> bytes:
    """Serialize a document as JSON. Raises `ValueError` for NaN and infinities, which JSON does not have."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def as_key(key: Any) -> Any:
    """Return a key, with a tuple for a sequence. Raises `TypeError` for other types, which a path has as text."""
    if _is_part(key) or key is None:
        return key
    if not isinstance(key, Sequence) or isinstance(key, bytes | bytearray) or not all(map(_is_part, key)):
        raise TypeError(f"a key must be a string, an integer or a sequence of these, not {key!r}")
    return tuple(key)


def _is_part(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, int) and not isinstance(part, bool))


def table_path(table: str, *rest: str) -> str:
    """Return the path of a table, or of a resource below it."""
    return "/".join(["/v1/tables", quote(table, safe=""), *rest])


def record_path(table: str, key: Key, *in_headers: str | None) -> str | None:
    """Return the path of a record. None if it needs a batch, because a path or a header cannot have such a text."""
    key = as_key(key)
    parts = [str(part) for part in ([key] if isinstance(key, str | int) else key)]
    if not parts or any(part in ("", ".", "..") or _CHANGED_BY_PROXIES.search(part) for part in parts):
        return None
    if not all(text is None or (text.isascii() and text.isprintable() and '"' not in text) for text in in_headers):
        return None
    return table_path(table, "records", *(quote(part, safe="") for part in parts))


def joined(fields: Sequence[str] | None) -> str | None:
    """Return the value of the parameter `fields`. Raises `ValueError` for a name with a comma."""
    if fields is None:
        return None
    if commas := [name for name in names(fields) if "," in name]:
        raise ValueError(f"the parameter fields separates names by commas, so it cannot contain {commas[0]!r}")
    return ",".join(fields)


def names(given: Sequence[str], argument: str = "fields") -> Sequence[str]:
    """Return the names of an argument. Raises `TypeError` for a string, which is a sequence of its characters."""
    if isinstance(given, str):
        raise TypeError(f"{argument} must be a sequence of names, such as [{given!r}]")
    return given


def given(**members: Any) -> dict[str, Any]:
    """Return the members that are not None: a request omits the others."""
    return {name: member for name, member in members.items() if member is not None}
