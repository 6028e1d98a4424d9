"""The coalescing policy: combines small calls of the store and divides large ones.

A small call shares a call of the store with others (`shared_call`). A large call is sent directly, in parts. So is a
small one if waiting for others is probably useless.
"""

import asyncio
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from ...core import (
    NO_DEADLINE,
    Batch,
    Budget,
    Delete,
    Get,
    Operation,
    Outcome,
    Put,
    Store,
    Update,
    chunks_of,
    gather_bounded,
    joined_outcomes,
)
from ...core.changes import PackedChanges
from ...core.directions import at_positions, direction
from ...core.operations import size_bytes
from ...core.store import Policy
from ...telemetry import Traces
from ..metrics import CoalesceMetrics, PolicyMetrics
from .key_order import DirectCall, KeyOrder
from .shared_calls import SharedCalls, call_store
from .slots import Slot

UNLIMITED = sys.maxsize

DIRECT_SHARE = 4
"""A call with at least this fraction of `operations_max` (a quarter), and two operations, is sent without waiting."""

CONCURRENT_PARTS_MAX = 8
"""Limit on the parts of one call that are in flight at the same time."""

_KINDS: tuple[type[Operation], ...] = (Get, Put, Update, Delete)


class Coalesce(Policy):
    """A store that combines small calls and divides large ones.

    Each call of the store has operations of one kind, at most `operations_max` operations and `bytes_max` bytes of
    values and updates. A single operation with more bytes is sent alone.

    `linger_s` is the time that an operation waits for others: with 0 it waits for one iteration of the event loop.
    Operations on one key then run in the order of their arrival. With None, only single operations of the kinds in
    `singles` share calls, at most so many of a kind in one call. They wait for one iteration of the event loop, but no
    operation waits for another on its key: it sees the writes acknowledged before it, because its call is sent after
    it has arrived.
    """

    def __init__(
        self,
        inner: Store,
        *,
        operations_max: int = UNLIMITED,
        bytes_max: int = UNLIMITED,
        linger_s: float | None = 0.0,
        singles: Mapping[type[Operation], int] = MappingProxyType({}),
        metrics: PolicyMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        self._operations_max, self._bytes_max = operations_max, bytes_max
        self._metrics = CoalesceMetrics(metrics or PolicyMetrics(), inner.spec.name)
        self._order = None if linger_s is None else KeyOrder()
        self._drained: asyncio.Future[None] | None = None
        self._writing: set[asyncio.Task[Sequence[Outcome]]] = set()
        shared = singles if linger_s is None else dict.fromkeys(_KINDS, operations_max)
        self._calls = {
            kind: SharedCalls(
                inner,
                count_max,
                bytes_max,
                linger_s or 0.0,
                self._metrics,
                traces,
                self._order,
                self._finished,
            )
            for kind, count_max in shared.items()
        }
        self._direct_min = max(2, math.ceil(operations_max / DIRECT_SHARE))

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Do the operations, in calls of the store that may also have other callers' operations."""
        if self._order is not None:
            return await self._apply_in_order(self._order, operations, budget)
        if len(operations) != 1 or (calls := self._calls.get(type(operations[0]))) is None or _is_long(operations[0]):
            return await self._in_parts(operations, budget)
        if not calls.idle:
            return await calls.outcomes(calls.join(operations, budget.until))
        calls.direct += 1
        try:
            return await self._in_parts(operations, budget)
        finally:
            calls.direct -= 1

    async def close(self) -> None:
        """Send waiting operations, and return when no operation is in flight. Later operations do not linger.

        Operations that arrive later are executed too. A second call does nothing.
        """
        for calls in self._calls.values():
            calls.flush()
        while tasks := [task for calls in self._calls.values() for task in calls.in_flight.values()]:
            await asyncio.wait(tasks)
        while self._order:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)
        for calls in self._calls.values():
            calls.stop()
        await super().close()

    async def _in_parts(self, operations: Sequence[Operation], budget: Budget) -> Sequence[Outcome]:
        """Divide a call if it is too large, without sharing it."""
        if self._operations_max == UNLIMITED:
            return await self._inner.apply(operations, budget)
        cut = self._cut(operations)
        for part in cut:
            self._metrics.direct(len(part))
        if len(cut) < 2:  # the exceptions of the store pass unchanged then
            return await self._inner.apply(operations, budget)
        answers = await gather_bounded([call_store(self._inner, part, budget) for part in cut], CONCURRENT_PARTS_MAX)
        return joined_outcomes(answers)

    async def _apply_in_order(
        self, order: KeyOrder, operations: Sequence[Operation], budget: Budget
    ) -> Sequence[Outcome]:
        """Share a small call, unless waiting is useless. Send others directly, but no operation before earlier ones."""
        calls = self._calls[_kind(operations)]
        if len(operations) < self._direct_min and not (calls.idle and not order):
            return await calls.outcomes(calls.join(operations, budget.until))
        blocked = order.blocked_positions(operations, writes=direction(operations) == "write")
        if not blocked:
            return await self._send_direct(order, operations, budget)
        free = sorted(set(range(len(operations))).difference(blocked))
        callers = calls.join(at_positions(operations, blocked), budget.until)
        try:
            rest = at_positions(operations, free)
            answers = await self._send_direct(order, rest, budget) if free else []
        except BaseException:
            calls.forget(callers)
            raise
        found = dict(zip(free, answers, strict=True))
        found.update(zip(blocked, await calls.outcomes(callers), strict=True))
        return [found[position] for position in range(len(operations))]

    async def _send_direct(self, order: KeyOrder, operations: Sequence[Operation], budget: Budget) -> Sequence[Outcome]:
        """Send operations that do not have to wait for others, in concurrent parts."""
        directs = [DirectCall(part, writes=direction(part) == "write") for part in self._cut(operations)]
        for direct in directs:
            order.begin(direct)
        if len(directs) == 1:
            return await self._send_part(order, directs[0], budget)
        parts = [self._send_part(order, direct, budget) for direct in directs]
        try:
            return joined_outcomes(await gather_bounded(parts, CONCURRENT_PARTS_MAX))
        finally:
            for direct in directs:
                if not direct.sent:
                    self._release(order.end(direct))

    async def _send_part(self, order: KeyOrder, direct: DirectCall, budget: Budget) -> Sequence[Outcome]:
        """Send a part. Once a part with writes is sent, cancellation of the caller does not cancel it."""
        direct.sent = True
        if not direct.writes:
            return await self._send(order, direct, budget)
        task = asyncio.get_running_loop().create_task(self._send(order, direct, budget))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return await asyncio.shield(task)

    async def _send(self, order: KeyOrder, direct: DirectCall, budget: Budget) -> Sequence[Outcome]:
        self._metrics.direct(len(direct.operations))
        try:
            return await call_store(self._inner, direct.operations, budget)
        finally:
            self._release(order.end(direct))

    def _finished(self, slots: Iterable[Slot]) -> None:
        """Enqueue the operations that waited for the operations of a finished call."""
        if self._order is not None:
            self._release(self._order.finish(slots))

    def _release(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self._calls[type(slot.operation)].enqueue(slot)
        if self._drained is not None and not self._order:
            self._drained.set_result(None)
            self._drained = None

    def _cut(self, operations: Sequence[Operation]) -> list[Sequence[Operation]]:
        bytes_max = None if direction(operations) == "read" else self._bytes_max
        return list(chunks_of(operations, self._operations_max, bytes_max, size_bytes))


def _kind(operations: Sequence[Operation]) -> type[Operation]:
    return operations.kind if isinstance(operations, Batch) else type(operations[0])


def _is_long(operation: Operation) -> bool:
    """Return whether an update is too long to share a call."""
    return isinstance(operation, Update) and isinstance(operation.changes, PackedChanges)
