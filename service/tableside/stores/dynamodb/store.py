"""The records of one table in DynamoDB: each operation goes the shortest way that does exactly what it says.

    gets                          GetItem, or BatchGetItem for many
    puts, deletes, unconditional  PutItem, DeleteItem, or BatchWriteItem for many
    if_absent                     PutItem, if nothing is there
    updates that are expressions  UpdateItem; where that does not apply, the updated default is put, if nothing is there
    everything else               compare and set

A put without a token must not take away what the record remembers of its writers. So, unless the table keeps no
tokens, one is a write on condition that there is no memory, and many look for memory first.
Knows nothing of how calls are made.
"""

import math
import secrets
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import Any, Literal, TypeAlias

from ...core import (
    Capabilities,
    Changed,
    Clock,
    CompareAndSet,
    Delete,
    Get,
    Operation,
    Outcome,
    Page,
    Put,
    RecordUnreadable,
    Scan,
    TableError,
    TableSpec,
    Unsupported,
    Update,
    Write,
    Written,
    Yielder,
    gather_bounded,
    is_unconditional,
    live_record,
    touched_members,
    transition,
    with_etag,
)
from .attribute_values import Item
from .client import Client, ConditionFailed
from .compare_and_set import AT_ONCE, Items
from .expressions import Native, native
from .items import WRITERS, Layout
from .scans import Scans

SINGLY_MAX = 4
"""Up to so many puts and deletes are a call each, side by side; more go into calls of many."""


class Undone(Enum):
    """Stands in the place of an outcome: the operation was not done this way, and is to be by compare and set."""

    UNDONE = 0


UNDONE: Literal[Undone.UNDONE] = Undone.UNDONE
Tried: TypeAlias = Outcome | Undone

_Way: TypeAlias = Callable[[Sequence[Any], float], Coroutine[Any, Any, list[Outcome]]]


