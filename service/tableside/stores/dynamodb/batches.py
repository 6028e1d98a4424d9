"""BatchGetItem and BatchWriteItem: splits batches by their limits, and retries unprocessed items.

DynamoDB lists the items that it did not process because of its limits. They are retried with increasing pauses
until the deadline, and then reported as Throttled, never as absent or written.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ...core import (
    NOT_READ,
    READ_BYTES_MAX,
    DeadlineExceeded,
    InvalidOperation,
    TableError,
    Throttled,
    chunks_of,
    exponential_backoff_s,
    gather_bounded,
)
from .attribute_values import Item
from .client import Client

GET_KEYS_MAX = 100
WRITE_ITEMS_MAX = 25
WRITE_BYTES_MAX = 900_000
"""DynamoDB accepts 16 MB in a call, but sending more than a megabyte would block the event loop."""

CALLS_CONCURRENCY = 16
"""How many calls of one batch run concurrently."""

PAUSE_S = 0.02
PAUSE_MAX_S = 2.0
ROUNDS_MAX = 1000
"""How often unprocessed items are retried. A deadline usually comes first."""


class BatchCalls:
    """Reads and writes many items of one table."""

    def __init__(
        self, client: Client, table: str, key_names: Sequence[str], *, jitter: Callable[[], float] = random.random
    ) -> None:
        self._client = client
        self._table = table
        self._key_names = key_names
        self._jitter = jitter

    async def get(
        self, keys: Sequence[Item], until: float, *, consistent: bool, only: Sequence[str] = ()
    ) -> list[Item | TableError | None]:
        """Return the items of distinct keys, in their order. `only` restricts the attributes of the items."""
        options: dict[str, Any] = {"ConsistentRead": consistent}
        if only:
            names = dict.fromkeys([*self._key_names, *only])
            options["ExpressionAttributeNames"] = {f"#{at}": name for at, name in enumerate(names)}
            options["ProjectionExpression"] = ", ".join(options["ExpressionAttributeNames"])
        budget = _ReadBudget()
        calls = [self._get(chunk, options, until, budget) for chunk in chunks_of(keys, GET_KEYS_MAX)]
        return [item for items in await gather_bounded(calls, CALLS_CONCURRENCY) for item in items]

    async def write(self, requests: Sequence[Item], until: float) -> list[TableError | None]:
        """Send PutRequests and DeleteRequests with distinct keys. Return None or an error for each."""
        calls = [
            self._write(chunk, until) for chunk in chunks_of(requests, WRITE_ITEMS_MAX, WRITE_BYTES_MAX, _request_bytes)
        ]
        return [error for errors in await gather_bounded(calls, CALLS_CONCURRENCY) for error in errors]

    async def _get(
        self, keys: Sequence[Item], options: Mapping[str, Any], until: float, budget: "_ReadBudget"
    ) -> list[Item | TableError | None]:
        order = [self._identity(key) for key in keys]
        waiting = dict(zip(order, keys, strict=True))
        found: dict[object, Item] = {}
        failed: TableError | None = None
        backoff = _Backoff(until, self._jitter)
        while waiting and failed is None:
            if budget.spent_bytes > READ_BYTES_MAX:
                failed = NOT_READ
                continue
            request = {"RequestItems": {self._table: {**options, "Keys": list(waiting.values())}}}
            try:
                response = await self._client.call("batch_get_item", request, until)
            except Throttled as error:
                if not await backoff.wait(progress=False):
                    failed = error
                continue
            except DeadlineExceeded as error:
                failed = _unprocessed("batch_get_item") if backoff.count else error
                continue
            except TableError as error:
                failed = error
                continue
            budget.spend(response)
            items = response.get("Responses", {}).get(self._table, [])
            found.update((self._identity(item), item) for item in items)
            unprocessed = response.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])
            waiting = {identity: waiting[identity] for identity in map(self._identity, unprocessed)}
            if waiting and not await backoff.wait(progress=bool(items)):
                failed = _unprocessed("batch_get_item")
        return [failed if failed is not None and identity in waiting else found.get(identity) for identity in order]

    async def _write(self, requests: Sequence[Item], until: float) -> list[TableError | None]:
        order = [self._request_identity(request) for request in requests]
        waiting = dict(zip(order, requests, strict=True))
        failed: TableError | None = None
        backoff = _Backoff(until, self._jitter)
        while waiting and failed is None:
            request = {"RequestItems": {self._table: list(waiting.values())}}
            try:
                response = await self._client.call("batch_write_item", request, until, writes=True)
            except Throttled as error:
                if not await backoff.wait(progress=False):
                    failed = error
                continue
            except InvalidOperation as error:
                if len(waiting) > 1:
                    return await self._one_by_one(requests, waiting, order, until)
                failed = error
                continue
            except TableError as error:
                failed = error
                continue
            unprocessed = response.get("UnprocessedItems", {}).get(self._table, [])
            before, waiting = len(waiting), {name: waiting[name] for name in map(self._request_identity, unprocessed)}
            if waiting and not await backoff.wait(progress=len(waiting) < before):
                failed = _unprocessed("batch_write_item")
        return [failed if identity in waiting else None for identity in order]

    async def _one_by_one(
        self, requests: Sequence[Item], waiting: Mapping[object, Item], order: Sequence[object], until: float
    ) -> list[TableError | None]:
        """Send each request in a separate call, because one invalid request makes DynamoDB reject the whole call."""
        calls = [self._write([request], until) for request in waiting.values()]
        errors = {
            identity: error
            for identity, [error] in zip(waiting, await gather_bounded(calls, CALLS_CONCURRENCY), strict=True)
        }
        return [errors.get(identity) for identity in order]

    def _identity(self, item: Mapping[str, Any]) -> object:
        """Return a hashable form of an item's key. DynamoDB may return a number in another notation."""
        return tuple([_key_part(item[name]) for name in self._key_names])

    def _request_identity(self, request: Mapping[str, Any]) -> object:
        return self._identity(
            request["PutRequest"]["Item"] if "PutRequest" in request else request["DeleteRequest"]["Key"]
        )


class _ReadBudget:
    """Counts the bytes that the calls for one batch have read. Calls that are already running may exceed the limit."""

    def __init__(self) -> None:
        self.spent_bytes = 0

    def spend(self, response: Mapping[str, Any]) -> None:
        """Count a response."""
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        self.spent_bytes += int(headers.get("content-length", 0))


class _Backoff:
    """Waits longer while no item is processed, but never beyond the deadline."""

    def __init__(self, until: float, jitter: Callable[[], float]) -> None:
        self._until = until
        self._jitter = jitter
        self.count = 0
        self._stalled = 0

    async def wait(self, *, progress: bool) -> bool:
        """Wait. Return False if there is no time for another call."""
        self.count += 1
        self._stalled = 0 if progress else self._stalled + 1
        pause_s = exponential_backoff_s(self._stalled, PAUSE_S, PAUSE_MAX_S, self._jitter)
        left_s = self._until - time.monotonic()
        if pause_s >= left_s or self.count >= ROUNDS_MAX:
            return False
        await asyncio.sleep(pause_s)
        return True


def _key_part(attribute: Mapping[str, str]) -> object:
    return attribute["S"] if "S" in attribute else int(attribute["N"])


def _request_bytes(request: Item) -> int:
    return len(msgspec.json.encode(request))


def _unprocessed(verb: str) -> Throttled:
    return Throttled(f"DynamoDB: {verb}: items remained unprocessed until the deadline")
