"""What is stored about a record in addition to its value: its last writers, its orders, and the rows of side tables.

The column `_ts_writers` contains the writers. If the record has had ordered writes, its orders are the first element:

    [["w", 3]]    [{"": 5, "n": 7}, ["w", 3]]
"""

from typing import Final

import msgspec

Writers = tuple[tuple[str, int], ...]

ORDERS_SQL: Final = "jsonb_typeof({} -> 0) = 'object'"
"""The condition that a column of writers contains orders. It may be NULL."""

_decode = msgspec.json.Decoder(list[dict[str, int] | tuple[str, int]]).decode


class SideRow(msgspec.Struct, frozen=True):
    """A row of a side table: the record's version, the expiry of that version, and the record's writers and orders.

    A row without a version is a tombstone.
    """

    version: int | None = None
    expires_ms: int = 0
    writers: Writers = ()
    orders: bytes = b""


def writers_text(writers: Writers, orders: bytes) -> str | None:
    """Return the text of a column of writers, or None if there are neither writers nor orders."""
    entries = [*([msgspec.Raw(orders)] if orders else []), *writers]
    return msgspec.json.encode(entries).decode() if entries else None


def parse_writers(text: str | None) -> tuple[Writers, bytes]:
    """Return the writers and the orders in a column's text, or none if another tool wrote an invalid text."""
    try:
        entries = _decode(text or "[]")
    except msgspec.DecodeError:
        return (), b""
    orders = msgspec.json.encode(entries.pop(0)) if entries and isinstance(entries[0], dict) else b""
    return tuple(entry for entry in entries if isinstance(entry, tuple)), orders