class DynamodbStore:
    """The records of one table."""

    def __init__(self, client: Client, spec: TableSpec, layout: Layout, clock: Clock, *, tokens: bool) -> None:
        self.spec = spec
        self.capabilities = Capabilities(tokens=tokens, sorted_scan=False, any_value=False, native_update=True)
        self._layout = layout
        self._clock = clock
        self._tokens = tokens
        self._items = Items(client, spec.name_in_store, layout, clock)
        self._scans = Scans(self._items, spec, clock)
        self._compare = CompareAndSet(spec, self._items, clock=clock, etag=_version)

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Do the operations, those that go the same way together and the ways side by side."""
        ways: dict[_Way, list[int]] = {}
        for index, operation in enumerate(operations):
            ways.setdefault(self._way(operation), []).append(index)
        works = [way([operations[index] for index in indices], until) for way, indices in ways.items()]
        outcomes: list[Outcome] = [None] * len(operations)
        for indices, answers in zip(ways.values(), await gather_bounded(works, len(works)), strict=True):
            for index, answer in zip(indices, answers, strict=True):
                outcomes[index] = answer
        return outcomes

    async def scan(self, scan: Scan) -> Page:
        """Read a page; within a partition in sort order, else in an order of DynamoDB's own."""
        return await self._scans.page(scan)

    async def splits(self, count_max: int) -> list[bytes]:
        """Return segments of the table."""
        return self._scans.splits(count_max)

    def _way(self, operation: Operation) -> _Way:
        if isinstance(operation, Get):
            return self._get
        if operation.token is not None:
            return self._compared if self._tokens else self._refused
        match operation:
            case Put(if_absent=True, if_match=None):
                return self._created
            case Update(if_match=None) if self._free(operation):
                return self._updated
            case Put() | Delete() if is_unconditional(operation):
                return self._replaced
        return self._compared

    def _free(self, update: Update) -> bool:
        """Whether an update touches no member that may have to equal the key."""
        return not self.spec.key.has_names or self.spec.key.names.isdisjoint(touched_members(update.changes))

    # The ways

    async def _get(self, gets: Sequence[Any], until: float) -> list[Outcome]:
        consistent = self.spec.consistency == "strong"
        found = await self._items.fetch([get.key for get in gets], until, consistent=consistent)
        now, yielder = self._clock(), Yielder()
        outcomes: list[Outcome] = []
        for item in found:
            outcomes.append(self._found(item, now))
            await yielder.maybe_yield()
        return outcomes

    async def _refused(self, writes: Sequence[Any], until: float) -> list[Outcome]:
        return [Unsupported("tokens: the table is configured to keep none") for _ in writes]

    async def _compared(self, writes: Sequence[Any], until: float) -> list[Outcome]:
        return await self._compare.apply(writes, until)

    async def _created(self, puts: Sequence[Any], until: float) -> list[Outcome]:
        tried = await gather_bounded([self._put_where_nothing_is(put, until) for put in puts], AT_ONCE)
        return await self._settled(puts, tried, until)

    async def _updated(self, updates: Sequence[Any], until: float) -> list[Outcome]:
        """Update by expressions, and by compare and set what cannot be: it is read in one call."""
        plans = [native(update.changes) for update in updates]
        works = [
            self._update(update, plan, until) for update, plan in zip(updates, plans, strict=True) if plan is not None
        ]
        by_expression = iter(await gather_bounded(works, AT_ONCE))
        tried = [UNDONE if plan is None else next(by_expression) for plan in plans]
        return await self._settled(updates, tried, until)

    async def _replaced(self, writes: Sequence[Any], until: float) -> list[Outcome]:
        if len(writes) <= SINGLY_MAX:
            tried = await gather_bounded([self._replace(write, until) for write in writes], AT_ONCE)
        else:
            tried = await self._replace_many(writes, until)
        return await self._settled(writes, tried, until)

    async def _settled(self, writes: Sequence[Any], tried: Sequence[Tried], until: float) -> list[Outcome]:
        """Do by compare and set what was not done otherwise."""
        left = [write for write, one in zip(writes, tried, strict=True) if one is UNDONE]
        compared = iter(await self._compare.apply(left, until) if left else [])
        return [next(compared) if isinstance(one, Undone) else one for one in tried]

    # Single writes

    async def _put_where_nothing_is(self, write: Write, until: float) -> Tried:
        """Put what a write makes of nothing."""
        try:
            item, outcome = self._made(write)
            await self._items.write("put_item", {"Item": item, **_without(self._layout.keys[0].name)}, until)
        except ConditionFailed:
            return UNDONE
        except TableError as error:
            return error
        return outcome

    async def _update(self, update: Update, plan: Native, until: float) -> Tried:
        version, now = _version(), self._clock()
        try:
            self._layout.check(touched_members(update.changes))
            expression = plan.expression(self._layout, version, self._expiry(update, now), now)
            if expression is None:
                return UNDONE
            key = {"Key": self._layout.key_item(update.key), "ReturnValues": "ALL_NEW"}
            told = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
            answer = await self._items.write("update_item", {**key, **told, **expression}, until)
            return self._changed(update, answer["Attributes"], now)
        except ConditionFailed as failure:
            if failure.item_told or update.default is None:
                return UNDONE
            return await self._put_where_nothing_is(update, until)
        except TableError as error:
            return error

    async def _replace(self, write: Write, until: float) -> Tried:
        condition = _without(WRITERS) if self._tokens else {}
        try:
            if isinstance(write, Delete):
                key = {"Key": self._layout.key_item(write.key)}
                await self._items.write("delete_item", {**key, **condition}, until)
                return Written(None)
            item, outcome = self._made(write)
            await self._items.write("put_item", {"Item": item, **condition}, until)
        except ConditionFailed:
            return UNDONE
        except TableError as error:
            return error
        return outcome

    # Many writes

    async def _replace_many(self, writes: Sequence[Any], until: float) -> list[Tried]:
        tried: list[Tried] = [None] * len(writes)
        if self._tokens:
            tried = await self._remembered(writes, until)
        requests: dict[int, Item] = {}
        yielder = Yielder()
        for index, write in enumerate(writes):
            await yielder.maybe_yield()
            if tried[index] is None:
                try:
                    requests[index], tried[index] = self._request(write)
                except TableError as error:
                    tried[index] = error
        errors = await self._items.batches.write(list(requests.values()), until)
        for index, failed in zip(requests, errors, strict=True):
            if failed is not None:
                tried[index] = failed
        return tried

    async def _remembered(self, writes: Sequence[Any], until: float) -> list[Tried]:
        """Look for what records remember: the outcome of a write is known, or to be found otherwise, or None."""
        keys = [self._layout.key_item(write.key) for write in writes]
        tried: list[Tried] = []
        for write, item in zip(
            writes, await self._items.batches.get(keys, until, consistent=True, only=[WRITERS]), strict=True
        ):
            if item is None and isinstance(write, Delete):
                tried.append(Written(None))
            elif item is None or isinstance(item, TableError):
                tried.append(item)
            else:
                tried.append(UNDONE if WRITERS in item else None)
        return tried

    def _request(self, write: Write) -> tuple[Item, Outcome]:
        if isinstance(write, Delete):
            return {"DeleteRequest": {"Key": self._layout.key_item(write.key)}}, Written(None)
        item, outcome = self._made(write)
        return {"PutRequest": {"Item": item}}, outcome

    # What is there, and what is made

    def _made(self, write: Write) -> tuple[Item, Outcome]:
        """Return the item and the outcome of a write where nothing is. Raise a TableError if it makes none."""
        version = _version()
        decided = transition(None, write, self.spec, now_ms=self._clock(), etag=version)
        if not isinstance(decided, Changed) or decided.stored is None:
            assert isinstance(decided.outcome, TableError)
            raise decided.outcome
        item, etag = self._layout.made(write.key, decided.stored, version)
        return item, with_etag(decided, etag).outcome

    def _expiry(self, update: Update, now: int) -> Item | None:
        """Return the attributes of the expiry that an update gives, as `transition` reckons it; None to keep it."""
        if update.ttl_s is None:
            return None
        decided = transition(None, Put(update.key, b"{}", ttl_s=update.ttl_s), self.spec, now_ms=now, etag="")
        assert isinstance(decided, Changed)
        assert decided.stored is not None
        return self._layout.beside(decided.stored)

    def _changed(self, update: Update, item: Item, now: int) -> Outcome:
        try:
            stored = self._layout.stored(item, now)
        except RecordUnreadable as error:
            return RecordUnreadable(f"{error.detail}; what the update says was done", applied="unknown")
        return Written(stored.etag, value=stored.value if update.returning else None, expires_ms=stored.expires_ms)

    def _found(self, item: Item | TableError | None, now: int) -> Outcome:
        if item is None or isinstance(item, TableError):
            return item
        try:
            return live_record(self._layout.stored(item, now), now)
        except RecordUnreadable as error:
            return error


def _version() -> str:
    return secrets.token_hex(8)


def _without(name: str) -> dict[str, Any]:
    """Return the condition that there is no such attribute."""
    return {"ConditionExpression": "attribute_not_exists(#0)", "ExpressionAttributeNames": {"#0": name}}
