"""Names of Redis keys: for records, their side keys and the indexes of partitions, and the hash slots of names.

The name of a record's Redis key is the table's prefix and the record's key: a string unchanged, an integer in decimal,
the parts of a composite key joined by `:`, with `:` and `%` percent-encoded within the parts. With `hash_tag` the first
part is in braces, with `{` and `}` percent-encoded as well, so that a cluster keeps a partition in one slot. The side
key stores the tokens of the record's writers. Its name has the same one of the 16,384 slots as the record's.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, TypeAlias, cast

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from ...core import Key, KeySchema, MalformedRequest, Part, Scan, TableError, checked_part

NamedKey: TypeAlias = tuple[str, Key]
"""The name of a record's Redis key, and the record's key."""

SLOT_COUNT = REDIS_CLUSTER_HASH_SLOTS
ALL_SLOTS = frozenset(range(SLOT_COUNT))
_ALL_SLOTS_TEXT = f"0-{SLOT_COUNT - 1}"

SPLITS_PER_NODE_MAX = 8
"""Each split of a node scans all names of the node, so more splits would cost more than they gain."""

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


class Names(Sequence[str]):
    """Names of Redis keys: `texts` between the same `start` and `end`. Most are packed without forming each name."""

    def __init__(self, start: str, texts: Sequence[str], end: str = "") -> None:
        self.start, self.texts, self.end = start, texts, end

    @classmethod
    def of(cls, words: Sequence[Any]) -> "Names":
        """Return words as names."""
        return words if isinstance(words, Names) else cls("", words)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Names(self.start, self.texts[index], self.end)
        return f"{self.start}{self.texts[index]}{self.end}"

    def __iter__(self) -> Iterator[str]:
        return iter([f"{self.start}{text}{self.end}" for text in self.texts])


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

    def for_keys(self, keys: Sequence[Key]) -> Names:
        """Return the names for records' keys."""
        if self._is_plain:
            is_text = self._schema.fields[0].type == "string"
            return Names(self.prefix, cast("Sequence[str]", keys) if is_text else list(map(str, keys)))
        composite = [key for key in keys if isinstance(key, tuple)]
        if self._has_tag:
            return Names("", [self.partition_start(key[0]) + ":".join(map(_escape, key[1:])) for key in composite])
        return Names(self.prefix, [":".join(map(_escape, key)) for key in composite])

    def partition_start(self, partition: Part) -> str:
        """Return the prefix of the names of a partition's records."""
        return f"{self.prefix}{{{_escape_tag(partition)}}}:" if self._has_tag else f"{self.prefix}{_escape(partition)}:"

    def to_key(self, name: bytes) -> Key | None:
        """Return the record's key for a name, or None if this table would not write the name."""
        text = name[self._prefix_bytes :]
        try:
            if self._is_plain and self._schema.fields[0].type == "string":
                key: Key = checked_part(text.decode(), "string")
            else:
                parts = text.split(b":")
                key = self._schema.from_path([parts[0][1:-1], *parts[1:]] if self._has_tag else parts)
        except (TableError, UnicodeDecodeError):
            return None
        return key if self.for_keys([key])[0].encode() == name else None

    def named_keys(self, names: Sequence[bytes]) -> list[NamedKey]:
        """Return the names of this table's records and their keys. All given names match `pattern`."""
        start = len(self.prefix)
        try:
            texts = list(map(bytes.decode, names))
        except UnicodeDecodeError:
            texts = []
        keys: list[Any] = [text[start:] for text in texts]
        if self._is_plain and self._schema.checked_all(keys) and {text[:start] for text in texts} == {self.prefix}:
            return list(zip(texts, keys, strict=True))
        return [(name.decode(), key) for name in names if (key := self.to_key(name)) is not None]

    @property
    def every_pattern(self) -> str:
        """Return the pattern of all names that this table `owns`. It also matches names of other tables."""
        return f"*{self.prefix.translate(_GLOB)}*"

    def owns(self, name: bytes) -> bool:
        """Return whether a name is that of a record of this table, of a side key, or of an index or its mark."""
        kind, _, rest = name.partition(b":")
        prefix = self.prefix.encode()
        match kind:
            case b"_ts" | b"_tst" | b"_tss":
                record = rest[1:-1] if kind == b"_ts" else rest if kind == b"_tst" else rest.partition(b"}")[2]
                return self.to_key(record) is not None and side_key(record.decode()).encode() == name
            case b"_tsi" | b"_tsx":
                return rest.startswith(prefix) and rest.find(b":", len(prefix)) == len(rest) - 1
            case b"_tsc":
                return re.fullmatch(rb"(\{[0-9]+\})?" + re.escape(prefix), rest) is not None
        return self.to_key(name) is not None

    def pattern(self, scan: Scan) -> str:
        """Return the pattern that matches a scan's names. Raise InvalidOperation for a prefix of an integer key."""
        if scan.partition is not None and self._is_plain:
            return f"{self.prefix}{scan.partition}".translate(_GLOB)
        pattern = self.prefix if scan.partition is None else self.partition_start(scan.partition)
        if scan.prefix:
            self._schema.bounds(scan.partition, scan.prefix)  # raises for a prefix of an integer
            if self._has_tag and scan.partition is None:
                pattern += "{" + _escape_tag(scan.prefix)
            else:
                pattern += scan.prefix if self._is_plain else _escape(scan.prefix)
        return pattern.translate(_GLOB) + "*"


