"""What a record and its side key are called in Redis, and which of 16,384 slots of a cluster they are in.

The name of a record is the table's prefix and the key: a string as it is, an integer in decimal, the parts of a
composite key joined by `:`, with `:` and `%` percent-escaped within them. Its side key holds what is remembered of its
writers and has a name that gives the same slot. Knows nothing of connections.
"""

from collections.abc import Iterable
from functools import cache

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from ...core import Key, KeySchema, Part, Scan, TableError, checked_part, part_from_text

SLOTS = REDIS_CLUSTER_HASH_SLOTS

TABLES = "_ts:tables"
"""The set that holds the names of the tables that were made."""

RESERVED = "_ts"
"""What the names of side keys begin with, and no prefix of a table may."""

_GLOB = str.maketrans({letter: f"\\{letter}" for letter in "*?[]^-\\"})


def checked_prefix(prefix: str) -> str:
    """Return a table's prefix. Raise ValueError if side keys could be taken for its records."""
    if prefix.startswith(RESERVED) or RESERVED.startswith(prefix):
        raise ValueError(f"is not empty, and neither {RESERVED} nor a part of it begins it")
    if "\0" in prefix or not prefix.isprintable():
        raise ValueError("holds printable characters only")
    return prefix


class Names:
    """The names of one table's records."""

    def __init__(self, prefix: str, schema: KeySchema) -> None:
        self.prefix = prefix
        self._schema = schema
        self._plain = not schema.composite
        self._skip = len(prefix.encode())

    def of(self, keys: Iterable[Key]) -> list[str]:
        """Return the names of records."""
        prefix = self.prefix
        if self._plain:
            return [f"{prefix}{key}" for key in keys]
        return [prefix + ":".join(map(_escaped, key)) for key in keys if isinstance(key, tuple)]

    def key(self, name: bytes) -> Key | None:
        """Return the key of a record's name; None if it is not how this table writes one."""
        try:
            key = self._parsed(name[self._skip :])
        except (TableError, UnicodeDecodeError):
            return None
        return key if self.of([key])[0].encode() == name else None

    def pattern(self, scan: Scan) -> str:
        """Return the pattern of names that a scan is about. Raise InvalidOperation if there can be none."""
        wanted = self.prefix
        if scan.partition is not None:
            wanted += _escaped(scan.partition) if self._schema.composite else str(scan.partition)
            if not self._schema.composite:
                return wanted.translate(_GLOB)
            wanted += ":"
        if scan.prefix:
            self._schema.bounds(scan.partition, scan.prefix)  # refuses a prefix of an integer
            wanted += _escaped(scan.prefix) if self._schema.composite else scan.prefix
        return wanted.translate(_GLOB) + "*"

    def _parsed(self, text: bytes) -> Key:
        if not self._plain:
            return self._schema.from_path(text.split(b":"))
        kind = self._schema.fields[0].type
        return checked_part(text.decode(), kind) if kind == "string" else part_from_text(text, kind)


def slot_of(name: str) -> int:
    """Return the slot that a name is in."""
    return key_slot(name.encode())


def side(name: str) -> str:
    """Return the name of a record's side key, which is in the same slot.

    A cluster hashes what stands between the first `{` and the next `}`, if anything does, else the whole name. The
    three ways to keep the slot begin differently, so no two records share a side key.
    """
    if "}" not in name:
        return f"_ts:{{{name}}}"
    start = name.find("{")
    if start >= 0 and name.find("}", start + 1) > start + 1:
        return f"_tst:{name}"
    return f"_tss:{{{_tags()[slot_of(name)]}}}{name}"


@cache
def _tags() -> list[int]:
    """Return, for each slot, a number whose digits are in it."""
    tags: dict[int, int] = {}
    number = 0
    while len(tags) < SLOTS:
        tags.setdefault(key_slot(b"%d" % number), number)
        number += 1
    return [tags[slot] for slot in range(SLOTS)]


def _escaped(part: Part) -> str:
    return part.replace("%", "%25").replace(":", "%3A") if isinstance(part, str) else str(part)
