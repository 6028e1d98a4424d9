"""Converts records to items: the key, an attribute for each member of the value, and the service's metadata.

    _ts_v         version, 16 random hex digits that each write chooses
    _ts_w         the last writers and their sequences, alternating, the latest last
    _ts_x         expiry in Unix milliseconds, valid while the table's TTL attribute has the same time
    _ts_d         tombstone: the record is deleted, but its writers are kept
    TTL attribute expiry in Unix seconds, rounded up. DynamoDB deletes items by it

The etag consists of the version and a digest of the value. It therefore also changes if another tool changes the value
but not the version.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
import orjson

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
    run_in_thread,
)
from .attribute_values import Attribute, Item, from_attribute, size_bytes, to_attribute, to_attribute_like

Result = TypeVar("Result")

VERSION, WRITERS, EXPIRES_MS, DELETED = "_ts_v", "_ts_w", "_ts_x", "_ts_d"
UNNAMED_KEY = "_ts_key"
RESERVED_PREFIX = "_ts"

ITEM_BYTES_MAX = 400 * 1024
UNCHECKED_VALUE_BYTES_MAX = ITEM_BYTES_MAX // 4
"""A value whose text is not longer always fits into an item, because each byte counts at most three times."""

SHORT_TEXT_BYTES_MAX = 4096
"""The maximum size of the text of a value or item that the event loop converts itself, within a millisecond."""

TTL_AGE_MAX_S = 5 * 365 * 24 * 3600
"""DynamoDB ignores TTL times more than five years in the past, and keeps the item."""


class KeyAttribute(msgspec.Struct, frozen=True):
    """An attribute of the table's key: its name, and its type, S or N."""

    name: str
    kind: str


