"""The store of one DynamoDB table: chooses for each operation the cheapest call with exactly its effect.

    gets                          GetItem, or BatchGetItem for many
    puts, deletes, unconditional  PutItem, DeleteItem, or BatchWriteItem for many
    deletes that forget           BatchWriteItem
    if_absent                     PutItem on condition that there is no item
    everything else               compare-and-set

A put that the record does not remember must not remove the record's memory, which is one attribute. If the table stores
memories, such a put is therefore conditional on the absence of this attribute, and a batch of puts first reads which
records have it.
"""

import contextlib
import math
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeAlias

from ...core import (
    NO_DEADLINE,
    NOT_READ,
    READ_BYTES_MAX,
    Budget,
    Capabilities,
    Changed,
    Clock,
    CompareAndSet,
    DeadlineExceeded,
    Delete,
    Estimate,
    Get,
    Operation,
    Outcome,
    Page,
    Put,
    Scan,
    StoreUnavailable,
    TableError,
    TableNotFound,
    TableSpec,
    Unsupported,
    Write,
    Written,
    Yielder,
    apply_in_groups,
    chunks_of,
    has_only,
    is_remembered,
    live_record,
    size_bytes,
    transition,
    value_bytes,
    with_etag,
)
from .calls import Attempt, Request, TableCalls
from .client import Client
from .errors import ResourceInUse
from .items import WRITERS, Item, ItemLayout, converted
from .scans import read_page, segments
from .updates import VersionedItems

SINGLE_CALLS_MAX = 4
"""Up to this many puts and deletes are sent as single concurrent calls. More use batch calls."""

PART_WRITES_MAX = 1000
PART_BYTES_MAX = 2**19
"""How many writes, and how many bytes of values and updates, are in progress at a time, because an item takes up to 60
times the memory of its JSON text. A single larger write is a part of its own."""

_Method: TypeAlias = Callable[[Sequence[Any], float], Coroutine[Any, Any, list[Outcome]]]


