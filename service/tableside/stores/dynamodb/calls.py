"""Calls of DynamoDB for one table. Batches are split by DynamoDB's limits, and unprocessed items are requested again.

DynamoDB lists the items that it did not process because of its limits. They are retried with increasing pauses
until the deadline, and then reported as Throttled, never as absent or written.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from ...core import (
    NOT_READ,
    READ_BYTES_MAX,
    DeadlineExceeded,
    InvalidOperation,
    Key,
    Outcome,
    ReadBudget,
    TableError,
    Throttled,
    TooLarge,
    Yielder,
    chunks_of,
    exponential_backoff_s,
    gather_bounded,
)
from .client import Client
from .errors import ConditionFailed
from .items import Item, ItemLayout, converted

GET_KEYS_MAX = 100
WRITE_ITEMS_MAX = 25
WRITE_BYTES_MAX = 900_000
"""DynamoDB accepts 16 MB in a call, but sending more than a megabyte would block the event loop."""

CALLS_CONCURRENCY = 16
WRITES_CONCURRENCY = 32
"""How many batch calls, and how many single writes, of one batch run concurrently."""

PAUSE_S = 0.02
PAUSE_MAX_S = 2.0
ATTEMPTS_MAX = 1000
"""How often unprocessed items are sent. A deadline usually comes first."""

AnyWrite = TypeVar("AnyWrite")

Request: TypeAlias = tuple[str, dict[str, Any], Outcome]
"""The verb and the parameters of a call that writes an item, and the outcome of the write if the call succeeds."""

Attempt: TypeAlias = Outcome | Literal[False]
"""The outcome of a write, or False if it is not applied because its condition is false."""


class TableCalls:
    """Reads and writes the items of one table."""

    def __init__(self, client: Client, table: str, layout: ItemLayout) -> None:
        self._client = client
        self._table = table
        self._layout = layout

    async def call(self, verb: str, parameters: dict[str, Any], until: float, *, writes: bool = False) -> Item:
        """Return DynamoDB's response for the table. Raise ConditionFailed or a TableError."""
        return await self._client.call(verb, {"TableName": self._table, **parameters}, until, writes=writes)

    async def get(
        self, keys: Sequence[Key], until: float, *, consistent: bool = True, only: str | None = None
    ) -> list[Item | TableError | None]:
        """Return the items of distinct keys, in their order. `only` is the one attribute needed besides the key."""
        key_items = [self._layout.key_item(key) for key in keys]
        options: dict[str, Any] = {"ConsistentRead": consistent}
        if len(key_items) == 1 and only is None:
            try:
                return [(await self.call("get_item", {"Key": key_items[0], **options}, until)).get("Item")]
            except TableError as error:
                return [error]
        if only is not None:
            names = {f"#{at}": name for at, name in enumerate([*(key.name for key in self._layout.keys), only])}
            options |= {"ExpressionAttributeNames": names, "ProjectionExpression": ", ".join(names)}
        budget, chunks = ReadBudget(READ_BYTES_MAX), chunks_of(key_items, GET_KEYS_MAX)
        calls = [self._get_chunk(chunk, options, budget, until) for chunk in chunks]
        return [item for items in await gather_bounded(calls, CALLS_CONCURRENCY) for item in items]

    async def write_many(self, requests: Sequence[Item], until: float) -> list[TableError | None]:
        """Send PutRequests and DeleteRequests with distinct keys. Return None or an error for each."""
        limits = WRITE_ITEMS_MAX, WRITE_BYTES_MAX
        chunks = chunks_of(requests, *limits, lambda request: len(msgspec.json.encode(request)))
        calls = [self._write_chunk(chunk, until) for chunk in chunks]
        return [error for errors in await gather_bounded(calls, CALLS_CONCURRENCY) for error in errors]

    async def write_each(
        self,
        writes: Sequence[AnyWrite],
        request: Callable[[AnyWrite], Request],
        size_bytes: Callable[[AnyWrite], int],
        until: float,
    ) -> list[Attempt]:
        """Send a call for each write, some concurrently, until the deadline. Return the outcomes in order.

        `request` is called in a thread for writes of large values.
        """
        yielder = Yielder()

        async def attempt(write: AnyWrite) -> Attempt:
            await yielder.maybe_yield()
            if time.monotonic() >= until:
                return DeadlineExceeded("the deadline passed before the write was sent")
            try:
                verb, parameters, outcome = await converted(size_bytes(write), partial(request, write))
                await self.call(verb, parameters, until, writes=True)
            except ConditionFailed:
                return False
            except TableError as error:
                return error
            return outcome

        return await gather_bounded([attempt(write) for write in writes], WRITES_CONCURRENCY)

    async def _get_chunk(
        self, keys: Sequence[Item], options: Mapping[str, Any], budget: ReadBudget, until: float
    ) -> list[Item | TableError | None]:
        found: dict[object, Item] = {}

        async def send(waiting: list[Item]) -> list[Item]:
            request = {"RequestItems": {self._table: {**options, "Keys": waiting}}}
            response = await self._client.call("batch_get_item", request, until)
            headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
            budget.spend(int(headers.get("content-length", 0)))
            items = response.get("Responses", {}).get(self._table, [])
            found.update((self._identity(item), item) for item in items)
            unprocessed: list[Item] = response.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])
            return unprocessed

        errors = await self._send_until_processed(send, keys, until, budget)
        return [error or found.get(identity) for identity, error in errors.items()]

    async def _write_chunk(self, requests: Sequence[Item], until: float) -> list[TableError | None]:
        async def send(waiting: list[Item]) -> list[Item]:
            request = {"RequestItems": {self._table: waiting}}
            response = await self._client.call("batch_write_item", request, until, writes=True)
            unprocessed: list[Item] = response.get("UnprocessedItems", {}).get(self._table, [])
            return unprocessed

        errors = [*(await self._send_until_processed(send, requests, until, ReadBudget(math.inf))).values()]
        rejected = [at for at, error in enumerate(errors) if isinstance(error, InvalidOperation | TooLarge)]
        if len(rejected) > 1:  # One invalid request makes DynamoDB reject the whole call.
            alone = [self._write_chunk([requests[at]], until) for at in rejected]
            for at, [error] in zip(rejected, await gather_bounded(alone, CALLS_CONCURRENCY), strict=True):
                errors[at] = error
        return errors

    async def _send_until_processed(
        self,
        send: Callable[[list[Item]], Awaitable[list[Item]]],
        items: Sequence[Item],
        until: float,
        budget: ReadBudget,
    ) -> dict[object, TableError | None]:
        """Send items until none is returned as unprocessed. Return None or an error for each, by their identities."""
        waiting = {self._identity(item): item for item in items}
        errors: dict[object, TableError | None] = dict.fromkeys(waiting)
        stalled = 0
        for attempt in range(ATTEMPTS_MAX):
            before = len(waiting)
            failed: TableError = Throttled("DynamoDB: items remained unprocessed until the deadline")
            if budget.exceeded:
                failed = NOT_READ
                break
            try:
                unprocessed = set(map(self._identity, await send([*waiting.values()])))
                for identity in waiting.keys() - unprocessed:
                    del waiting[identity]
            except Throttled as error:
                failed = error.with_traceback(None)  # Its frames have the items, and refer to this error.
            except TableError as error:
                if attempt == 0 or not isinstance(error, DeadlineExceeded) or error.applied == "unknown":
                    failed = error.with_traceback(None)
                break
            stalled = 0 if len(waiting) < before else stalled + 1
            pause_s = exponential_backoff_s(stalled, PAUSE_S, PAUSE_MAX_S, random.random)
            if not waiting or pause_s >= until - time.monotonic():
                break
            await asyncio.sleep(pause_s)
        return errors | dict.fromkeys(waiting, failed)

    def _identity(self, item: Mapping[str, Any]) -> object:
        """Return a hashable form of the key of an item or request. DynamoDB may change the notation of a number."""
        if "PutRequest" in item:
            item = item["PutRequest"]["Item"]
        elif "DeleteRequest" in item:
            item = item["DeleteRequest"]["Key"]
        parts = [item[key.name] for key in self._layout.keys]
        return tuple([part["S"] if "S" in part else int(part["N"]) for part in parts])
