"""Shared calls of the store: collects operations of several callers, sends them together and returns the outcomes.

No call starts after its deadline. An exception of the store fails only the operations in that call.
"""

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Sequence

import msgspec

from ...core import Applied, DeadlineExceeded, Get, Internal, Operation, Outcome, Store
from ...core.deadlines import TIMER_RESOLUTION_S, Deadlines
from ...core.directions import applied_if_unanswered, count_reads
from ...core.operations import size_bytes
from ...telemetry import Traces
from .key_order import KeyOrder
from .metrics import TableCoalesceMetrics
from .waiters import SharedCall, Slot, Waiter, spans

log = logging.getLogger(__name__)


async def call_store(store: Store, operations: Sequence[Operation], until: float) -> Sequence[Outcome]:
    """Call the store. If it raises, log the exception and return Internal for the operations of this call."""
    if until <= time.monotonic():
        return [deadline_exceeded(store, "no")] * len(operations)
    try:
        outcomes = await store.apply(operations, until)
        if len(outcomes) != len(operations):
            raise AssertionError(f"{len(operations)} operations had {len(outcomes)} outcomes")
    except Exception:
        log.exception("table %s: a call of the store failed", store.spec.name)
        detail = f"table {store.spec.name!r}: the call of the store failed"
        return [Internal(detail, applied=applied_if_unanswered(operation)) for operation in operations]
    return outcomes


def deadline_exceeded(store: Store, applied: Applied) -> DeadlineExceeded:
    """Return the outcome of an operation whose deadline has passed."""
    return DeadlineExceeded(f"table {store.spec.name!r}: the deadline was over", applied=applied)


def has_writes(operations: Sequence[Operation]) -> bool:
    """Return whether any of the operations is a write."""
    return count_reads(operations) != len(operations)


NEXT_ITERATION = -math.inf
"""As `dispatch_at`: send the call in the next iteration of the event loop."""


class CallLimits(msgspec.Struct, frozen=True):
    """Limits of one call of the store: the number of operations, and the bytes of their values and updates."""

    operations_max: int
    bytes_max: int


