"""Converts records to items: the key, an attribute for each member of the value, and the service's metadata.

    _ts_v         version, 16 random hex digits that each write chooses
    _ts_w         the last writers and their sequences, alternating, the latest last, then the text of the orders
    _ts_x         expiry in Unix milliseconds, valid while the table's TTL attribute has the same time, or a later one
                  if there are orders
    _ts_d         tombstone: the record is deleted, but its memory is kept
    TTL attribute when DynamoDB deletes the item, in Unix seconds, rounded up: at its expiry, or
                  `delete_memory_s` later if there are orders

The etag consists of the version and a digest of the value. It therefore also changes if another tool changes the value
but not the version.

DynamoDB's numbers have 38 decimal digits, enough for every 64-bit integer and for the 17 digits that identify a double.
Attribute types that only other tools write can be read too: a set becomes a sorted array, binary becomes base64 text,
and a number that is not a 64-bit integer becomes the nearest double. Attributes have their wire format.
"""

import hashlib
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from itertools import zip_longest
from typing import Any, TypeAlias, TypeVar

import msgspec
import orjson

from ...core import (
    EXPIRY_MS_MAX,
    INTEGER_MAX,
    INTEGER_MIN,
    NO_MEMORY,
    InvalidOperation,
    Json,
    Key,
    Memory,
    Part,
    RecordUnreadable,
    Stored,
    TableError,
    TableSpec,
    checked_part,
    decode,
    encode_sorted,
    normalize_number,
    run_in_thread,
)

Result = TypeVar("Result")
Attribute: TypeAlias = dict[str, Any]
Item: TypeAlias = dict[str, Attribute]

VERSION, WRITERS, EXPIRES_MS, DELETED = "_ts_v", "_ts_w", "_ts_x", "_ts_d"
UNNAMED_KEY = "_ts_key"
RESERVED_PREFIX = "_ts"

SHORT_TEXT_BYTES_MAX = 4096
"""The maximum size of the text of a value or item that the event loop converts itself, within a millisecond."""

TTL_AGE_MAX_S = 5 * 365 * 24 * 3600
"""DynamoDB ignores TTL times more than five years in the past, and keeps the item."""


class KeyAttribute(msgspec.Struct, frozen=True):
    """An attribute of the table's key: its name, and its type, S or N."""

    name: str
    kind: str


