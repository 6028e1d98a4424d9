"""What replicas tell each other: which keys of which table one of them wrote. Knows nothing of how it gets there."""

import asyncio
from collections.abc import Collection, Iterable, Mapping

import msgspec

from ....core import Key

KEYS_MAX = 10_000
"""How many keys of one table are told of at once; of more, all keys of the table are."""

MESSAGE_BYTES_MAX = 256 * 2**10
"""How long a message may be; in place of a longer one, all keys of the table are told of."""


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Somebody (`sender`) wrote these keys of a table, or (None) maybe any of its keys."""

    sender: bytes
    table: str
    keys: list[Key] | None


class PendingInvalidations:
    """What is still to be told, by table; `waiting` are those who want to know when it has been."""

    def __init__(self) -> None:
        self.tables: dict[str, set[Key] | None] = {}
        self.waiting: list[asyncio.Future[None]] = []

    def add(self, table: str, keys: Collection[Key] | None) -> None:
        """Add keys of a table, or all."""
        known = self.tables.setdefault(table, set())
        if known is not None:
            known.update(keys or ())
            if keys is None or len(known) > KEYS_MAX:
                self.tables[table] = None

    def merge(self, unsaid: "PendingInvalidations") -> None:
        """Add what could not be told."""
        for table, keys in unsaid.tables.items():
            self.add(table, keys)
        self.waiting += unsaid.waiting

    def acknowledge(self) -> None:
        """Let those go on who wait."""
        for future in self.waiting:
            if not future.done():
                future.set_result(None)


def encode_messages(sender: bytes, unsaid: Mapping[str, Iterable[Key] | None]) -> dict[str, tuple[bytes, int]]:
    """Return a message for each table, and how many keys it names (1 for all)."""
    return {table: _one(sender, table, keys) for table, keys in unsaid.items()}


def decode_message(raw: object) -> Message | None:
    """Return a message; None if it is none that this version understands."""
    try:
        return _DECODER.decode(raw) if isinstance(raw, bytes) else None
    except msgspec.DecodeError:
        return None


def _one(sender: bytes, table: str, keys: Iterable[Key] | None) -> tuple[bytes, int]:
    listed = None if keys is None else list(keys)
    raw = msgspec.msgpack.encode(Message(sender, table, listed))
    if listed is None or len(raw) > MESSAGE_BYTES_MAX:
        return msgspec.msgpack.encode(Message(sender, table, None)), 1
    return raw, len(listed)


_DECODER = msgspec.msgpack.Decoder(Message)
