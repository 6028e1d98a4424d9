"""What is stored about a record in addition to its value: its memory, and the rows of side tables.

The column `_ts_writers` contains the writers. If the record has had ordered writes, its orders are the first element:

    [["w", 3]]    [{"": 5, "n": 7}, ["w", 3]]
"""

from typing import Final

import msgspec

from ...core import NO_MEMORY, Memory

OUTLIVES_SQL: Final = "jsonb_typeof({} -> 0) = 'object'"
"""The condition that a column of writers contains orders, which outlive the record. It may be NULL."""

_decode = msgspec.json.Decoder(list[dict[str, int] | tuple[str, int]]).decode


class SideRow(msgspec.Struct, frozen=True):
    """A row of a side table: the record's version, the expiry of that version, and what the record remembers.

    A row without a version is a tombstone.
    """

    version: int | None = None
    expires_ms: int = 0
    memory: Memory = NO_MEMORY


def memory_text(memory: Memory) -> str | None:
    """Return the text of a column of writers, or None if there is no memory."""
    entries = [*([msgspec.Raw(memory.orders)] if memory.orders else []), *memory.writers]
    return msgspec.json.encode(entries).decode() if entries else None


def parse_memory(text: str | None) -> Memory:
    """Return the memory in a column's text, or none if another tool wrote an invalid text."""
    try:
        entries = _decode(text) if text else []
    except msgspec.DecodeError:
        entries = []
    if not entries:
        return NO_MEMORY
    orders = msgspec.json.encode(entries.pop(0)) if isinstance(entries[0], dict) else b""
    return Memory(tuple(entry for entry in entries if isinstance(entry, tuple)), orders)