class ItemLayout:
    """Maps the records of one table to items."""

    def __init__(self, keys: tuple[KeyAttribute, ...], spec: TableSpec, ttl_attribute: str) -> None:
        self.keys = keys
        self.ttl_attribute = ttl_attribute
        self._spec = spec
        self._hidden = frozenset({*(key.name for key in keys), ttl_attribute})  # the other attributes are members

    def key_item(self, key: Key) -> Item:
        """Return a key's attributes."""
        parts = key if isinstance(key, tuple) else (key,)
        return {each.name: {each.kind: str(part)} for each, part in zip(self.keys, parts, strict=True)}

    def key_of(self, item: Mapping[str, Attribute]) -> Key:
        """Return an item's key. Raise RecordUnreadable if it is not a valid key."""
        parts: list[Part] = []
        for attribute, field, text in zip(self.keys, self._spec.key.fields, self.key_texts(item), strict=True):
            try:
                parts.append(checked_part(text if attribute.kind == "S" else int(text), field.type))
            except (ValueError, InvalidOperation):
                reason = f"another tool wrote the item, and its {attribute.name!r} is not a valid {field.type} of a key"
                raise RecordUnreadable(reason) from None
        return tuple(parts) if self._spec.key.composite else parts[0]

    def key_texts(self, item: Mapping[str, Attribute]) -> list[str]:
        """Return the texts of an item's key attributes."""
        return [item[key.name][key.kind] for key in self.keys]

    async def stored(self, item: Item, now_ms: int) -> Stored | RecordUnreadable:
        """Return the record in an item, or the error if its value is invalid."""
        text_bytes = len(orjson.dumps(item))  # takes a tenth of the time of the conversion
        return await converted(text_bytes, partial(self._stored, item, now_ms))

    def _stored(self, item: Item, now_ms: int) -> Stored | RecordUnreadable:
        memory = _parse_memory(item.get(WRITERS))
        expires_ms = self._expires_ms(item, now_ms, has_orders=bool(memory.orders))
        version = _version_text(item.get(VERSION))
        if DELETED in item:
            return Stored(None, version, expires_ms, memory)
        try:
            members = {name: from_attribute(attribute) for name, attribute in item.items() if self._is_member(name)}
            value = encode_sorted(members)
        except (TableError, ValueError, KeyError, TypeError):
            error = RecordUnreadable("another tool wrote the item, and it is not a valid value")
            error.memory = memory
            return error
        return Stored(value, etag_of(version, value), expires_ms, memory)

    def members(self, item: Item) -> Item:
        """Return the attributes that are members of the value."""
        return {name: attribute for name, attribute in item.items() if self._is_member(name)}

    def _is_member(self, name: str) -> bool:
        return name[:3] != RESERVED_PREFIX and name not in self._hidden

    def build_item(self, key: Key, stored: Stored, present: Item | None = None) -> tuple[Item, str]:
        """Return the item for a record whose version is `stored.etag`, and the etag that readers of the item get.

        Unchanged members reuse the attributes in `present`. Raise InvalidOperation for a number that DynamoDB cannot
        represent.
        """
        item = {**self.key_item(key), VERSION: {"S": stored.etag}, **self.metadata(stored)}
        if stored.value is None:
            return item, stored.etag
        members = decode(stored.value)
        self.check_members(members)
        for name, member in members.items():
            item[name] = to_attribute(member) if present is None else to_attribute_like(member, present.get(name))
        return item, etag_of(stored.etag, encode_sorted(members))

    def metadata(self, stored: Stored) -> Item:
        """Return the attributes of a record's tombstone, expiry and memory."""
        item: Item = {}
        if stored.value is None:
            item[DELETED] = {"BOOL": True}
        if stored.expires_ms:
            outlives = stored.value is not None and stored.memory.orders
            kept_ms = round(1000 * self._spec.delete_memory_s) if outlives else 0
            item[self.ttl_attribute] = {"N": str(_seconds(stored.expires_ms + kept_ms))}
            item[EXPIRES_MS] = {"N": str(stored.expires_ms)}
        if stored.memory:
            parts = [part for name, last in stored.memory.writers for part in ({"S": name}, {"N": str(last)})]
            orders = [{"S": stored.memory.orders.decode()}] if stored.memory.orders else []
            item[WRITERS] = {"L": [*parts, *orders]}
        return item

    def check_members(self, members: Mapping[str, Any]) -> None:
        """Raise InvalidOperation if a member has the name of the TTL attribute."""
        if self.ttl_attribute in members:
            raise InvalidOperation("a member has the name of the table's TTL attribute")

    def _expires_ms(self, item: Item, now_ms: int, *, has_orders: bool) -> int:
        """Return when an item expires in Unix milliseconds, or 0 for never."""
        seconds = _whole_number(item.get(self.ttl_attribute))
        if seconds is None:
            return 0
        exact_ms = _whole_number(item.get(EXPIRES_MS))
        if exact_ms is not None and (seconds == _seconds(exact_ms) or (has_orders and seconds > _seconds(exact_ms))):
            return exact_ms
        if seconds < now_ms // 1000 - TTL_AGE_MAX_S or seconds * 1000 >= EXPIRY_MS_MAX:
            return 0
        return seconds * 1000


async def converted(text_bytes: int, convert: Callable[[], Result]) -> Result:
    """Return the result of a conversion between a value and an item. A thread converts long texts."""
    return convert() if text_bytes <= SHORT_TEXT_BYTES_MAX else await run_in_thread(convert)


def etag_of(version: str, sorted_text: bytes) -> str:
    """Return the etag of a value, whose text must have sorted members."""
    return version + hashlib.blake2b(sorted_text, digest_size=8).hexdigest()


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


