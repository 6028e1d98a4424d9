"""Changes items by compare-and-set, and the expressions of DynamoDB that this and scans need.

A write is decided after reading the item. It writes only the members that change, on condition that no member has
changed since. Unchanged attributes stay as another tool wrote them, including their types.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...core import (
    Clock,
    Outcome,
    Replacement,
    Stored,
    TableError,
    Update,
    VersionedRecord,
    Write,
    Yielder,
    decode,
    encode_sorted,
    with_etag,
)
from .calls import Request, TableCalls
from .items import (
    DELETED,
    EXPIRES_MS,
    VERSION,
    WRITERS,
    Attribute,
    Item,
    ItemLayout,
    equal_json,
    etag_of,
    to_attribute_like,
)

EXPRESSION_BYTES_MAX = 4096
NAMES_MAX = EXPRESSION_BYTES_MAX // 4
"""How many names an expression has room for, each with its `#`, a digit, a comma and a space."""

CONDITIONS_MAX = 140
"""How many conditions an expression may join: each counts as an operator, and so does each AND."""

GUARDED_MEMBERS_MAX = 100
GUARDED_BYTES_MAX = 32 * 1024
"""Limits the members that a condition compares with the item that was read."""


class Placeholders:
    """The names and values of an expression, which refers to them by placeholders such as `#0` and `:0`."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, Attribute] = {}

    def name(self, name: str) -> str:
        """Return the placeholder for an attribute's name, which may contain any character or be a reserved word."""
        return self._names.setdefault(name, f"#{len(self._names)}")

    def value(self, attribute: Attribute) -> str:
        """Return the placeholder for a value."""
        placeholder = f":{len(self._values)}"
        self._values[placeholder] = attribute
        return placeholder

    def parameters(self, sets: list[str], removes: list[str], conditions: list[str]) -> dict[str, Any] | None:
        """Return the parameters of a call, or None if an expression exceeds a limit of DynamoDB."""
        if len(conditions) > CONDITIONS_MAX:
            return None
        update = [f"{verb} {', '.join(parts)}" for verb, parts in (("SET", sets), ("REMOVE", removes)) if parts]
        parameters: dict[str, Any] = {"ConditionExpression": " AND ".join(conditions)}
        if update:
            parameters["UpdateExpression"] = " ".join(update)
        if any(len(text) > EXPRESSION_BYTES_MAX for text in parameters.values()):
            return None
        parameters["ExpressionAttributeNames"] = {placeholder: name for name, placeholder in self._names.items()}
        if self._values:
            parameters["ExpressionAttributeValues"] = self._values
        return parameters


def unchanged_conditions(placeholders: Placeholders, layout: ItemLayout, item: Item | None) -> list[str]:
    """Return the conditions that an item has not changed since it was read: its version, and members up to a limit."""
    if item is None:
        return [f"attribute_not_exists({placeholders.name(layout.keys[0].name)})"]
    version, deleted = placeholders.name(VERSION), placeholders.name(DELETED)
    conditions = [
        f"{version} = {placeholders.value(item[VERSION])}" if VERSION in item else f"attribute_not_exists({version})",
        f"attribute_{'' if DELETED in item else 'not_'}exists({deleted})",
    ]
    members = layout.members(item)
    if VERSION not in item:
        # Without a version, only the members show a write by another tool, so the condition contains as many as fit.
        members = dict(list(members.items())[:GUARDED_MEMBERS_MAX])
        conditions.append(f"attribute_exists({placeholders.name(layout.keys[0].name)})")
    elif len(members) > GUARDED_MEMBERS_MAX or len(msgspec.json.encode(members)) > GUARDED_BYTES_MAX:
        members = {}
    return conditions + [
        f"{placeholders.name(name)} = {placeholders.value(attribute)}" for name, attribute in members.items()
    ]