class PartitionIndex:
    """The indexes of the partitions of one table: the sort keys of each partition's records, in order.

    An index is a sorted set whose members all have score 0, so Redis orders them by their bytes. A member encodes the
    parts of a key after the first so that the order of the bytes is the order of the keys. A second sorted set has the
    members that expire, with their expiry as score. Both are in the slot of the partition's records, and the scripts
    that write a record update them in the same step. `exclusive`: only the service adds records to the table.
    """

    def __init__(self, names: KeyNames, schema: KeySchema, *, exclusive: bool = False) -> None:
        self.exclusive = exclusive
        self._names = names
        self._sort_key = KeySchema(schema.fields[1:])

    def entries(self, keys: Iterable[Key]) -> list[tuple[str, str, bytes]]:
        """Return for each record the name of the index, the name of the set of members that expire, and its member."""
        composite = [key for key in keys if isinstance(key, tuple)]
        starts = {part: self._names.partition_start(part) for part in {key[0] for key in composite}}
        names = {part: (f"_tsi:{start}", f"_tsx:{start}") for part, start in starts.items()}
        return [(*names[key[0]], self._member(key)) for key in composite]

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


def side_keys(names: Sequence[str]) -> Names:
    """Return the names of the side keys of records."""
    records = Names.of(names)
    if "}" in "".join([records.start, *records.texts, records.end]):
        return Names("", list(map(side_key, names)))
    return Names(f"_ts:{{{records.start}", records.texts, f"{records.end}}}")


def has_hash_tag(name: str) -> bool:
    """Return whether a cluster hashes only a part of the name. Names with the same beginning then share a slot."""
    return re.match(r"[^{]*\{[^}]+\}", name) is not None


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


def format_slots(slots: Iterable[int]) -> str:
    """Return slots as text in ranges: `0-5460,5470`."""
    ranges: list[list[int]] = []
    for slot in sorted(slots):
        if ranges and ranges[-1][1] == slot - 1:
            ranges[-1][1] = slot
        else:
            ranges.append([slot, slot])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in ranges)


def parse_slots(text: str) -> frozenset[int]:
    """Return slots from the text of `format_slots`. Raise ValueError for other text."""
    if text == _ALL_SLOTS_TEXT:
        return ALL_SLOTS
    slots: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.partition("-")
        first, last = int(low), int(high if dash else low)
        if not 0 <= first <= last < SLOT_COUNT:
            raise ValueError("not a range of slots")
        slots.update(range(first, last + 1))
    return ALL_SLOTS if len(slots) == SLOT_COUNT else frozenset(slots)


def slots_of_split(split: bytes | None) -> frozenset[int]:
    """Return the slots of a split. None is the whole table. Raise MalformedRequest if the bytes are not a split."""
    try:
        return ALL_SLOTS if split is None else parse_slots(split.decode())
    except ValueError:
        raise MalformedRequest("the split does not belong to this table") from None


def slot_splits(nodes: Sequence[frozenset[int]], count_max: int) -> list[bytes]:
    """Divide all slots into at most `count_max` splits. With enough splits, none has slots of two nodes."""
    if not nodes:
        return [format_slots(ALL_SLOTS).encode()]
    each = min(max(1, count_max // len(nodes)), SPLITS_PER_NODE_MAX)
    pieces = [
        slots[len(slots) * at // each : len(slots) * (at + 1) // each]
        for slots in map(sorted, nodes)
        for at in range(each)
    ]
    parts = [set(chain.from_iterable(pieces[at::count_max])) for at in range(min(count_max, len(pieces)))]
    parts[0] |= ALL_SLOTS.difference(*nodes)
    return [format_slots(part).encode() for part in parts if part]


def _escape(part: Part) -> str:
    return part.replace("%", "%25").replace(":", "%3A") if isinstance(part, str) else str(part)


def _escape_tag(part: Part) -> str:
    return _escape(part).replace("{", "%7B").replace("}", "%7D")
