"""Names of Redis keys: for records and their side keys, and the hash slot of a name among the 16,384 of a cluster.

The name of a record's Redis key is the table's prefix and the record's key: a string unchanged, an integer in decimal,
the parts of a composite key joined by `:`, with `:` and `%` percent-encoded within the parts. With `hash_tag` the first
part is in braces, with `{` and `}` percent-encoded as well, so that a cluster keeps a partition in one slot. The side
key stores the tokens of the record's writers. Its name has the same slot as the record's.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from ...core import Key, KeySchema, Part, Scan, TableError, checked_part, part_from_text

NamedKey: TypeAlias = tuple[str, Key]
"""The name of a record's Redis key, and the record's key."""

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

    def __init__(self, prefix: str, schema: KeySchema, *, hash_tag: bool = False) -> None:
        self.prefix = prefix
        self._schema = schema
        self._is_plain = not schema.composite
        self._has_tag = hash_tag
        self._prefix_bytes = len(prefix.encode())

    @property
    def keep_partitions_together(self) -> bool:
        """Whether all records of a partition are in one slot of a cluster."""
        return has_hash_tag(f"{self.prefix}{{tag}}" if self._has_tag else self.prefix)

    def for_keys(self, keys: Iterable[Key]) -> list[str]:
        """Return the names for records' keys."""
        prefix = self.prefix
        if self._is_plain:
            return [f"{prefix}{key}" for key in keys]
        composite = [key for key in keys if isinstance(key, tuple)]
        if self._has_tag:
            return [self.partition_start(key[0]) + ":".join(map(_escape, key[1:])) for key in composite]
        return [prefix + ":".join(map(_escape, key)) for key in composite]

    def partition_start(self, partition: Part) -> str:
        """Return the prefix of the names of a partition's records."""
        return f"{self.prefix}{{{_escape_tag(partition)}}}:" if self._has_tag else f"{self.prefix}{_escape(partition)}:"

    def to_key(self, name: bytes) -> Key | None:
        """Return the record's key for a name, or None if this table would not write the name."""
        try:
            key = self._parse(name[self._prefix_bytes :])
        except (TableError, UnicodeDecodeError):
            return None
        return key if self.for_keys([key])[0].encode() == name else None

    def named_keys(self, names: Sequence[bytes]) -> list[NamedKey]:
        """Return the names of this table's records and their keys. All given names match `pattern`.

        Makes few calls if all keys are valid strings in ASCII.
        """
        start = len(self.prefix)
        try:
            texts = list(map(bytes.decode, names))
        except UnicodeDecodeError:
            texts = []
        keys: list[Any] = [text[start:] for text in texts]
        if self._is_plain and self._schema.all_valid(keys) and {text[:start] for text in texts} == {self.prefix}:
            return list(zip(texts, keys, strict=True))
        return [(name.decode(), key) for name in names if (key := self.to_key(name)) is not None]

    def pattern(self, scan: Scan) -> str:
        """Return the pattern that matches a scan's names. Raise InvalidOperation for a prefix of an integer key."""
        if scan.partition is not None and self._is_plain:
            return f"{self.prefix}{scan.partition}".translate(_GLOB)
        pattern = self.prefix if scan.partition is None else self.partition_start(scan.partition)
        if scan.prefix:
            self._schema.bounds(scan.partition, scan.prefix)  # raises for a prefix of an integer
            pattern += self._escape_prefix(scan.prefix, in_tag=self._has_tag and scan.partition is None)
        return pattern.translate(_GLOB) + "*"

    def _escape_prefix(self, prefix: str, *, in_tag: bool) -> str:
        if in_tag:
            return "{" + _escape_tag(prefix)
        return prefix if self._is_plain else _escape(prefix)

    def _parse(self, text: bytes) -> Key:
        if not self._is_plain:
            first, *others = text.split(b":")
            return self._schema.from_path([first[1:-1] if self._has_tag else first, *others])
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
    if has_hash_tag(name):
        return f"_tst:{name}"
    return f"_tss:{slot_tag(slot_of(name))}{name}"


def with_side_keys(names: Sequence[str]) -> list[str]:
    """Return each name, and the name of its side key after it."""
    usual = "}" not in "".join(names)
    woven = [""] * (2 * len(names))
    woven[::2], woven[1::2] = names, [f"_ts:{{{name}}}" for name in names] if usual else map(side_key, names)
    return woven


def has_hash_tag(name: str) -> bool:
    """Return whether a cluster hashes only a part of the name. Names with the same beginning then share a slot."""
    start = name.find("{")
    return start >= 0 and name.find("}", start + 1) > start + 1


def slot_tag(slot: int) -> str:
    """Return a hash tag that puts the name that it begins into a slot."""
    return f"{{{_slot_tags()[slot]}}}"


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


def _escape_tag(part: Part) -> str:
    return _escape(part).replace("{", "%7B").replace("}", "%7D")