class ItemLayout(msgspec.Struct, frozen=True):
    """Maps the records of one table to items. `hidden` are the attributes that are not members of a value."""

    keys: tuple[KeyAttribute, ...]
    schema: KeySchema
    ttl_attribute: str
    hidden: frozenset[str]

    @classmethod
    def of(cls, keys: tuple[KeyAttribute, ...], schema: KeySchema, ttl_attribute: str) -> "ItemLayout":
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
        """Return an item's key. Raise RecordUnreadable if it is not a valid key."""
        parts: list[Part] = []
        for attribute, field, text in zip(self.keys, self.schema.fields, self.key_texts(item), strict=True):
            try:
                parts.append(checked_part(text if attribute.kind == "S" else int(text), field.type))
            except (ValueError, InvalidOperation):
                reason = f"another tool wrote the item, and its {attribute.name!r} is not a valid {field.type} of a key"
                raise RecordUnreadable(reason) from None
        return tuple(parts) if self.schema.composite else parts[0]

    def key_texts(self, item: Mapping[str, Attribute]) -> list[str]:
        """Return the texts of an item's key attributes."""
        return [item[key.name][key.kind] for key in self.keys]

    def stored(self, item: Item, now_ms: int) -> Stored:
        """Return the record in an item. Raise RecordUnreadable if its value is invalid."""
        expires_ms, writers = self.expires_ms(item, now_ms), _parse_writers(item.get(WRITERS))
        version = _version_text(item.get(VERSION))
        if DELETED in item:
            return Stored(None, version, expires_ms, writers)
        try:
            members = {name: from_attribute(attribute) for name, attribute in item.items() if self._is_member(name)}
            value = encode_sorted(members)
        except (TableError, ValueError, KeyError, TypeError):
            raise RecordUnreadable("another tool wrote the item, and it is not a valid value") from None
        return Stored(value, etag_of(version, value), expires_ms, writers)

    def members(self, item: Item) -> Item:
        """Return the attributes that are members of the value."""
        return {name: attribute for name, attribute in item.items() if self._is_member(name)}

    def _is_member(self, name: str) -> bool:
        return name[:3] != RESERVED_PREFIX and name not in self.hidden

    def build_item(self, key: Key, stored: Stored, version: str, present: Item | None = None) -> tuple[Item, str]:
        """Return the item for a record, and its etag. Unchanged members reuse the attributes in `present`.

        Raise InvalidOperation for a number that DynamoDB cannot represent, and TooLarge beyond 400 KB.
        """
        item = {**self.key_item(key), VERSION: {"S": version}, **self.metadata(stored)}
        if stored.value is None:
            return item, version
        members = decode(stored.value)
        self.check_members(members)
        for name, member in members.items():
            item[name] = to_attribute(member) if present is None else to_attribute_like(member, present.get(name))
        check_size(item, stored.value)
        return item, etag_of(version, encode_sorted(members))

    def metadata(self, stored: Stored) -> Item:
        """Return the attributes of a record's tombstone, expiry and writers."""
        item: Item = {}
        if stored.value is None:
            item[DELETED] = {"BOOL": True}
        if stored.expires_ms:
            item[self.ttl_attribute] = {"N": str(-(-stored.expires_ms // 1000))}
            item[EXPIRES_MS] = {"N": str(stored.expires_ms)}
        if stored.writers:
            item[WRITERS] = {"L": [part for name, last in stored.writers for part in ({"S": name}, {"N": str(last)})]}
        return item

    def check_members(self, members: Mapping[str, Any] | set[str]) -> None:
        """Raise InvalidOperation if a member has the name of the TTL attribute."""
        if self.ttl_attribute in members:
            raise InvalidOperation("a member has the name of the table's TTL attribute")

    def expires_ms(self, item: Item, now_ms: int) -> int:
        """Return when an item expires in Unix milliseconds, or 0 for never."""
        seconds = _whole_number(item.get(self.ttl_attribute))
        if seconds is None:
            return 0
        exact_ms = _whole_number(item.get(EXPIRES_MS))
        if exact_ms is not None and -(-exact_ms // 1000) == seconds:
            return exact_ms
        if seconds < now_ms // 1000 - TTL_AGE_MAX_S or seconds * 1000 >= EXPIRY_MS_MAX:
            return 0
        return seconds * 1000


async def converted(text_bytes: int, convert: Callable[[], Result]) -> Result:
    """Return the result of a conversion between a value and an item. A thread converts long texts."""
    return convert() if text_bytes <= SHORT_TEXT_BYTES_MAX else await run_in_thread(convert)


def text_bytes(item: Item) -> int:
    """Return the size of an item's JSON text, which takes a tenth of the time of its conversion."""
    return len(orjson.dumps(item))


def etag_of(version: str, sorted_text: bytes) -> str:
    """Return the etag of a value, whose text must have sorted members."""
    return version + hashlib.blake2b(sorted_text, digest_size=8).hexdigest()


def check_size(item: Item, value: bytes) -> None:
    """Raise TooLarge if an item exceeds DynamoDB's limit."""
    if len(value) <= UNCHECKED_VALUE_BYTES_MAX:
        return
    if sum(size_bytes(name, attribute) for name, attribute in item.items()) > ITEM_BYTES_MAX:
        raise TooLarge("DynamoDB: the item exceeds 400 KB")


def _version_text(attribute: Attribute | None) -> str:
    text = None if attribute is None else attribute.get("S")
    return text if isinstance(text, str) and len(text) == 16 and text.isascii() and text.isalnum() else ""


def _whole_number(attribute: Attribute | None) -> int | None:
    """Return a number without its fraction, or None if it is missing or cannot be a time."""
    text = None if attribute is None else attribute.get("N")
    if not isinstance(text, str):
        return None
    try:
        return int(text)
    except ValueError:
        number = float(text)
        return int(number) if abs(number) < -INTEGER_MIN else None


def _parse_writers(attribute: Attribute | None) -> tuple[tuple[str, int], ...]:
    if attribute is None:
        return ()
    try:
        parts = attribute["L"]
        return tuple((parts[at]["S"], int(parts[at + 1]["N"])) for at in range(0, len(parts), 2))
    except (KeyError, IndexError, ValueError, TypeError):
        return ()
