"""Parses the body of an update, and equal short bodies once: counters send the same one for many records."""

from functools import lru_cache

from ...core import Changes, TableError, updates, values
from ...core.long_texts import update_document

BODY_BYTES_MAX = 256
BODIES_MAX = 256
"""How many parsed bodies are kept."""


def short_update(body: bytes) -> Changes | None:
    """Return the changes of a short and valid body with an update and no other member, None for other bodies."""
    return _parsed(body) if len(body) <= BODY_BYTES_MAX else None


@lru_cache(maxsize=BODIES_MAX)
def _parsed(body: bytes) -> Changes | None:
    """Parse a body. The changes are immutable, and may be applied to any number of records."""
    try:
        document = update_document(values.parse(body))
        return updates.parse(document["update"]) if document.keys() == {"update"} else None
    except TableError:
        return None
