"""Calls of the store, whatever for: none later than its deadline, and a bug of the store stays with its call."""

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence

import msgspec

from ...core import Applied, DeadlineExceeded, Get, Internal, Operation, Outcome, Put, Store, Update
from ...core.directions import count_reads
from ...telemetry import Traces
from .key_order import KeyOrder
from .metrics import TableCoalesceMetrics
from .waiters import TIMER_RESOLUTION_S, SharedCall, Slot, Waiter, WaiterDeadlines, spans

log = logging.getLogger(__name__)


async def call_store(store: Store, operations: Sequence[Operation], until: float) -> list[Outcome]:
    """Call the store. An exception of it is logged, and the outcome of what was in the call and of nothing else."""
    if until <= asyncio.get_running_loop().time():
        return [deadline_exceeded(store, "no")] * len(operations)
    try:
        outcomes = await store.apply(operations, until)
        if len(outcomes) != len(operations):
            raise AssertionError(f"{len(operations)} operations had {len(outcomes)} outcomes")
    except Exception:
        log.exception("table %s: a call of the store failed", store.spec.name)
        detail = f"table {store.spec.name!r}: the call of the store failed"
        return [Internal(detail, applied=in_doubt(operation)) for operation in operations]
    return outcomes


def deadline_exceeded(store: Store, applied: Applied) -> DeadlineExceeded:
    """Return what becomes of an operation whose deadline is over."""
    return DeadlineExceeded(f"table {store.spec.name!r}: the deadline was over", applied=applied)


def in_doubt(operation: Operation) -> Applied:
    """Return whether an operation that is under way may have changed something."""
    return "no" if type(operation) is Get else "unknown"


def has_writes(operations: Sequence[Operation]) -> bool:
    """Whether any of them may change something."""
    return count_reads(operations) != len(operations)


def size_bytes(operation: Operation) -> int:
    """Return how many bytes of values and updates an operation sends."""
    if isinstance(operation, Put):
        return len(operation.value)
    if isinstance(operation, Update):
        return len(msgspec.json.encode(operation.changes)) + len(operation.default or b"")
    return 0


NEXT_ITERATION = -math.inf
"""As a time to leave: in the next turn of the event loop."""


class CallLimits(msgspec.Struct, frozen=True):
    """What one call of the store may hold: operations, and bytes of values and updates."""

    operations_max: int
    bytes_max: int


