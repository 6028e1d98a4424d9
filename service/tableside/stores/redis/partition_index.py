"""The index of a partition: the sort keys of its records, in order.

The index is a sorted set whose members all have score 0, so Redis orders them by their bytes. A member encodes the
parts of a key after the first so that the order of the bytes is the order of the keys. A second sorted set has the
members that expire, with their expiry as score. Both are in the slot of the partition's records, and the scripts that
write a record update them in the same step.
"""

from collections.abc import Iterable
from typing import TypeAlias

from ...core import Key, KeySchema, Part
from .keys import KeyNames, slot_tag

IndexEntry: TypeAlias = tuple[str, str, bytes]
"""A record's entry: the name of the index, the name of the set of members that expire, and the member."""


class PartitionIndex:
    """The names and members of the indexes of one table. `exclusive`: only the service adds records to the table."""

    def __init__(self, names: KeyNames, schema: KeySchema, *, exclusive: bool = False) -> None:
        self.exclusive = exclusive
        self._names = names
        self._sort_key = KeySchema(schema.fields[1:])

    def entries(self, keys: Iterable[Key]) -> list[IndexEntry]:
        """Return the index entries of records."""
        found: dict[Part, tuple[str, str]] = {}
        entries = []
        for key in keys:
            assert isinstance(key, tuple)
            names = found.get(key[0])
            if names is None:
                start = self._names.partition_start(key[0])
                names = found[key[0]] = f"_tsi:{start}", f"_tsx:{start}"
            entries.append((*names, self._member(key)))
        return entries

    def name(self, partition: Part) -> str:
        """Return the name of a partition's index."""
        return f"_tsi:{self._names.partition_start(partition)}"

    def key(self, partition: Part, member: bytes) -> Key | None:
        """Return the record's key for a member, or None if the service would not write the member."""
        try:
            rest = self._sort_key.decode(member)
            key = (partition, *(rest if isinstance(rest, tuple) else (rest,)))
            return key if self._member(key) == member else None
        except (UnicodeDecodeError, OverflowError):
            return None

    def bounds(self, prefix: str | None, after: bytes | None) -> tuple[bytes, bytes]:
        """Return the bounds, in the notation of ZRANGE BYLEX, of the members with a prefix that follow `after`.

        Raise InvalidOperation for a prefix of an integer.
        """
        low, high = self._sort_key.bounds(None, prefix)
        start = b"[" + low if after is None or after < low else b"(" + after
        return start, b"+" if high is None else b"(" + high

    def mark(self, slot: int | None) -> str:
        """Return the name of the mark that the indexes are complete: of a cluster's slot, or of a single server."""
        return f"_tsc:{'' if slot is None else slot_tag(slot)}{self._names.prefix}"

    def _member(self, key: tuple[Part, ...]) -> bytes:
        return self._sort_key.encode(key[1:] if self._sort_key.composite else key[1])
