"""Calls of the store, whatever for: none later than its deadline, and a bug of the store stays with its call."""

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence

import msgspec

from ...core import Applied, DeadlineExceeded, Get, Internal, Operation, Outcome, Put, Store, Update
from ...core.directions import count_reads
from ...telemetry import Traces
from .key_order import Order
from .metrics import TableMetrics
from .waiters import TIMER_S, Call, Caller, Deadlines, Place, spans

log = logging.getLogger(__name__)


async def ask(store: Store, operations: Sequence[Operation], until: float) -> list[Outcome]:
    """Call the store. An exception of it is logged, and the outcome of what was in the call and of nothing else."""
    if until <= asyncio.get_running_loop().time():
        return [too_late(store, "no")] * len(operations)
    try:
        outcomes = await store.apply(operations, until)
        if len(outcomes) != len(operations):
            raise AssertionError(f"{len(operations)} operations had {len(outcomes)} outcomes")
    except Exception:
        log.exception("table %s: a call of the store failed", store.spec.name)
        detail = f"table {store.spec.name!r}: the call of the store failed"
        return [Internal(detail, applied=in_doubt(operation)) for operation in operations]
    return outcomes


def too_late(store: Store, applied: Applied) -> DeadlineExceeded:
    """Return what becomes of an operation whose deadline is over."""
    return DeadlineExceeded(f"table {store.spec.name!r}: the deadline was over", applied=applied)


def in_doubt(operation: Operation) -> Applied:
    """Return whether an operation that is under way may have changed something."""
    return "no" if type(operation) is Get else "unknown"


def write(operations: Sequence[Operation]) -> bool:
    """Whether any of them may change something."""
    return count_reads(operations) != len(operations)


def size_bytes(operation: Operation) -> int:
    """Return how many bytes of values and updates an operation sends."""
    if isinstance(operation, Put):
        return len(operation.value)
    if isinstance(operation, Update):
        return len(msgspec.json.encode(operation.changes)) + len(operation.default or b"")
    return 0


NEXT_TURN = -math.inf
"""As a time to leave: in the next turn of the event loop."""


class Limits(msgspec.Struct, frozen=True):
    """What one call of the store may hold: operations, and bytes of values and updates."""

    operations_max: int
    bytes_max: int