class SharedCalls:
    """The call that still accepts operations, and the calls that have been sent."""

    def __init__(
        self,
        store: Store,
        order: KeyOrder,
        metrics: TableCoalesceMetrics | None,
        limits: CallLimits,
        linger_s: float,
        traces: Traces | None,
    ) -> None:
        self._store = store
        self._order = order
        self._metrics = metrics
        self._limits = limits
        self._linger_s = linger_s
        self._traces = traces
        self._forming: SharedCall | None = None
        self._in_flight: dict[SharedCall, asyncio.Task[None]] = {}
        self._deadlines = Deadlines(self._expire)
        self._drained: asyncio.Future[None] | None = None
        self._last_was_unshared = False

    @property
    def idle(self) -> bool:
        """Return whether waiting for others is probably useless.

        Nothing else is waiting or in flight, and the last call that waited was not shared.
        """
        return self._last_was_unshared and not self._order

    def accept(self, operations: Sequence[Operation], until: float) -> Waiter:
        """Give each operation a slot in the forming call, or queue it behind earlier operations on its key."""
        loop = asyncio.get_running_loop()
        waiter = Waiter(len(operations), until, loop.create_future())
        if self._traces is not None:
            waiter.span = self._traces.start_span("coalesce wait")
        dispatch_at = self._dispatch_at(time.monotonic(), until) if self._linger_s else NEXT_ITERATION
        for position, operation in enumerate(operations):
            self._add(operation, dispatch_at, waiter, position)
        if self._forming is not None and dispatch_at < self._forming.dispatch_at:
            self._schedule(self._forming, dispatch_at)
        self._deadlines.add(waiter)
        return waiter

    async def outcomes(self, waiter: Waiter) -> list[Outcome]:
        """Wait for the outcomes. If the wait is cancelled, operations that were not sent yet are never sent."""
        try:
            return await waiter.future
        finally:
            self.forget(waiter)

    def forget(self, waiter: Waiter) -> None:
        """Remove a waiter, whether or not it has its outcomes."""
        waiter.future.cancel()
        self._deadlines.remove(waiter)
        for slot in waiter.pending.values():
            self._abandon(slot)
        waiter.pending.clear()
        if waiter.span is not None:
            waiter.span.end()

    def release(self, slots: Iterable[Slot]) -> None:
        """Enqueue operations whose predecessors on their keys have finished."""
        for slot in slots:
            self._enqueue(slot)
        if self._drained is not None and not self._order:
            self._drained.set_result(None)
            self._drained = None

    async def drain(self) -> None:
        """Send the forming call immediately and return when no operation is left. Later operations do not linger."""
        self._linger_s = 0.0
        if self._forming is not None:
            self._dispatch(self._forming)
        while self._order:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)
        self._deadlines.stop()

    def _dispatch_at(self, now: float, until: float) -> float:
        """Return when to send an operation: without lingering if its deadline would come first."""
        dispatch_at = now + self._linger_s
        return dispatch_at if dispatch_at + TIMER_RESOLUTION_S < until else NEXT_ITERATION

    def _add(self, operation: Operation, dispatch_at: float, waiter: Waiter, position: int) -> None:
        if type(operation) is Get and (slot := self._order.joinable(operation.key)) is not None:
            slot.add(waiter, position)
            return
        slot = Slot(operation, dispatch_at)
        slot.add(waiter, position)
        if self._order.accept(slot):
            self._enqueue(slot)

    def _enqueue(self, slot: Slot) -> None:
        """Add an operation to the forming call. If that call has no room, send it and form a new one."""
        size = 0 if slot.reads else size_bytes(slot.operation)
        if self._forming is not None and self._forming.size_bytes + size > self._limits.bytes_max:
            self._dispatch(self._forming, full=True)
        if self._forming is None:
            self._forming = SharedCall(time.monotonic())
        call = self._forming
        call.slots.append(slot)
        call.size_bytes += size
        if len(call.slots) >= self._limits.operations_max:
            self._dispatch(call, full=True)
        elif slot.dispatch_at < call.dispatch_at:
            self._schedule(call, slot.dispatch_at)

    def _schedule(self, call: SharedCall, dispatch_at: float) -> None:
        """Schedule the forming call for that time."""
        loop = asyncio.get_running_loop()
        call.dispatch_at = dispatch_at
        if call.timer is not None:
            call.timer.cancel()
        if self._linger_s and dispatch_at > time.monotonic():
            call.timer = loop.call_at(dispatch_at, self._dispatch, call)
        else:
            call.dispatch_at = NEXT_ITERATION
            self._start(call)

    def _dispatch(self, call: SharedCall, *, full: bool = False) -> None:
        """Close the call to further operations, and start it."""
        call.full = full
        self._forming = None
        if call.timer is not None:
            call.timer.cancel()
        self._start(call)

    def _start(self, call: SharedCall) -> None:
        """Create the call's task. If the call is still forming, it accepts operations until the task's first step."""
        if call not in self._in_flight:
            self._in_flight[call] = asyncio.get_running_loop().create_task(self._run(call))

    async def _run(self, call: SharedCall) -> None:
        """Send a call, give its waiters their outcomes, and release operations that wait on its keys."""
        if self._forming is call:
            self._forming = None
        try:
            if slots := call.dispatch():
                self._observe(call, len(slots))
                nothing_else = len(self._order) == len(call.slots)
                self._last_was_unshared = not self._linger_s and call.is_unshared and nothing_else
                outcomes = await self._send(call, slots)
                for slot, outcome in zip(slots, outcomes, strict=True):
                    slot.resolve(outcome)
        except BaseException:
            call.abandon()
            raise
        finally:
            del self._in_flight[call]
            self.release(self._order.finish(call.slots))

    async def _send(self, call: SharedCall, slots: Sequence[Slot]) -> Sequence[Outcome]:
        operations = [slot.operation for slot in slots]
        if self._traces is None:
            return await call_store(self._store, operations, call.until)
        with self._traces.shared_span("shared call", spans(slots)):
            return await call_store(self._store, operations, call.until)

    def _observe(self, call: SharedCall, operations: int) -> None:
        if self._metrics is not None:
            waited_s = time.monotonic() - call.since
            self._metrics.shared(operations, call.waiting_count, waited_s, full=call.full)

    def _expire(self, waiter: Waiter) -> None:
        """Resolve operations that are not sent, or whose call has a later deadline than the waiter.

        The store returns the outcomes of the others by the waiter's deadline.
        """
        for position, slot in [*waiter.pending.items()]:
            if slot.call is None:
                waiter.resolve(position, deadline_exceeded(self._store, "no"))
            elif slot.call.until > waiter.until:
                waiter.resolve(position, deadline_exceeded(self._store, applied_if_unanswered(slot.operation)))
                self._abandon(slot)

    def _abandon(self, slot: Slot) -> None:
        """Count one waiter less, and cancel a call that has only reads and no waiter left."""
        call = slot.call
        if call is None:
            return
        call.waiting_count -= 1
        task = self._in_flight.get(call)
        if task is not None and not call.waiting_count and all(each.reads for each in call.slots):
            task.cancel()