class SharedCalls:
    """The call that forms, and those that are under way."""

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
        self._under_way: dict[SharedCall, asyncio.Task[None]] = {}
        self._deadlines = WaiterDeadlines(self._expire)
        self._drained: asyncio.Future[None] | None = None
        self._alone = False

    @property
    def idle(self) -> bool:
        """Whether waiting for others is likely in vain: nobody is here, nor was when somebody last waited."""
        return self._alone and not self._order

    def accept(self, operations: Sequence[Operation], until: float) -> Waiter:
        """Give each operation a slot: in the call that forms, or behind others on its key."""
        loop = asyncio.get_running_loop()
        waiter = Waiter(len(operations), until, loop.create_future())
        if self._traces is not None:
            waiter.span = self._traces.begun("coalesce wait")
        dispatch_at = self._leave_at(loop.time(), until) if self._linger_s else NEXT_ITERATION
        for position, operation in enumerate(operations):
            self._place(operation, dispatch_at, waiter, position)
        if self._forming is not None and dispatch_at < self._forming.dispatch_at:
            self._plan(self._forming, dispatch_at)
        self._deadlines.add(waiter)
        return waiter

    async def outcomes(self, waiter: Waiter) -> list[Outcome]:
        """Return what became of a waiter's operations. If it is cancelled, what was not sent yet never is."""
        try:
            return await waiter.future
        finally:
            self.forget(waiter)

    def forget(self, waiter: Waiter) -> None:
        """Let a waiter go, answered or not."""
        waiter.future.cancel()
        self._deadlines.remove(waiter)
        for slot in waiter.pending.values():
            self._unwanted(slot)
        waiter.pending.clear()
        if waiter.span is not None:
            waiter.span.end()

    def release(self, slots: Iterable[Slot]) -> None:
        """Take operations along whose turn has come, after something was finished."""
        for slot in slots:
            self._enqueue(slot)
        if self._drained is not None and not self._order:
            self._drained.set_result(None)
            self._drained = None

    async def drain(self) -> None:
        """Send what waits at once, and return when nothing is under way; from then on nothing lingers."""
        self._linger_s = 0.0
        if self._forming is not None:
            self._depart(self._forming)
        while self._order:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)
        self._deadlines.stop()

    def _leave_at(self, now: float, until: float) -> float:
        """Return when an operation should be under way: at once if its deadline would come first."""
        dispatch_at = now + self._linger_s
        return dispatch_at if dispatch_at + TIMER_RESOLUTION_S < until else NEXT_ITERATION

    def _place(self, operation: Operation, dispatch_at: float, waiter: Waiter, position: int) -> None:
        if type(operation) is Get and (slot := self._order.joined(operation.key)) is not None:
            slot.add(waiter, position)
            return
        slot = Slot(operation, dispatch_at)
        slot.add(waiter, position)
        if self._order.accept(slot):
            self._enqueue(slot)

    def _enqueue(self, slot: Slot) -> None:
        """Take an operation into the call that forms, or into a new one if that has no room."""
        size = 0 if slot.reads else size_bytes(slot.operation)
        if self._forming is not None and self._forming.size_bytes + size > self._limits.bytes_max:
            self._depart(self._forming, full=True)
        if self._forming is None:
            self._forming = SharedCall(asyncio.get_running_loop().time())
        call = self._forming
        call.slots.append(slot)
        call.size_bytes += size
        if len(call.slots) >= self._limits.operations_max:
            self._depart(call, full=True)
        elif slot.dispatch_at < call.dispatch_at:
            self._plan(call, slot.dispatch_at)

    def _plan(self, call: SharedCall, dispatch_at: float) -> None:
        """See to it that the call that forms goes at that time."""
        loop = asyncio.get_running_loop()
        call.dispatch_at = dispatch_at
        if call.timer is not None:
            call.timer.cancel()
        if self._linger_s and dispatch_at > loop.time():
            call.timer = loop.call_at(dispatch_at, self._depart, call)
        else:
            call.dispatch_at = NEXT_ITERATION
            self._start(call)

    def _depart(self, call: SharedCall, *, full: bool = False) -> None:
        """Let nobody in any more, and start the call."""
        call.full = full
        self._forming = None
        if call.timer is not None:
            call.timer.cancel()
        self._start(call)

    def _start(self, call: SharedCall) -> None:
        """Make the task whose first step, in the next turn of the loop, takes along what has come until then."""
        if call not in self._under_way:
            self._under_way[call] = asyncio.get_running_loop().create_task(self._run(call))

    async def _run(self, call: SharedCall) -> None:
        """Do a call, answer its waiters, and let others on its keys have their turn."""
        if self._forming is call:
            self._forming = None
        try:
            if slots := call.dispatch():
                self._observe(call, len(slots))
                self._alone = not self._linger_s and call.is_unshared and len(self._order) == len(call.slots)
                outcomes = await self._asked(call, slots)
                for slot, outcome in zip(slots, outcomes, strict=True):
                    slot.answer(outcome)
        except BaseException:
            call.abandon()
            raise
        finally:
            del self._under_way[call]
            self.release(self._order.finish(call.slots))

    async def _asked(self, call: SharedCall, slots: Sequence[Slot]) -> list[Outcome]:
        operations = [slot.operation for slot in slots]
        if self._traces is None:
            return await call_store(self._store, operations, call.until)
        with self._traces.shared("shared call", spans(slots)):
            return await call_store(self._store, operations, call.until)

    def _observe(self, call: SharedCall, operations: int) -> None:
        if self._metrics is not None:
            waited_s = asyncio.get_running_loop().time() - call.since
            self._metrics.shared(operations, call.waiting_count, waited_s, full=call.full)

    def _expire(self, waiter: Waiter) -> None:
        """Answer what is not under way, or is for longer than the waiter has; the store itself answers the rest."""
        for position, slot in [*waiter.pending.items()]:
            if slot.call is None:
                waiter.answer(position, deadline_exceeded(self._store, "no"))
            elif slot.call.until > waiter.until:
                waiter.answer(position, deadline_exceeded(self._store, in_doubt(slot.operation)))
                self._unwanted(slot)

    def _unwanted(self, slot: Slot) -> None:
        """Note that one waits less; a call that only reads ends when nobody waits for it any more."""
        call = slot.call
        if call is None:
            return
        call.waiting_count -= 1
        task = self._under_way.get(call)
        if task is not None and not call.waiting_count and all(each.reads for each in call.slots):
            task.cancel()