class Shared:
    """The call that forms, and those that are under way."""

    def __init__(
        self,
        store: Store,
        order: Order,
        metrics: TableMetrics | None,
        limits: Limits,
        linger_s: float,
        traces: Traces | None,
    ) -> None:
        self._store = store
        self._order = order
        self._metrics = metrics
        self._limits = limits
        self._linger_s = linger_s
        self._traces = traces
        self._forming: Call | None = None
        self._under_way: dict[Call, asyncio.Task[None]] = {}
        self._deadlines = Deadlines(self._expire)
        self._drained: asyncio.Future[None] | None = None
        self._alone = False

    @property
    def useless(self) -> bool:
        """Whether waiting for others is likely in vain: nobody is here, nor was when somebody last waited."""
        return self._alone and not self._order

    def accept(self, operations: Sequence[Operation], until: float) -> Caller:
        """Give each operation a place: in the call that forms, or behind others on its key."""
        loop = asyncio.get_running_loop()
        caller = Caller(len(operations), until, loop.create_future())
        if self._traces is not None:
            caller.span = self._traces.begun("coalesce wait")
        leave_at = self._leave_at(loop.time(), until) if self._linger_s else NEXT_TURN
        for position, operation in enumerate(operations):
            self._place(operation, leave_at, caller, position)
        if self._forming is not None and leave_at < self._forming.leave_at:
            self._plan(self._forming, leave_at)
        self._deadlines.add(caller)
        return caller

    async def outcomes(self, caller: Caller) -> list[Outcome]:
        """Return what became of a caller's operations. If it is cancelled, what was not sent yet never is."""
        try:
            return await caller.future
        finally:
            self.forget(caller)

    def forget(self, caller: Caller) -> None:
        """Let a caller go, answered or not."""
        caller.future.cancel()
        self._deadlines.remove(caller)
        for place in caller.open.values():
            self._unwanted(place)
        caller.open.clear()
        if caller.span is not None:
            caller.span.end()

    def release(self, places: Iterable[Place]) -> None:
        """Take operations along whose turn has come, after something was finished."""
        for place in places:
            self._board(place)
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
        leave_at = now + self._linger_s
        return leave_at if leave_at + TIMER_S < until else NEXT_TURN

    def _place(self, operation: Operation, leave_at: float, caller: Caller, position: int) -> None:
        if type(operation) is Get and (place := self._order.joined(operation.key)) is not None:
            place.add(caller, position)
            return
        place = Place(operation, leave_at)
        place.add(caller, position)
        if self._order.accept(place):
            self._board(place)

    def _board(self, place: Place) -> None:
        """Take an operation into the call that forms, or into a new one if that has no room."""
        size = 0 if place.reads else size_bytes(place.operation)
        if self._forming is not None and self._forming.size_bytes + size > self._limits.bytes_max:
            self._depart(self._forming, full=True)
        if self._forming is None:
            self._forming = Call(asyncio.get_running_loop().time())
        call = self._forming
        call.places.append(place)
        call.size_bytes += size
        if len(call.places) >= self._limits.operations_max:
            self._depart(call, full=True)
        elif place.leave_at < call.leave_at:
            self._plan(call, place.leave_at)

    def _plan(self, call: Call, leave_at: float) -> None:
        """See to it that the call that forms goes at that time."""
        loop = asyncio.get_running_loop()
        call.leave_at = leave_at
        if call.timer is not None:
            call.timer.cancel()
        if self._linger_s and leave_at > loop.time():
            call.timer = loop.call_at(leave_at, self._depart, call)
        else:
            call.leave_at = NEXT_TURN
            self._start(call)

    def _depart(self, call: Call, *, full: bool = False) -> None:
        """Let nobody in any more, and start the call."""
        call.full = full
        self._forming = None
        if call.timer is not None:
            call.timer.cancel()
        self._start(call)

    def _start(self, call: Call) -> None:
        """Make the task whose first step, in the next turn of the loop, takes along what has come until then."""
        if call not in self._under_way:
            self._under_way[call] = asyncio.get_running_loop().create_task(self._run(call))

    async def _run(self, call: Call) -> None:
        """Do a call, answer its callers, and let others on its keys have their turn."""
        if self._forming is call:
            self._forming = None
        try:
            if places := call.depart():
                self._observe(call, len(places))
                self._alone = not self._linger_s and call.is_alone and len(self._order) == len(call.places)
                outcomes = await self._asked(call, places)
                for place, outcome in zip(places, outcomes, strict=True):
                    place.answer(outcome)
        except BaseException:
            call.abandon()
            raise
        finally:
            del self._under_way[call]
            self.release(self._order.finish(call.places))

    async def _asked(self, call: Call, places: Sequence[Place]) -> list[Outcome]:
        operations = [place.operation for place in places]
        if self._traces is None:
            return await ask(self._store, operations, call.until)
        with self._traces.shared("shared call", spans(places)):
            return await ask(self._store, operations, call.until)

    def _observe(self, call: Call, operations: int) -> None:
        if self._metrics is not None:
            waited_s = asyncio.get_running_loop().time() - call.since
            self._metrics.shared(operations, call.wanted, waited_s, full=call.full)

    def _expire(self, caller: Caller) -> None:
        """Answer what is not under way, or is for longer than the caller has; the store itself answers the rest."""
        for position, place in [*caller.open.items()]:
            if place.call is None:
                caller.answer(position, too_late(self._store, "no"))
            elif place.call.until > caller.until:
                caller.answer(position, too_late(self._store, in_doubt(place.operation)))
                self._unwanted(place)

    def _unwanted(self, place: Place) -> None:
        """Note that one waits less; a call that only reads ends when nobody waits for it any more."""
        call = place.call
        if call is None:
            return
        call.wanted -= 1
        task = self._under_way.get(call)
        if task is not None and not call.wanted and all(each.reads for each in call.places):
            task.cancel()
