"""Parses the body of an update, and equal short bodies once: counters send the same one for many records."""

from functools import lru_cache
from typing import Any

from ...core import Changes, InvalidOperation, TableError, updates, values

REPEATED_BYTES_MAX = 256
BODIES_MAX = 256
"""How many parsed bodies are kept."""

_MEMBERS = {"update", "default", "ttl_s"}


def update_members(body: bytes) -> dict[str, Any]:
    """Return the members in the body of an update.

    Raise NotJson if it is not JSON, InvalidOperation if it is not an object, or has other members.
    """
    changes = _repeated(body) if len(body) <= REPEATED_BYTES_MAX else None
    return _parsed(body) if changes is None else {"update": changes}


@lru_cache(maxsize=BODIES_MAX)
def _repeated(body: bytes) -> Changes | None:
    """Return the changes of a valid update without other members. They are immutable, and may be applied repeatedly."""
    try:
        members = _parsed(body)
        return updates.parse(members["update"]) if members.keys() == {"update"} else None
    except TableError:
        return None


def _parsed(body: bytes) -> dict[str, Any]:
    members = values.parse(body)
    if not isinstance(members, dict) or not members.keys() <= _MEMBERS:
        raise InvalidOperation(
            "the body must be an object with update, and optionally default and ttl_s; "
            "a merge patch has the media type application/merge-patch+json"
        )
    return members
