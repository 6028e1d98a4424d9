"""Single gets that arrive in the same turn of the event loop, in one call of the store.

This is the default of remote stores. Unlike `Coalesce` it leaves writes and batches unchanged, so no operation waits
for another on its key: a get sees the writes acknowledged before it, and the call is sent after it has arrived.
"""

import asyncio
import math
from collections.abc import Sequence

from opentelemetry.trace import Span

from ...core import Get, Key, Operation, Outcome, Store
from ...core.directions import AllReads
from ...core.store import Policy
from ...telemetry import Traces
from .metrics import CoalesceMetrics, TableCoalesceMetrics
from .shared_call import call_store
from .waiters import TIMER_RESOLUTION_S


class ReadCall:
    """A call of the store: it collects gets until its task starts, and then sends them.

    `callers` are the futures of each key. `until` is the deadline of the first get. `waiting` is the number of callers
    without outcome.
    """

    __slots__ = ("callers", "gets", "since", "spans", "started", "task", "until", "waiting")

    def __init__(self, since: float, until: float) -> None:
        self.since = since
        self.until = until
        self.started = False
        self.waiting = 0
        self.gets: dict[Key, Get] = {}
        self.callers: dict[Key, list[asyncio.Future[Outcome]]] = {}
        self.spans: list[Span] = []
        self.task: asyncio.Task[None]

    def add(self, get: Get, caller: "asyncio.Future[Outcome]") -> None:
        """Add a get, or another caller of a get that it has."""
        self.waiting += 1
        if get.key in self.gets:
            self.callers[get.key].append(caller)
        else:
            self.gets[get.key], self.callers[get.key] = get, [caller]

    def start(self) -> Sequence[Operation]:
        """Close the call to other gets, and return the ones that still have a caller."""
        self.started = True
        for key in [key for key, callers in self.callers.items() if all(caller.done() for caller in callers)]:
            del self.gets[key], self.callers[key]
        return AllReads(self.gets.values())

    def leave(self) -> None:
        """Count a caller less. A call without callers ends."""
        self.waiting -= 1
        if self.started and not self.waiting:
            self.task.cancel()

    def resolve(self, outcomes: Sequence[Outcome]) -> None:
        """Give each caller the outcome of its get."""
        for callers, outcome in zip(self.callers.values(), outcomes, strict=True):
            for caller in callers:
                if not caller.done():
                    caller.set_result(outcome)

    def abandon(self) -> None:
        """Cancel all callers: there will be no outcome."""
        for callers in self.callers.values():
            for caller in callers:
                caller.cancel()


class SharedReads(Policy):
    """A store whose single gets share calls, each with at most `operations_max` keys.

    A get waits for one turn of the event loop, but not if no other get is in progress and the one before was alone.
    Gets share a call only if their deadlines are equal, within the resolution of timers.
    """

    def __init__(
        self,
        inner: Store,
        *,
        operations_max: int,
        metrics: CoalesceMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        self._operations_max = operations_max
        self._metrics = None if metrics is None else TableCoalesceMetrics(metrics, inner.spec.name)
        self._traces = traces
        self._forming: ReadCall | None = None
        self._calls: set[ReadCall] = set()
        self._alone = 0
        self._last_was_unshared = True

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Send the operations. A single get may share its call with other callers' gets."""
        if len(operations) != 1 or type(get := operations[0]) is not Get:
            return await self._inner.apply(operations, until)
        if not self._last_was_unshared or self._calls or self._alone:
            return await self._share(get, until)
        self._alone += 1
        try:
            return await self._inner.apply(operations, until)
        finally:
            self._alone -= 1

    async def close(self) -> None:
        """Return when no get is in flight. Gets that still arrive are done."""
        while self._calls:
            await asyncio.wait([call.task for call in self._calls])
        await super().close()

    async def _share(self, get: Get, until: float) -> list[Outcome]:
        caller = asyncio.get_running_loop().create_future()
        call = self._call(until)
        call.add(get, caller)
        span = None if self._traces is None else self._traces.start_span("coalesce wait")
        if span is not None:
            call.spans.append(span)
        try:
            return [await caller]
        except asyncio.CancelledError:
            call.leave()
            raise
        finally:
            if span is not None:
                span.end()

    def _call(self, until: float) -> ReadCall:
        """Return the call that collects gets with this deadline. Make one if necessary."""
        call = self._forming
        if (
            call is not None
            and (until == call.until or abs(until - call.until) < TIMER_RESOLUTION_S)
            and len(call.gets) < self._operations_max
        ):
            return call
        loop = asyncio.get_running_loop()
        call = self._forming = ReadCall(loop.time(), until)
        call.task = loop.create_task(self._run(call))
        self._calls.add(call)
        return call

    async def _run(self, call: ReadCall) -> None:
        if self._forming is call:
            self._forming = None
        try:
            if gets := call.start():
                self._last_was_unshared = call.waiting == 1 and len(self._calls) == 1 and not self._alone
                self._observe(call)
                call.resolve(await self._send(call, gets))
        except BaseException:
            call.abandon()
            raise
        finally:
            self._calls.discard(call)

    async def _send(self, call: ReadCall, gets: Sequence[Operation]) -> list[Outcome]:
        if self._traces is None:
            return await call_store(self._inner, gets, call.until)
        with self._traces.shared_span("shared call", call.spans):
            return await call_store(self._inner, gets, call.until)

    def _observe(self, call: ReadCall) -> None:
        if self._metrics is not None:
            waited_s = asyncio.get_running_loop().time() - call.since
            full = len(call.gets) == self._operations_max
            self._metrics.shared(len(call.gets), call.waiting, waited_s, full=full)
