"""How DynamoDB holds a record: its key, an attribute for each member of the value, and what the service remembers.

    _ts_v         version, 16 hex digits that each writer chooses at random
    _ts_w         the last writers and their sequences in turn, the latest last
    _ts_x         when it expires, in Unix milliseconds; holds as long as the table's TTL attribute says the same
    _ts_d         there is no record, only the memory of its writers
    TTL attribute when it expires, in Unix seconds, rounded up: what DynamoDB deletes by

The etag is the version and a digest of the value, so it changes too when another tool leaves the version in place.
Knows nothing of calls.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from ...core import (
    EXPIRY_MS_MAX,
    INTEGER_MIN,
    InvalidOperation,
    Key,
    KeySchema,
    Part,
    RecordUnreadable,
    Stored,
    TableError,
    TooLarge,
    checked_part,
    decode,
    encode_sorted,
)
from .attribute_values import Attribute, Item, alike, from_attribute, size_bytes, to_attribute

VERSION, WRITERS, EXPIRES_MS, DELETED = "_ts_v", "_ts_w", "_ts_x", "_ts_d"
UNNAMED_KEY = "_ts_key"
RESERVED = "_ts"

ITEM_BYTES_MAX = 400 * 1024
SURELY_FITS_BYTES = ITEM_BYTES_MAX // 4
"""A value whose text is no longer than this makes no item that is too large: a byte of it counts thrice at most."""

KEPT_THOUGH_EXPIRED_S = 5 * 365 * 24 * 3600
"""DynamoDB takes a time that lies further back than five years for a mistake, and keeps the item."""


class KeyAttribute(msgspec.Struct, frozen=True):
    """An attribute of the table's key: its name, and S or N."""

    name: str
    kind: str


class Layout(msgspec.Struct, frozen=True):
    """How the records of one table are laid out; `hidden` are the names that are no members of a value."""

    keys: tuple[KeyAttribute, ...]
    schema: KeySchema
    ttl_attribute: str
    hidden: frozenset[str]

    @classmethod
    def of(cls, keys: tuple[KeyAttribute, ...], schema: KeySchema, ttl_attribute: str) -> "Layout":
        """Return the layout of a table with these key attributes."""
        return cls(keys, schema, ttl_attribute, frozenset({*(key.name for key in keys), ttl_attribute}))

    def key_item(self, key: Key) -> Item:
        """Return a key's attributes."""
        parts = key if isinstance(key, tuple) else (key,)
        return {
            attribute.name: {attribute.kind: part if isinstance(part, str) else str(part)}
            for attribute, part in zip(self.keys, parts, strict=True)
        }

    def key_of(self, item: Mapping[str, Attribute]) -> Key:
        """Return an item's key. Raise RecordUnreadable if it is none that a caller could ask for."""
        parts: list[Part] = []
        for attribute, field in zip(self.keys, self.schema.fields, strict=True):
            raw = item[attribute.name][attribute.kind]
            try:
                parts.append(checked_part(raw if attribute.kind == "S" else int(raw), field.type))
            except (ValueError, InvalidOperation):
                raise RecordUnreadable("another tool wrote an item whose key is no legal key") from None
        return tuple(parts) if self.schema.composite else parts[0]

    def stored(self, item: Item, now_ms: int) -> Stored:
        """Return what an item holds. Raise RecordUnreadable if that is no legal value."""
        expires_ms, writers = self.expires_ms(item, now_ms), _writers(item.get(WRITERS))
        version = _text(item.get(VERSION))
        if DELETED in item:
            return Stored(None, version, expires_ms, writers)
        try:
            members = {
                name: from_attribute(attribute)
                for name, attribute in item.items()
                if name[:3] != RESERVED and name not in self.hidden
            }
            value = encode_sorted(members)
        except (TableError, ValueError, KeyError, TypeError):
            raise RecordUnreadable("another tool wrote the item, and it is no legal value") from None
        return Stored(value, etag_of(version, value), expires_ms, writers)

    def members(self, item: Item) -> Item:
        """Return the attributes that are members of the value."""
        return {name: attribute for name, attribute in item.items() if name[:3] != RESERVED and name not in self.hidden}

    def made(self, key: Key, stored: Stored, version: str, present: Item | None = None) -> tuple[Item, str]:
        """Return the item that holds a record, and its etag; members that `present` has stay as they are there.

        Raise InvalidOperation for a number that DynamoDB has not, TooLarge beyond 400 KB.
        """
        item = {**self.key_item(key), VERSION: {"S": version}, **self.beside(stored)}
        if stored.value is None:
            return item, version
        members = decode(stored.value)
        self.check(members)
        for name, member in members.items():
            item[name] = to_attribute(member) if present is None else alike(member, present.get(name))
        check_size(item, stored.value)
        return item, etag_of(version, encode_sorted(members))

    def beside(self, stored: Stored) -> Item:
        """Return what the service remembers beside the value and the version."""
        item: Item = {}
        if stored.value is None:
            item[DELETED] = {"BOOL": True}
        if stored.expires_ms:
            item[self.ttl_attribute] = {"N": str(-(-stored.expires_ms // 1000))}
            item[EXPIRES_MS] = {"N": str(stored.expires_ms)}
        if stored.writers:
            item[WRITERS] = {"L": [part for name, last in stored.writers for part in ({"S": name}, {"N": str(last)})]}
        return item

    def check(self, members: Mapping[str, Any] | set[str]) -> None:
        """Raise InvalidOperation if a value has a member of the TTL attribute's name."""
        if self.ttl_attribute in members:
            raise InvalidOperation("a member has the name of the attribute by which DynamoDB expires items")

    def expires_ms(self, item: Item, now_ms: int) -> int:
        """Return when an item expires, 0 for never."""
        seconds = _whole(item.get(self.ttl_attribute))
        if seconds is None:
            return 0
        exact_ms = _whole(item.get(EXPIRES_MS))
        if exact_ms is not None and -(-exact_ms // 1000) == seconds:
            return exact_ms
        if seconds < now_ms // 1000 - KEPT_THOUGH_EXPIRED_S or seconds * 1000 >= EXPIRY_MS_MAX:
            return 0
        return seconds * 1000


def etag_of(version: str, sorted_text: bytes) -> str:
    """Return the etag of a value, given as text whose members are in order."""
    return version + hashlib.blake2b(sorted_text, digest_size=8).hexdigest()


def check_size(item: Item, value: bytes) -> None:
    """Raise TooLarge if an item is larger than DynamoDB takes."""
    if len(value) <= SURELY_FITS_BYTES:
        return
    if sum(size_bytes(name, attribute) for name, attribute in item.items()) > ITEM_BYTES_MAX:
        raise TooLarge("DynamoDB: an item may have 400 KB")


def _text(attribute: Attribute | None) -> str:
    text = None if attribute is None else attribute.get("S")
    return text if isinstance(text, str) and len(text) == 16 and text.isascii() and text.isalnum() else ""


def _whole(attribute: Attribute | None) -> int | None:
    """Return a number without its fraction; None for what is no number of a time."""
    text = None if attribute is None else attribute.get("N")
    if not isinstance(text, str):
        return None
    try:
        return int(text)
    except ValueError:
        number = float(text)
        return int(number) if abs(number) < -INTEGER_MIN else None


def _writers(attribute: Attribute | None) -> tuple[tuple[str, int], ...]:
    if attribute is None:
        return ()
    try:
        parts = attribute["L"]
        return tuple((parts[at]["S"], int(parts[at + 1]["N"])) for at in range(0, len(parts), 2))
    except (KeyError, IndexError, ValueError, TypeError):
        return ()