class DynamodbStore:
    """Stores the records of one table."""

    def __init__(self, client: Client, spec: TableSpec, layout: ItemLayout, clock: Clock, *, tokens: bool) -> None:
        self.spec = spec
        self.capabilities = Capabilities(
            tokens=tokens,
            sorted_scan=False,
            any_value=False,
            generations=spec.create or spec.generation > 1,  # a generation is opened without `create`
        )
        self._layout = layout
        self._clock = clock
        self._calls = TableCalls(client, spec.name_in_store, layout)
        self._compare = CompareAndSet(spec, VersionedItems(self._calls, layout, clock), clock=clock, etag=_new_version)

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Apply operations: each method once for all its operations, and the methods concurrently."""
        methods = list(map(self._method, operations))
        return await apply_in_groups(operations, methods, partial(_in_parts, until=budget.until))

    async def scan(self, scan: Scan) -> Page:
        """Read a page, in sort order within a partition, otherwise in DynamoDB's own order."""
        return await read_page(scan, self._calls, self.spec, self._layout, self._clock)

    async def splits(self, count_max: int) -> list[bytes]:
        """Return segments of the table."""
        return segments(count_max)

    async def drop(self) -> None:
        """Delete the table. Succeeds if another process deletes it."""
        with contextlib.suppress(TableNotFound):
            try:
                await self._calls.call("delete_table", {}, math.inf, writes=True)
            except ResourceInUse:
                if (status := (await self._describe())["TableStatus"]) != "DELETING":
                    raise StoreUnavailable(f"DynamoDB: table {self.spec.name_in_store!r} is {status}") from None

    async def estimate(self) -> Estimate:
        """Return the counts of DynamoDB, which it renews about every six hours."""
        table = await self._describe()
        return Estimate(table.get("ItemCount") or None, table.get("TableSizeBytes") or None)

    async def _describe(self) -> dict[str, Any]:
        return (await self._calls.call("describe_table", {}, math.inf))["Table"]

    def _method(self, operation: Operation) -> _Method:
        if isinstance(operation, Get):
            return self._get
        if is_remembered(operation) and not self.capabilities.tokens:
            return self._reject_remembered
        if has_only(operation, *_KNOWN.get(type(operation), ())):
            match operation:
                case Put(if_absent=True):
                    return self._create
                case Delete(forget=True):
                    return self._forget_all
                case Put() | Delete():
                    return self._replace_all
        return self._compare.apply

    # Methods

    async def _get(self, gets: Sequence[Any], until: float) -> list[Outcome]:
        consistent = self.spec.consistency == "strong"
        found = await self._calls.get([get.key for get in gets], until, consistent=consistent)
        now, yielder = self._clock(), Yielder()
        outcomes: list[Outcome] = []
        for item in found:
            await yielder.maybe_yield()
            stored = await self._layout.stored(item, now) if isinstance(item, dict) else item
            outcomes.append(stored if isinstance(stored, TableError) else live_record(stored, now))
        return outcomes

    async def _reject_remembered(self, writes: Sequence[Any], until: float) -> list[Outcome]:
        return [Unsupported("tokens and orders: the table is configured without tokens") for _ in writes]

    async def _create(self, puts: Sequence[Any], until: float) -> list[Outcome]:
        return await self._write_if_absent(self._layout.keys[0].name, puts, until)

    async def _forget_all(self, deletes: Sequence[Any], until: float) -> list[Outcome]:
        requests = [{"DeleteRequest": {"Key": self._layout.key_item(delete.key)}} for delete in deletes]
        errors = await self._calls.write_many(requests, until)
        return [Written(None) if error is None else error for error in errors]

    async def _replace_all(self, writes: Sequence[Any], until: float) -> list[Outcome]:
        if len(writes) > SINGLE_CALLS_MAX:
            return await self._finish(writes, await self._replace_many(writes, until), until)
        return await self._write_if_absent(WRITERS if self.capabilities.tokens else None, writes, until)

    async def _write_if_absent(self, attribute: str | None, writes: Sequence[Any], until: float) -> list[Outcome]:
        """Send a call for each write, on condition that the item has no such attribute."""
        condition: dict[str, Any] = {}
        if attribute is not None:
            condition["ConditionExpression"] = "attribute_not_exists(#0)"
            condition["ExpressionAttributeNames"] = {"#0": attribute}
        attempts = await self._calls.write_each(writes, partial(self._request, condition), size_bytes, until)
        return await self._finish(writes, attempts, until)

    async def _finish(self, writes: Sequence[Any], attempts: Sequence[Attempt], until: float) -> list[Outcome]:
        remaining = [write for write, attempt in zip(writes, attempts, strict=True) if attempt is False]
        outcomes = iter(await self._compare.apply(remaining, until) if remaining else [])
        return [next(outcomes) if attempt is False else attempt for attempt in attempts]

    async def _replace_many(self, writes: Sequence[Any], until: float) -> list[Attempt]:
        """Put or delete items in batch calls. With tokens, first read which records there are and remember writes."""
        found: Sequence[Item | TableError | None] = [{}] * len(writes)
        if self.capabilities.tokens:
            found = await self._calls.get([write.key for write in writes], until, only=WRITERS)
        attempts, requests, yielder = list[Attempt](), dict[int, Item](), Yielder()
        for index, (write, item) in enumerate(zip(writes, found, strict=True)):
            await yielder.maybe_yield()
            if isinstance(item, TableError):
                attempts.append(item)
            elif item is None and isinstance(write, Delete):
                attempts.append(Written(None))
            elif item and WRITERS in item:
                attempts.append(False)
            else:
                try:
                    verb, parameters, outcome = await converted(size_bytes(write), partial(self._request, {}, write))
                    requests[index] = {"PutRequest" if verb == "put_item" else "DeleteRequest": parameters}
                    attempts.append(outcome)
                except TableError as error:
                    attempts.append(error.with_traceback(None))  # Its frames have all requests.
        errors = await self._calls.write_many(list(requests.values()), until)
        for index, failed in zip(requests, errors, strict=True):
            if failed is not None:
                attempts[index] = failed
        return attempts

    def _request(self, condition: dict[str, Any], write: Write) -> Request:
        """Return a call that applies a write to an absent record. Raise a TableError if it creates no record."""
        if isinstance(write, Delete):
            return "delete_item", {"Key": self._layout.key_item(write.key), **condition}, Written(None)
        decided = transition(None, write, self.spec, now_ms=self._clock(), etag=_new_version())
        if not isinstance(decided, Changed) or decided.stored is None:
            assert isinstance(decided.outcome, TableError)
            raise decided.outcome
        item, etag = self._layout.build_item(write.key, decided.stored)
        return "put_item", {"Item": item, **condition}, with_etag(decided, etag).outcome


async def _in_parts(apply: _Method, operations: Sequence[Any], until: float) -> list[Outcome]:
    """Apply writes part by part, until the deadline or until the returned values exceed READ_BYTES_MAX."""
    if isinstance(operations[0], Get):
        return await apply(operations, until)
    outcomes, returned_bytes = list[Outcome](), 0
    for part in chunks_of(operations, PART_WRITES_MAX, PART_BYTES_MAX, size_bytes):
        if returned_bytes > READ_BYTES_MAX:
            results: list[Outcome] = [NOT_READ] * len(part)
        elif time.monotonic() >= until:
            results = [DeadlineExceeded("the deadline passed before the write was sent")] * len(part)
        else:
            results = await apply(part, until)
            returned_bytes += value_bytes(results)
        outcomes += results
    return outcomes


_KNOWN: dict[type, tuple[str, ...]] = {
    Put: ("key", "value", "if_absent", "ttl_s", "returning", "partitions"),
    Delete: ("key", "forget", "partitions"),
}
"""The members of writes that can be applied without reading the record."""


def _new_version() -> str:
    return secrets.token_hex(8)
