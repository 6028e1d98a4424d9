"""Shared calls of the store: collects operations of several callers, sends them together and returns the outcomes.

A call has operations of one kind. It has the latest deadline of its callers. A caller with an earlier deadline gets
DeadlineExceeded at that time. No call starts after its deadline. An exception of the store fails only the operations in
that call.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence

from ...core import Budget, Get, Internal, Operation, Outcome, Store
from ...core.deadlines import TIMER_RESOLUTION_S, Deadlines
from ...core.directions import applied_if_unanswered
from ...core.operations import size_bytes
from ...telemetry import Traces
from ..metrics import CoalesceMetrics
from .key_order import KeyOrder
from .slots import Caller, SharedCall, Slot

log = logging.getLogger(__name__)

NEXT_ITERATION = -math.inf
"""As `dispatch_at`: send the call in the next iteration of the event loop."""


async def call_store(store: Store, operations: Sequence[Operation], budget: Budget) -> Sequence[Outcome]:
    """Call the store. If it raises, log the exception and return Internal for the operations of this call."""
    if budget.is_over():
        return [budget.exceeded()] * len(operations)
    try:
        outcomes = await store.apply(operations, budget)
        if len(outcomes) != len(operations):
            raise AssertionError(f"{len(operations)} operations had {len(outcomes)} outcomes")
    except Exception:
        log.exception("table %s: a call of the store failed", store.spec.name)
        detail = f"table {store.spec.name!r}: the call of the store failed"
        return [Internal(detail, applied=applied_if_unanswered(operations))] * len(operations)
    return outcomes


class SharedCalls:
    """The calls for operations of one kind: the call that still collects operations, and the calls in flight.

    A call has at most `operations_max` operations, and `bytes_max` bytes of values and updates.
    With `order`, operations run in the order of their keys, and a write that was sent is finished without its caller.
    `release` receives the operations of a finished call. `direct` is the number of calls that are sent without sharing.
    """

    def __init__(
        self,
        store: Store,
        operations_max: int,
        bytes_max: int,
        linger_s: float,
        metrics: CoalesceMetrics,
        traces: Traces | None,
        order: KeyOrder | None,
        release: Callable[[Iterable[Slot]], None],
    ) -> None:
        self.direct = 0
        self.in_flight: dict[SharedCall, asyncio.Task[None]] = {}
        self._store = store
        self._operations_max, self._bytes_max = operations_max, bytes_max
        self._linger_s = linger_s
        self._metrics = metrics
        self._traces = traces
        self._order = order
        self._release = release
        self._forming: SharedCall | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # `get_running_loop` makes a system call.
        self._deadlines = Deadlines(self._expire)
        self._last_was_unshared = order is None

    @property
    def idle(self) -> bool:
        """Return whether waiting for others is probably useless.

        Nothing else is in progress, and the last call that waited was not shared.
        """
        return self._last_was_unshared and not (self.in_flight or self.direct)

    def join(self, operations: Sequence[Operation], until: float) -> list[Caller]:
        """Give each operation a slot in the forming call, or queue it behind earlier operations on its key."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        span = None if self._traces is None else self._traces.start_span("coalesce wait")
        dispatch_at = self._dispatch_at(until) if self._linger_s else NEXT_ITERATION
        callers = []
        for operation in operations:
            joined = self._joinable(operation) if type(operation) is Get else None
            slot = joined or Slot(operation, dispatch_at)
            caller = Caller(slot, until, loop.create_future(), len(operations), span)
            callers.append(caller)
            if joined is None and (self._order is None or self._order.accept(slot)):
                self.enqueue(slot)
            elif self._order is not None:
                self._end_at_deadline(caller)  # It may wait for another operation on its key.
        if self._forming is not None and dispatch_at < self._forming.dispatch_at:
            self._schedule(self._forming, dispatch_at)
        return callers

    async def outcomes(self, callers: Sequence[Caller]) -> list[Outcome]:
        """Wait for the outcomes. If the wait is cancelled, operations that were not sent yet are never sent."""
        try:
            return [await caller.future for caller in callers]
        finally:
            self.forget(callers)

    def forget(self, callers: Sequence[Caller]) -> None:
        """Remove callers, whether or not they have their outcomes."""
        for caller in callers:
            if caller.timed:
                self._deadlines.remove(caller)
            if caller.future.cancel() or caller.future.cancelled():
                self._abandon(caller)
        if (span := callers[0].span) is not None:
            span.end()

    def enqueue(self, slot: Slot) -> None:
        """Add an operation to the forming call. If that call has no room, send it and form a new one."""
        call, key = self._forming, slot.operation.key
        size = 0 if slot.reads else size_bytes(slot.operation)
        if call is not None and (key in call.slots or call.size_bytes + size > self._bytes_max):
            self._dispatch(call, full=key not in call.slots)
            call = None
        if call is None:
            call = self._forming = SharedCall(time.monotonic())
        call.slots[key] = slot
        call.size_bytes += size
        if len(call.slots) >= self._operations_max:
            self._dispatch(call, full=True)
        elif slot.dispatch_at < call.dispatch_at:
            self._schedule(call, slot.dispatch_at)

    def flush(self) -> None:
        """Send the forming call immediately. Later operations do not linger."""
        self._linger_s = 0.0
        if self._forming is not None:
            self._dispatch(self._forming)

    def stop(self) -> None:
        """Cancel the timer of deadlines. No caller waits."""
        self._deadlines.stop()

    def _joinable(self, get: Get) -> Slot | None:
        """Return the slot that a get can share: a get of its key that is not sent yet."""
        if self._order is not None:
            return self._order.joinable(get.key)
        return None if self._forming is None else self._forming.slots.get(get.key)

    def _dispatch_at(self, until: float) -> float:
        """Return when to send an operation: without lingering if its deadline would come first."""
        dispatch_at = time.monotonic() + self._linger_s
        return dispatch_at if dispatch_at + TIMER_RESOLUTION_S < until else NEXT_ITERATION

    def _schedule(self, call: SharedCall, dispatch_at: float) -> None:
        """Schedule the forming call for that time."""
        call.dispatch_at = dispatch_at
        if call.timer is not None:
            call.timer.cancel()
        if self._linger_s and dispatch_at > time.monotonic():
            call.timer = asyncio.get_running_loop().call_at(dispatch_at, self._dispatch, call)
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
        """Create the call's task. If the call is still forming, it accepts operations until it is sent."""
        if call not in self.in_flight:
            self.in_flight[call] = asyncio.get_running_loop().create_task(self._run(call))

    async def _run(self, call: SharedCall) -> None:
        """Send a call, and give its callers their outcomes. More operations share it if others are in flight."""
        try:
            if len(self.in_flight) > 1:
                await asyncio.sleep(0)
            if self._forming is call:
                self._forming = None
            if callers := call.start():
                await self._send(call, callers)
        except BaseException:
            call.abandon()
            raise
        finally:
            del self.in_flight[call]
            self._release(call.slots.values())

    async def _send(self, call: SharedCall, callers: Sequence[Caller]) -> None:
        operations = [slot.operation for slot in call.slots.values() if slot.callers]
        self._metrics.shared(len(operations), len(callers), time.monotonic() - call.since, full=call.full)
        if self._order is None:
            alone = len(self.in_flight) == 1 and not self.direct
        else:
            alone = len(self._order) == len(call.slots)
        self._last_was_unshared = alone and not self._linger_s and len(callers) == callers[0].count
        budget = Budget(call.until, self._store.spec.name)
        earlier = call.until - TIMER_RESOLUTION_S
        for caller in callers:
            if caller.until < earlier:
                self._end_at_deadline(caller)
        if self._traces is None:
            call.resolve(await call_store(self._store, operations, budget))
            return
        spans = dict.fromkeys(caller.span for caller in callers if caller.span is not None)
        with self._traces.shared_span("shared call", [*spans]):
            outcomes = await call_store(self._store, operations, budget)
        call.resolve(outcomes)

    def _end_at_deadline(self, caller: Caller) -> None:
        caller.timed = True
        self._deadlines.add(caller)

    def _expire(self, caller: Caller) -> None:
        """Resolve a caller that is not sent, or whose call has a later deadline.

        The store returns the outcomes of the others by their deadline.
        """
        call = caller.slot.call
        if caller.future.done() or (call is not None and call.until <= caller.until):
            return
        applied = "no" if call is None else applied_if_unanswered([caller.slot.operation])
        caller.future.set_result(Budget(caller.until, self._store.spec.name).exceeded(applied))
        self._abandon(caller)

    def _abandon(self, caller: Caller) -> None:
        """Count one caller less. Cancel a call without callers, but with `order` no writes."""
        slot, call = caller.slot, caller.slot.call
        if call is None or caller not in slot.callers:  # It was not sent, or dropped before.
            return
        call.waiting -= 1
        if not call.waiting and (slot.reads or self._order is None) and call in self.in_flight:
            self.in_flight[call].cancel()
