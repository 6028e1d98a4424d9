"""Reads the items of one table, and replaces them if they have not changed since (compare-and-set).

An update writes only the members that change, on condition that no member has changed since it was read. Unchanged
attributes stay as another tool wrote them, including their types.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from ...core import (
    Clock,
    DeadlineExceeded,
    Key,
    Outcome,
    RecordUnreadable,
    Replacement,
    Stored,
    TableError,
    Update,
    VersionedRecord,
    Yielder,
    decode,
    encode_sorted,
    gather_bounded,
    with_etag,
)
from .attribute_values import Item, equal_json, to_attribute_like
from .batches import BatchCalls
from .client import Client
from .errors import ConditionFailed
from .expressions import NAMES_MAX, Placeholders, unchanged_conditions
from .items import EXPIRES_MS, VERSION, WRITERS, ItemLayout, converted, etag_of, text_bytes

AnyWrite = TypeVar("AnyWrite")
Result = TypeVar("Result")

WRITES_CONCURRENCY = 32
"""How many writes of one batch run concurrently."""


class ReadItem(msgspec.Struct, frozen=True):
    """An item as it was read, None if it is absent, and its record."""

    item: Item | None
    stored: Stored | RecordUnreadable | None


async def each_write(
    writes: Sequence[AnyWrite], call: Callable[[AnyWrite, float], Coroutine[Any, Any, Result]], until: float
) -> list[Result | DeadlineExceeded]:
    """Call a function for each write, for some concurrently, until the deadline. Return the results in order."""
    yielder = Yielder()

    async def one(write: AnyWrite) -> Result | DeadlineExceeded:
        await yielder.maybe_yield()
        if yielder.is_past(until):
            return DeadlineExceeded("the deadline passed before the write was sent")
        return await call(write, until)

    return await gather_bounded([one(write) for write in writes], WRITES_CONCURRENCY)


class TableItems:
    """Reads and writes the items of one table. Implements the reads and writes of compare-and-set."""

    def __init__(self, client: Client, table: str, layout: ItemLayout, clock: Clock) -> None:
        self.batches = BatchCalls(client, table, [key.name for key in layout.keys])
        self.layout = layout
        self._client = client
        self._table = table
        self._clock = clock

    async def fetch(
        self, keys: Sequence[Key], until: float, *, consistent: bool = True
    ) -> list[Item | TableError | None]:
        """Return the items of keys, in their order."""
        key_items = [self.layout.key_item(key) for key in keys]
        if len(key_items) != 1:
            return await self.batches.get(key_items, until, consistent=consistent)
        try:
            response = await self.call("get_item", {"Key": key_items[0], "ConsistentRead": consistent}, until)
        except TableError as error:
            return [error]
        return [response.get("Item")]

    async def write(self, verb: str, parameters: dict[str, Any], until: float) -> Item:
        """Execute one write and return its response. Raise ConditionFailed or a TableError."""
        return await self.call(verb, parameters, until, writes=True)

    async def call(self, verb: str, parameters: dict[str, Any], until: float, *, writes: bool = False) -> Item:
        """Call DynamoDB for the table."""
        return await self._client.call(verb, {"TableName": self._table, **parameters}, until, writes=writes)

    # Compare-and-set

    async def read(self, keys: Sequence[Key], until: float) -> Sequence[VersionedRecord | TableError]:
        """Read records with strong consistency."""
        items = await self.fetch(keys, until)
        records, yielder = [], Yielder()
        for item in items:
            records.append(await self._versioned(item))
            await yielder.maybe_yield()
        return records

    async def replace(self, replacements: Sequence[Replacement], until: float) -> list[Outcome | bool]:
        """Replace records that have not changed since they were read."""
        return await each_write(replacements, self._replace, until)

    async def _versioned(self, item: Item | TableError | None) -> VersionedRecord | TableError:
        if isinstance(item, TableError):
            return item
        stored: Stored | RecordUnreadable | None = None
        if item is not None:
            try:
                stored = await converted(text_bytes(item), partial(self.layout.stored, item, self._clock()))
            except RecordUnreadable as error:
                stored = error
        return VersionedRecord(stored, ReadItem(item, stored))

    async def _replace(self, replacement: Replacement, until: float) -> Outcome | bool:
        try:
            stored = replacement.changed.stored
            value = b"" if stored is None else stored.value or b""
            verb, parameters, etag = await converted(len(value), partial(self._request, replacement))
            await self.write(verb, parameters, until)
        except ConditionFailed:
            return False
        except TableError as error:
            return error
        return with_etag(replacement.changed, etag).outcome

    def _request(self, replacement: Replacement) -> tuple[str, dict[str, Any], str]:
        """Return the call that replaces a record, and the record's new etag."""
        stored, current = replacement.changed.stored, replacement.version.item
        placeholders = Placeholders()
        conditions = unchanged_conditions(placeholders, self.layout, current)
        if stored is None:
            key = {"Key": self.layout.key_item(replacement.write.key)}
            return "delete_item", key | (placeholders.parameters([], [], conditions) or {}), ""
        updates = _changes_existing(replacement)
        if updates and (changed := self._changes(replacement, stored, placeholders, conditions)) is not None:
            return changed
        placeholders = Placeholders()
        present = self.layout.members(current) if updates else None
        item, etag = self.layout.build_item(replacement.write.key, stored, stored.etag, present)
        parameters = placeholders.parameters([], [], unchanged_conditions(placeholders, self.layout, current)) or {}
        return "put_item", {"Item": item, **parameters}, etag

    def _changes(
        self, replacement: Replacement, stored: Stored, placeholders: Placeholders, conditions: list[str]
    ) -> tuple[str, dict[str, Any], str] | None:
        """Return the call that writes only changed members, or None if it exceeds a limit for expressions."""
        found: ReadItem = replacement.version
        assert isinstance(found.stored, Stored)
        assert found.item is not None
        assert found.stored.value is not None
        assert stored.value is not None
        item, before = found.item, decode(found.stored.value)
        after = decode(stored.value)
        self.layout.check_members(after)
        changed = [name for name, member in after.items() if name not in before or not equal_json(before[name], member)]
        removed = [name for name in before if name not in after]
        if len(changed) + len(removed) > NAMES_MAX:
            return None
        wanted: Item = {name: to_attribute_like(after[name], item.get(name)) for name in changed}
        wanted[VERSION] = {"S": stored.etag}
        metadata = self.layout.metadata(stored)
        if stored.writers != found.stored.writers:
            wanted[WRITERS] = metadata[WRITERS]
        if isinstance(replacement.write, Update) and replacement.write.ttl_s is not None:
            for name in (self.layout.ttl_attribute, EXPIRES_MS):
                if name in metadata:
                    wanted[name] = metadata[name]
                else:
                    removed.append(name)
        sets = [f"{placeholders.name(name)} = {placeholders.value(attribute)}" for name, attribute in wanted.items()]
        added = after.keys() - before
        # Another tool may have added a member that this update adds.
        conditions += [f"attribute_not_exists({placeholders.name(name)})" for name in wanted if name in added]
        parameters = placeholders.parameters(sets, [placeholders.name(name) for name in removed], conditions)
        if parameters is None:
            return None
        key = {"Key": self.layout.key_item(replacement.write.key)}
        return "update_item", key | parameters, etag_of(stored.etag, encode_sorted(after))


def _changes_existing(replacement: Replacement) -> bool:
    """Return whether a write changes members of an existing record instead of replacing the record."""
    if not isinstance(replacement.write, Update) or not isinstance(replacement.version.stored, Stored):
        return False
    return not getattr(replacement.changed.outcome, "created", False)
