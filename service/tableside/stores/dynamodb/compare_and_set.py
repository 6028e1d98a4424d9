"""Records read, and replaced if they are still what was read: DynamoDB's part in compare and set.

An update touches only the members that change, and only while they and the others are as they were read. So what
another tool wrote beside them stays as it is, in type too. Knows nothing of why a record changes.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from ...core import (
    Clock,
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
from .attribute_values import Item, alike, same
from .batches import Batches
from .client import Client, ConditionFailed
from .expressions import Terms, unchanged
from .items import EXPIRES_MS, VERSION, WRITERS, Layout, etag_of

AT_ONCE = 32
"""How many writes of one batch are under way side by side."""

LONG_BYTES = 4096
"""Above which length of its text a value takes so long to convert that many of them are not converted in a row."""


class Items:
    """Reads and writes single items of one table, and many."""

    def __init__(self, client: Client, table: str, layout: Layout, clock: Clock) -> None:
        self.batches = Batches(client, table, [key.name for key in layout.keys])
        self.layout = layout
        self._client = client
        self._table = table
        self._clock = clock
        self._making = asyncio.Lock()

    async def fetch(
        self, keys: Sequence[Key], until: float, *, consistent: bool = True
    ) -> list[Item | TableError | None]:
        """Return the items of keys, in their order."""
        asked = [self.layout.key_item(key) for key in keys]
        if len(asked) != 1:
            return await self.batches.get(asked, until, consistent=consistent)
        try:
            answer = await self.call("get_item", {"Key": asked[0], "ConsistentRead": consistent}, until)
        except TableError as error:
            return [error]
        return [answer.get("Item")]

    async def write(self, verb: str, parameters: dict[str, Any], until: float) -> Item:
        """Do one write and return what it answers. Raise ConditionFailed or a TableError."""
        return await self.call(verb, parameters, until, writes=True)

    async def call(self, verb: str, parameters: dict[str, Any], until: float, *, writes: bool = False) -> Item:
        """Ask something of the table."""
        return await self._client.call(verb, {"TableName": self._table, **parameters}, until, writes=writes)

    # The exchange

    async def read(self, keys: Sequence[Key], until: float) -> list[VersionedRecord | TableError]:
        """Read records, strongly consistent."""
        items = await self.fetch(keys, until)
        seen, yielder = [], Yielder()
        for item in items:
            seen.append(self._seen(item))
            await yielder.maybe_yield()
        return seen

    async def replace(self, steps: Sequence[Replacement], until: float) -> list[Outcome | bool]:
        """Replace records that are still as they were seen."""
        return await gather_bounded([self._replace(step, until) for step in steps], AT_ONCE)

    def _seen(self, item: Item | TableError | None) -> VersionedRecord | TableError:
        if item is None or isinstance(item, TableError):
            return VersionedRecord(None) if item is None else item
        try:
            return VersionedRecord(self.layout.stored(item, self._clock()), item)
        except RecordUnreadable as error:
            return VersionedRecord(error, item)

    async def _replace(self, step: Replacement, until: float) -> Outcome | bool:
        try:
            verb, parameters, etag = await self._in_turn(step)
            await self.write(verb, parameters, until)
        except ConditionFailed:
            return False
        except TableError as error:
            return error
        return with_etag(step.changed, etag).outcome

    async def _in_turn(self, step: Replacement) -> tuple[str, dict[str, Any], str]:
        """Make the request of a long record while no other is made, and let others than those have their turn."""
        becomes = step.changed.stored
        if becomes is None or becomes.value is None or len(becomes.value) <= LONG_BYTES:
            return self._request(step)
        async with self._making:
            await asyncio.sleep(0)
            return self._request(step)

    def _request(self, step: Replacement) -> tuple[str, dict[str, Any], str]:
        """Return the call that replaces a record, and the etag that it has then."""
        stored, seen = step.changed.stored, step.current.version
        terms = Terms()
        conditions = unchanged(terms, self.layout, seen)
        if stored is None:
            key = {"Key": self.layout.key_item(step.write.key)}
            return "delete_item", key | (terms.parameters([], [], conditions) or {}), ""
        updates = _of_what_is_there(step)
        if updates and (changed := self._changes(step, stored, terms, conditions)) is not None:
            return changed
        terms = Terms()
        present = self.layout.members(seen) if updates else None
        item, etag = self.layout.made(step.write.key, stored, stored.etag, present)
        parameters = terms.parameters([], [], unchanged(terms, self.layout, seen)) or {}
        return "put_item", {"Item": item, **parameters}, etag

    def _changes(
        self, step: Replacement, stored: Stored, terms: Terms, conditions: list[str]
    ) -> tuple[str, dict[str, Any], str] | None:
        """Return the call that changes an item only where the record changes; None if it is too long for one."""
        assert isinstance(step.current.stored, Stored)
        assert step.current.stored.value is not None
        assert stored.value is not None
        item, before, after = step.current.version, decode(step.current.stored.value), decode(stored.value)
        self.layout.check(after)
        wanted: Item = {
            name: alike(member, item.get(name))
            for name, member in after.items()
            if name not in before or not same(before[name], member)
        }
        gone = [name for name in before if name not in after]
        wanted[VERSION] = {"S": stored.etag}
        beside = self.layout.beside(stored)
        if stored.writers != step.current.stored.writers:
            wanted[WRITERS] = beside[WRITERS]
        if isinstance(step.write, Update) and step.write.ttl_s is not None:
            for name in (self.layout.ttl_attribute, EXPIRES_MS):
                if name in beside:
                    wanted[name] = beside[name]
                else:
                    gone.append(name)
        sets = [f"{terms.name(name)} = {terms.value(attribute)}" for name, attribute in wanted.items()]
        # What appears meanwhile under a name that is set here was written by another tool.
        conditions += [f"attribute_not_exists({terms.name(name)})" for name in wanted if name in after.keys() - before]
        parameters = terms.parameters(sets, [terms.name(name) for name in gone], conditions)
        if parameters is None:
            return None
        key = {"Key": self.layout.key_item(step.write.key)}
        return "update_item", key | parameters, etag_of(stored.etag, encode_sorted(after))


def _of_what_is_there(step: Replacement) -> bool:
    """Whether a record that is there becomes another one, rather than being replaced as a whole."""
    if not isinstance(step.write, Update) or not isinstance(step.current.stored, Stored):
        return False
    return not getattr(step.changed.outcome, "created", False)