class VersionedItems:
    """Reads the items of one table, and replaces those that have not changed since. Used by `CompareAndSet`.

    The version of a record is its item, None if it is absent.
    """

    def __init__(self, calls: TableCalls, layout: ItemLayout, clock: Clock) -> None:
        self._calls = calls
        self._layout = layout
        self._clock = clock

    async def read(self, writes: Sequence[Write], until: float) -> Sequence[VersionedRecord | TableError]:
        """Read the records of writes with strong consistency."""
        records: list[VersionedRecord | TableError] = []
        yielder = Yielder()
        for item in await self._calls.get([write.key for write in writes], until):
            await yielder.maybe_yield()
            if isinstance(item, TableError):
                records.append(item)
            else:
                stored = None if item is None else await self._layout.stored(item, self._clock())
                records.append(VersionedRecord(stored, item))
        return records

    async def replace(self, replacements: Sequence[Replacement], until: float) -> list[Outcome | bool]:
        """Replace records that have not changed since they were read."""

        def size_bytes(replacement: Replacement) -> int:
            stored = replacement.changed.stored
            return 0 if stored is None else len(stored.value or b"")

        return [*await self._calls.write_each(replacements, self._request, size_bytes, until)]

    def _request(self, replacement: Replacement) -> Request:
        """Return the call that replaces a record. An update writes only changed members if the call can express it."""
        write, changed, item = replacement.write, replacement.changed, replacement.version
        before, stored, present = replacement.found.stored, changed.stored, None
        key, created = {"Key": self._layout.key_item(write.key)}, getattr(changed.outcome, "created", False)
        if isinstance(write, Update) and isinstance(before, Stored) and stored is not None and not created:
            if (changes := self._changes(write, before, stored, item)) is not None:
                parameters, etag = changes
                return "update_item", key | parameters, with_etag(changed, etag).outcome
            present = self._layout.members(item)
        placeholders = Placeholders()
        conditions = unchanged_conditions(placeholders, self._layout, item)
        parameters = placeholders.parameters([], [], conditions) or {}
        if stored is None:
            return "delete_item", key | parameters, changed.outcome
        new_item, etag = self._layout.build_item(write.key, stored, present)
        return "put_item", {"Item": new_item, **parameters}, with_etag(changed, etag).outcome

    def _changes(self, write: Update, present: Stored, stored: Stored, item: Item) -> tuple[dict[str, Any], str] | None:
        """Return the parameters and the new etag, or None if a limit for expressions is exceeded."""
        assert present.value is not None
        assert stored.value is not None
        before, after = decode(present.value), decode(stored.value)
        self._layout.check_members(after)
        changed = [name for name, member in after.items() if name not in before or not equal_json(before[name], member)]
        removed = [name for name in before if name not in after]
        if len(changed) + len(removed) > NAMES_MAX:
            return None
        wanted: Item = {name: to_attribute_like(after[name], item.get(name)) for name in changed}
        wanted[VERSION] = {"S": stored.etag}
        metadata = self._layout.metadata(stored)
        if stored.memory != present.memory:
            wanted[WRITERS] = metadata[WRITERS]
        if write.ttl_s is not None or stored.memory != present.memory:
            expiry = (self._layout.ttl_attribute, EXPIRES_MS)
            wanted |= {name: metadata[name] for name in expiry if name in metadata}
            removed += [name for name in expiry if name not in metadata]
        placeholders = Placeholders()
        conditions = unchanged_conditions(placeholders, self._layout, item)
        sets = [f"{placeholders.name(name)} = {placeholders.value(attribute)}" for name, attribute in wanted.items()]
        # Another tool may have added a member that this update adds.
        added = after.keys() - before
        conditions += [f"attribute_not_exists({placeholders.name(name)})" for name in wanted if name in added]
        parameters = placeholders.parameters(sets, [placeholders.name(name) for name in removed], conditions)
        return None if parameters is None else (parameters, etag_of(stored.etag, encode_sorted(after)))
