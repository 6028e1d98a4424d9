"""The invalidation messages that replicas exchange: the keys of a table that one of them wrote."""

import asyncio
from collections.abc import Collection, Iterable, Mapping

import msgspec

from ....core import Key

KEYS_MAX = 10_000
"""Maximum number of keys of one table in a message. For more, the message invalidates the whole table."""

MESSAGE_BYTES_MAX = 256 * 2**10
"""Maximum size of a message. A longer one is replaced by one that invalidates the whole table."""


class Message(msgspec.Struct, frozen=True, array_like=True):
    """The replica `sender` wrote these keys of a table, or None if it may have written any of its keys."""

    sender: bytes
    table: str
    keys: list[Key] | None


class PendingInvalidations:
    """The keys that are still to be published, by table, and the futures that wait until they are."""

    def __init__(self) -> None:
        self.tables: dict[str, set[Key] | None] = {}
        self.waiting: list[asyncio.Future[None]] = []

    def add(self, table: str, keys: Collection[Key] | None) -> None:
        """Add keys of a table, or None for all its keys."""
        known = self.tables.setdefault(table, set())
        if known is not None:
            known.update(keys or ())
            if keys is None or len(known) > KEYS_MAX:
                self.tables[table] = None

    def merge(self, pending: "PendingInvalidations") -> None:
        """Add keys whose publication failed, and their waiting futures."""
        for table, keys in pending.tables.items():
            self.add(table, keys)
        self.waiting += pending.waiting

    def acknowledge(self) -> None:
        """Resolve the waiting futures: the keys are published."""
        for future in self.waiting:
            if not future.done():
                future.set_result(None)


def encode_messages(sender: bytes, pending: Mapping[str, Iterable[Key] | None]) -> dict[str, tuple[bytes, int]]:
    """Return for each table a message and the number of its keys (1 for all)."""
    return {table: _encode(sender, table, keys) for table, keys in pending.items()}


def decode_message(raw: object) -> Message | None:
    """Return the message, or None if this version cannot read it."""
    try:
        return _DECODER.decode(raw) if isinstance(raw, bytes) else None
    except msgspec.DecodeError:
        return None


def _encode(sender: bytes, table: str, keys: Iterable[Key] | None) -> tuple[bytes, int]:
    listed = None if keys is None else list(keys)
    raw = msgspec.msgpack.encode(Message(sender, table, listed))
    if listed is None or len(raw) > MESSAGE_BYTES_MAX:
        return msgspec.msgpack.encode(Message(sender, table, None)), 1
    return raw, len(listed)


_DECODER = msgspec.msgpack.Decoder(Message)
