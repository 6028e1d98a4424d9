"""Many items in one call: BatchGetItem and BatchWriteItem, cut to their limits and asked again for what they left out.

What DynamoDB did not get to, for its own limits, it names; that is asked for again, with growing pauses, until the
deadline, and is Throttled then: never absent, never written. Knows nothing of records.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ...core import (
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
"""DynamoDB takes 16 MB in a call; a body of more than a megabyte would hold up the loop while it is sent."""

AT_ONCE = 16
"""How many calls of one batch are under way side by side."""

PAUSE_S = 0.02
PAUSE_MAX_S = 2.0
ROUNDS_MAX = 1000
"""How often what was left out is asked for; with a deadline that comes first."""


class Batches:
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
        """Return the items of keys, no two the same, in their order; `only` are the names of the attributes wanted."""
        how: dict[str, Any] = {"ConsistentRead": consistent}
        if only:
            names = dict.fromkeys([*self._key_names, *only])
            how["ExpressionAttributeNames"] = {f"#{at}": name for at, name in enumerate(names)}
            how["ProjectionExpression"] = ", ".join(how["ExpressionAttributeNames"])
        works = [self._get(part, how, until) for part in chunks_of(keys, GET_KEYS_MAX)]
        return [found for answers in await gather_bounded(works, AT_ONCE) for found in answers]

    async def write(self, requests: Sequence[Item], until: float) -> list[TableError | None]:
        """Do PutRequests and DeleteRequests, no two of one key; the answer for each is None or what went wrong."""
        works = [self._write(part, until) for part in chunks_of(requests, WRITE_ITEMS_MAX, WRITE_BYTES_MAX, _bytes)]
        return [error for errors in await gather_bounded(works, AT_ONCE) for error in errors]

    async def _get(self, keys: Sequence[Item], how: Mapping[str, Any], until: float) -> list[Item | TableError | None]:
        order = [self._identity(key) for key in keys]
        waiting = dict(zip(order, keys, strict=True))
        found: dict[object, Item] = {}
        failed: TableError | None = None
        pause = _Pause(until, self._jitter)
        while waiting and failed is None:
            asked = {"RequestItems": {self._table: {**how, "Keys": list(waiting.values())}}}
            try:
                answer = await self._client.call("batch_get_item", asked, until)
            except Throttled as error:
                if not await pause.passed(progress=False):
                    failed = error
                continue
            except DeadlineExceeded as error:
                failed = _left_out("batch_get_item") if pause.taken else error
                continue
            except TableError as error:
                failed = error
                continue
            items = answer.get("Responses", {}).get(self._table, [])
            found.update((self._identity(item), item) for item in items)
            left = answer.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])
            waiting = {identity: waiting[identity] for identity in map(self._identity, left)}
            if waiting and not await pause.passed(progress=bool(items)):
                failed = _left_out("batch_get_item")
        return [failed if failed is not None and identity in waiting else found.get(identity) for identity in order]

    async def _write(self, requests: Sequence[Item], until: float) -> list[TableError | None]:
        order = [self._identity_of(request) for request in requests]
        waiting = dict(zip(order, requests, strict=True))
        failed: TableError | None = None
        pause = _Pause(until, self._jitter)
        while waiting and failed is None:
            asked = {"RequestItems": {self._table: list(waiting.values())}}
            try:
                answer = await self._client.call("batch_write_item", asked, until, writes=True)
            except Throttled as error:
                if not await pause.passed(progress=False):
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
            left = answer.get("UnprocessedItems", {}).get(self._table, [])
            before, waiting = len(waiting), {name: waiting[name] for name in map(self._identity_of, left)}
            if waiting and not await pause.passed(progress=len(waiting) < before):
                failed = _left_out("batch_write_item")
        return [failed if identity in waiting else None for identity in order]

    async def _one_by_one(
        self, requests: Sequence[Item], waiting: Mapping[object, Item], order: Sequence[object], until: float
    ) -> list[TableError | None]:
        """Find the ones that DynamoDB refuses: for one, it does none of a call."""
        works = [self._write([request], until) for request in waiting.values()]
        errors = {
            identity: error for identity, [error] in zip(waiting, await gather_bounded(works, AT_ONCE), strict=True)
        }
        return [errors.get(identity) for identity in order]

    def _identity(self, item: Mapping[str, Any]) -> object:
        """Return what tells an item's key from others: DynamoDB may write a number otherwise than it was asked."""
        return tuple([_part(item[name]) for name in self._key_names])

    def _identity_of(self, request: Mapping[str, Any]) -> object:
        return self._identity(
            request["PutRequest"]["Item"] if "PutRequest" in request else request["DeleteRequest"]["Key"]
        )


class _Pause:
    """Waits longer and longer while nothing moves, never beyond the deadline."""

    def __init__(self, until: float, jitter: Callable[[], float]) -> None:
        self._until = until
        self._jitter = jitter
        self.taken = 0
        self._still = 0

    async def passed(self, *, progress: bool) -> bool:
        """Wait; False says that there is no time for another call."""
        self.taken += 1
        self._still = 0 if progress else self._still + 1
        pause_s = exponential_backoff_s(self._still, PAUSE_S, PAUSE_MAX_S, self._jitter)
        left_s = self._until - asyncio.get_running_loop().time()
        if pause_s >= left_s or self.taken >= ROUNDS_MAX:
            return False
        await asyncio.sleep(pause_s)
        return True


def _part(attribute: Mapping[str, str]) -> object:
    return attribute["S"] if "S" in attribute else int(attribute["N"])


def _bytes(request: Item) -> int:
    return len(msgspec.json.encode(request))


def _left_out(verb: str) -> Throttled:
    return Throttled(f"DynamoDB: {verb}: its limits left something out each time until the deadline")