def _seconds(time_ms: int) -> int:
    return -(-time_ms // 1000)


def _parse_memory(attribute: Attribute | None) -> Memory:
    """Return what an item remembers. The text of the orders is the last part if the number of parts is odd."""
    if attribute is None:
        return NO_MEMORY
    try:
        parts = attribute["L"]
        writers = tuple((parts[at]["S"], int(parts[at + 1]["N"])) for at in range(0, len(parts) - 1, 2))
        return Memory(writers, parts[-1]["S"].encode() if len(parts) % 2 else b"")
    except (AttributeError, KeyError, IndexError, ValueError, TypeError):
        return NO_MEMORY


# Attributes

MAGNITUDE_MIN = 1e-130
MAGNITUDE_MAX = 9.9999999999999999999999999999999999999e125


def to_attribute(member: Json) -> Attribute:
    """Return a member's attribute. Raise InvalidOperation for a number that DynamoDB cannot represent."""
    kind = type(member)
    if kind is str:
        return {"S": member}
    if kind is int:
        return {"N": str(member)}
    if isinstance(member, float):
        if member and not MAGNITUDE_MIN <= abs(member) <= MAGNITUDE_MAX:
            raise InvalidOperation("DynamoDB supports numbers with magnitudes from 1e-130 to 9.99e125")
        return {"N": repr(member)}
    if kind is bool:
        return {"BOOL": member}
    if member is None:
        return {"NULL": True}
    if isinstance(member, dict):
        return {"M": {name: to_attribute(inner) for name, inner in member.items()}}
    assert isinstance(member, list)
    return {"L": [to_attribute(inner) for inner in member]}


def from_attribute(attribute: Attribute) -> Json:
    """Return an attribute's member. Raise ValueError or KeyError if it is not a valid attribute."""
    [(kind, raw)] = attribute.items()
    if kind == "S":
        text: str = raw
        return text
    return _CONVERTERS[kind](raw)


def to_attribute_like(member: Json, present: Attribute | None) -> Attribute:
    """Return a member's attribute, reusing the present attribute, or the parts of it, that have the same value.

    So unchanged sets stay sets, and unchanged numbers keep all digits.
    """
    if present is None:
        return to_attribute(member)
    if isinstance(member, dict) and "M" in present:
        inner = present["M"]
        return {"M": {name: to_attribute_like(value, inner.get(name)) for name, value in member.items()}}
    if isinstance(member, list) and "L" in present:
        elements = present["L"]
        pairs = zip_longest(member, elements[: len(member)])
        return {"L": [to_attribute_like(value, element) for value, element in pairs]}
    return present if equal_json(from_attribute(present), member) else to_attribute(member)


def equal_json(one: Json, other: Json) -> bool:
    """Return whether two values are the same JSON. In Python, 1, 1.0 and True are equal."""
    return type(one) is type(other) and one == other and orjson.dumps(one) == orjson.dumps(other)


def parse_number(text: str) -> Json:
    """Return a number as a 64-bit integer, or else as the nearest double."""
    try:
        whole = int(text)
    except ValueError:
        exact = Decimal(text)
        if not INTEGER_MIN <= exact <= INTEGER_MAX or exact != exact.to_integral_value():
            return normalize_number(float(text))
        return int(exact)
    return whole if INTEGER_MIN <= whole <= INTEGER_MAX else normalize_number(float(whole))


_CONVERTERS: dict[str, Callable[[Any], Json]] = {
    "N": parse_number,
    "BOOL": lambda raw: raw,
    "NULL": lambda raw: None,
    "M": lambda raw: {name: from_attribute(attribute) for name, attribute in raw.items()},
    "L": lambda raw: [from_attribute(attribute) for attribute in raw],
    "SS": sorted,
    "NS": lambda raw: [parse_number(text) for text in sorted(raw, key=Decimal)],
    "B": lambda raw: raw,
    "BS": sorted,
}
