"""The coalescing policy: combines single operations into shared calls of the store, and divides large calls.

A single operation that arrives while others are in progress shares a call of the store with those that arrive in the
same iteration of the event loop. A call of several operations is sent directly, in parts.

A shared call has operations of one kind on distinct keys, and the latest deadline of its callers. A caller with an
earlier deadline gets DeadlineExceeded at that time. No call starts after its deadline. An exception of the store fails
only the operations in that call. An operation sees the writes acknowledged before it, because its call is sent after
it has arrived.
"""

import asyncio
import logging
import math
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType

import msgspec
from opentelemetry.trace import Span

from ..core import NO_DEADLINE, Budget, Get, Internal, Key, Operation, Outcome, Store
from ..core.batch import applied_if_unanswered, direction, joined_outcomes
from ..core.concurrency import chunks_of, gather_bounded
from ..core.operations import size_bytes
from ..core.store import Policy
from ..telemetry import Traces
from .metrics import CoalesceMetrics, PolicyMetrics

log = logging.getLogger(__name__)

UNLIMITED = sys.maxsize

SHARED_BYTES_MAX = 2**16
"""Limit on the bytes of values and updates in a shared call. Others would wait for a longer operation."""

CONCURRENT_PARTS_MAX = 8
"""Limit on the parts of one call that are in flight at the same time."""

TIMER_RESOLUTION_S = 0.001
"""Resolution of the event loop's timers: deadlines within this time count as passed."""


