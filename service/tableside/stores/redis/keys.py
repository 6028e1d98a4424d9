"""Names of Redis keys: for records and their side keys, and the hash slot of a name among the 16,384 of a cluster.

The name of a record's Redis key is the table's prefix and the record's key: a string unchanged, an integer in decimal,
the parts of a composite key joined by `:`, with `:` and `%` percent-encoded within the parts. The side key stores the
tokens of the record's writers. Its name has the same slot as the record's.
"""

from collections.abc import Iterable
from functools import cache

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from ...core import Key, KeySchema, Part, Scan, TableError, checked_part, part_from_text

SLOT_COUNT = REDIS_CLUSTER_HASH_SLOTS

TABLES_KEY = "_ts:tables"
"""The Redis set of the names of tables that were opened with `create`."""

RESERVED_PREFIX = "_ts"
"""The prefix of side keys. A table's prefix must not begin with it."""

_GLOB = str.maketrans({letter: f"\\{letter}" for letter in "*?[]^-\\"})


def checked_prefix(prefix: str) -> str:
    """Return a table's prefix. Raise ValueError if side keys could be mistaken for its records."""
    if prefix.startswith(RESERVED_PREFIX) or RESERVED_PREFIX.startswith(prefix):
        raise ValueError(f"must not be empty, and must not begin with {RESERVED_PREFIX} or be the beginning of it")
    if "\0" in prefix or not prefix.isprintable():
        raise ValueError("must contain only printable characters")
    return prefix


class KeyNames:
    """The names of the Redis keys of one table's records."""

    def __init__(self, prefix: str, schema: KeySchema) -> None:
        self.prefix = prefix
        self._schema = schema
        self._is_plain = not schema.composite
        self._prefix_bytes = len(prefix.encode())

    def for_keys(self, keys: Iterable[Key]) -> list[str]:
        """Return the names for records' keys."""
        prefix = self.prefix
        if self._is_plain:
            return [f"{prefix}{key}" for key in keys]
        return [prefix + ":".join(map(_escape, key)) for key in keys if isinstance(key, tuple)]

    def to_key(self, name: bytes) -> Key | None:
        """Return the record's key for a name; None if this table would not write the name."""
        try:
            key = self._parse(name[self._prefix_bytes :])
        except (TableError, UnicodeDecodeError):
            return None
        return key if self.for_keys([key])[0].encode() == name else None

    def pattern(self, scan: Scan) -> str:
        """Return the pattern that matches a scan's names. Raise InvalidOperation for a prefix of an integer key."""
        pattern = self.prefix
        if scan.partition is not None:
            pattern += _escape(scan.partition) if self._schema.composite else str(scan.partition)
            if not self._schema.composite:
                return pattern.translate(_GLOB)
            pattern += ":"
        if scan.prefix:
            self._schema.bounds(scan.partition, scan.prefix)  # raises for a prefix of an integer
            pattern += _escape(scan.prefix) if self._schema.composite else scan.prefix
        return pattern.translate(_GLOB) + "*"

    def _parse(self, text: bytes) -> Key:
        if not self._is_plain:
            return self._schema.from_path(text.split(b":"))
        kind = self._schema.fields[0].type
        return checked_part(text.decode(), kind) if kind == "string" else part_from_text(text, kind)


def slot_of(name: str) -> int:
    """Return the hash slot of a name."""
    return key_slot(name.encode())


def side_key(name: str) -> str:
    """Return the name of a record's side key, which has the same slot.

    A cluster hashes only the text between the first `{` and the next `}` unless that is empty, else the whole name. The
    names are formed in three ways, each with its own prefix, so no two records share a side key.
    """
    if "}" not in name:
        return f"_ts:{{{name}}}"
    start = name.find("{")
    if start >= 0 and name.find("}", start + 1) > start + 1:
        return f"_tst:{name}"
    return f"_tss:{{{_slot_tags()[slot_of(name)]}}}{name}"


@cache
def _slot_tags() -> list[int]:
    """Return, for each slot, a number whose decimal digits hash to it."""
    tags: dict[int, int] = {}
    number = 0
    while len(tags) < SLOT_COUNT:
        tags.setdefault(key_slot(b"%d" % number), number)
        number += 1
    return [tags[slot] for slot in range(SLOT_COUNT)]


def _escape(part: Part) -> str:
    return part.replace("%", "%25").replace(":", "%3A") if isinstance(part, str) else str(part)