class Coalesce(Policy):
    """A store that combines single operations and divides large calls.

    A call of the store has at most `operations_max` operations and `bytes_max` bytes of values and updates. A single
    operation with more bytes is sent alone. Operations of the kinds in `singles` share calls, at most so many of a kind
    in one call, with at most SHARED_BYTES_MAX bytes.
    """

    def __init__(
        self,
        inner: Store,
        *,
        operations_max: int = UNLIMITED,
        bytes_max: int = UNLIMITED,
        singles: Mapping[type[Operation], int] = MappingProxyType({}),
        metrics: PolicyMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        self._operations_max, self._bytes_max = operations_max, bytes_max
        self._metrics = CoalesceMetrics(metrics or PolicyMetrics(), inner.spec.name)
        self._calls = {
            kind: SharedCalls(inner, count_max, min(bytes_max, SHARED_BYTES_MAX), self._metrics, traces)
            for kind, count_max in singles.items()
        }

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Do the operations, in calls of the store that may also have other callers' operations."""
        calls = self._calls.get(type(operations[0])) if len(operations) == 1 else None
        if calls is None:
            return await self._in_parts(operations, budget)
        if not calls.idle:
            return [await calls.outcome(operations[0], budget.until)]
        calls.direct += 1
        try:
            return await self._in_parts(operations, budget)
        finally:
            calls.direct -= 1

    async def close(self) -> None:
        """Return when no shared call is in flight."""
        while tasks := [task for calls in self._calls.values() for task in calls.in_flight.values()]:
            await asyncio.wait(tasks)
        await super().close()

    async def _in_parts(self, operations: Sequence[Operation], budget: Budget) -> Sequence[Outcome]:
        """Divide a call if it is too large, without sharing it."""
        if self._operations_max == UNLIMITED:
            return await self._inner.apply(operations, budget)
        bytes_max = None if direction(operations) == "read" else self._bytes_max
        parts = list(chunks_of(operations, self._operations_max, bytes_max, size_bytes))
        for part in parts:
            self._metrics.direct(len(part))
        if len(parts) < 2:  # the exceptions of the store pass unchanged then
            return await self._inner.apply(operations, budget)
        answers = await gather_bounded([call_store(self._inner, part, budget) for part in parts], CONCURRENT_PARTS_MAX)
        return joined_outcomes(answers)


class Caller(msgspec.Struct, eq=False):
    """A caller that waits for the outcome of an operation.

    `until` is its deadline: its call may have a later one. `span` covers its wait, if the trace is sampled. `call` is
    the call with its operation, while that is in flight and the caller waits.
    """

    operation: Operation
    until: float
    future: "asyncio.Future[Outcome]"
    span: Span | None
    call: "SharedCall | None" = None


class SharedCall(msgspec.Struct, eq=False):
    """A call of the store: it first collects operations and is then sent.

    `callers` are those of all operations. Only a get can have several. `until`, its deadline, and `waiting`, the number
    of callers without an outcome, are set when it is sent. `timer` is for the earliest of its callers' deadlines, if
    that is before its own.
    """

    since: float
    operations: dict[Key, Operation] = {}
    callers: list[Caller] = []
    size_bytes: int = 0
    waiting: int = 0
    until: float = -math.inf
    timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Drop the callers that wait no longer, and operations without callers. None can join from now on."""
        waiting = [caller for caller in self.callers if not caller.future.done()]
        if len(waiting) < len(self.callers):
            keys = {caller.operation.key for caller in waiting}
            self.operations = {key: operation for key, operation in self.operations.items() if key in keys}
        for caller in waiting:
            caller.call = self
        self.callers, self.waiting = waiting, len(waiting)
        self.until = max([caller.until for caller in waiting], default=self.until)

    def resolve(self, outcomes: Sequence[Outcome]) -> None:
        """Give the outcome of each operation to its callers."""
        by_key = dict(zip(self.operations, outcomes, strict=True))
        for caller in self._released():
            if not caller.future.done():
                caller.future.set_result(by_key[caller.operation.key])

    def abandon(self) -> None:
        """Cancel all callers: there will be no outcome."""
        for caller in self._released():
            caller.future.cancel()

    def _released(self) -> list[Caller]:
        """Return the callers, and end the cycles of references, which would keep values in memory."""
        callers, self.callers, self.operations = self.callers, [], {}
        return callers


class SharedCalls:
    """The calls for operations of one kind: the call that still collects operations, and the calls in flight.

    A call has at most `operations_max` operations, and `bytes_max` bytes of values and updates. `direct` is the number
    of calls that are sent without sharing.
    """

    def __init__(
        self, store: Store, operations_max: int, bytes_max: int, metrics: CoalesceMetrics, traces: Traces | None
    ) -> None:
        self.direct = 0
        self.in_flight: dict[SharedCall, asyncio.Task[None]] = {}
        self._store = store
        self._operations_max, self._bytes_max = operations_max, bytes_max
        self._metrics = metrics
        self._traces = traces
        self._forming: SharedCall | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # `get_running_loop` makes a system call.
        self._last_was_unshared = False

    @property
    def idle(self) -> bool:
        """Whether nothing else is in progress and the last call was not shared: waiting is probably useless."""
        return self._last_was_unshared and not (self.in_flight or self.direct)

    async def outcome(self, operation: Operation, until: float) -> Outcome:
        """Do an operation in the forming call. If the wait is cancelled before that is sent, it is never sent."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        span = None if self._traces is None else self._traces.start_span("coalesce wait")
        caller = Caller(operation, until, loop.create_future(), span)
        self._join(caller, loop)
        try:
            return await caller.future
        except asyncio.CancelledError:
            self._abandon(caller)
            raise
        finally:
            if span is not None:
                span.end()

    def _join(self, caller: Caller, loop: asyncio.AbstractEventLoop) -> None:
        """Add an operation to the forming call, or to a new one if it has no room. Gets of a key are one operation."""
        call, operation = self._forming, caller.operation
        size = 0 if type(operation) is Get else size_bytes(operation)
        if call is None or not self._has_room(call, operation, size):
            call = SharedCall(time.monotonic())
            self.in_flight[call] = loop.create_task(self._run(call))
            if size <= self._bytes_max:
                self._forming = call
        call.operations.setdefault(operation.key, operation)
        call.callers.append(caller)
        call.size_bytes += size

    def _has_room(self, call: SharedCall, operation: Operation, size: int) -> bool:
        if operation.key in call.operations:
            return type(operation) is Get
        return len(call.operations) < self._operations_max and call.size_bytes + size <= self._bytes_max

    async def _run(self, call: SharedCall) -> None:
        """Send a call, and give its callers their outcomes. Until then, more operations can share it."""
        try:
            if len(self.in_flight) > 1:
                await asyncio.sleep(0)
            if self._forming is call:
                self._forming = None
            call.start()
            if call.callers:
                await self._send(call)
        except BaseException:
            call.abandon()
            raise
        finally:
            del self.in_flight[call]
            if call.timer is not None:
                call.timer.cancel()

    async def _send(self, call: SharedCall) -> None:
        operations, callers = [*call.operations.values()], call.callers
        full = len(operations) >= self._operations_max
        self._metrics.shared(len(operations), len(callers), time.monotonic() - call.since, full=full)
        self._last_was_unshared = len(self.in_flight) == 1 and not self.direct and len(callers) == 1
        budget = Budget(call.until, self._store.spec.name)
        earlier = [caller for caller in callers if caller.until < call.until - TIMER_RESOLUTION_S]
        self._expire(call, sorted(earlier, key=lambda caller: -caller.until))
        spans = [caller.span for caller in callers if caller.span is not None]
        with nullcontext() if self._traces is None else self._traces.shared_span("shared call", spans):
            outcomes = await call_store(self._store, operations, budget)
        call.resolve(outcomes)

    def _expire(self, call: SharedCall, earlier: list[Caller]) -> None:
        """Resolve the callers at the end of the list, whose deadlines have passed. The next one gets a timer."""
        while earlier and earlier[-1].until < time.monotonic() + TIMER_RESOLUTION_S:
            caller = earlier.pop()
            if not caller.future.done():
                applied = applied_if_unanswered([caller.operation])
                caller.future.set_result(Budget(caller.until, self._store.spec.name).exceeded(applied))
                self._abandon(caller)
        if earlier:
            call.timer = asyncio.get_running_loop().call_at(earlier[-1].until, self._expire, call, earlier)

    def _abandon(self, caller: Caller) -> None:
        """Count a caller less. Cancel a call without callers."""
        call, caller.call = caller.call, None
        if call is None:
            return
        call.waiting -= 1
        if not call.waiting and call in self.in_flight:
            self.in_flight[call].cancel()


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
