"""Single operations that arrive in the same iteration of the event loop, in one call of the store.

This is the default for gets of remote stores, and for updates of stores that apply many of them in one round trip.
Unlike `Coalesce` it leaves other writes and batches unchanged, and no operation waits for another on its key: an
operation sees the writes acknowledged before it, because its call is sent after it has arrived.
"""

import asyncio
import math
import time
from collections.abc import Sequence

from opentelemetry.trace import Span

from ...core import Get, Key, Operation, Outcome, Store, Update
from ...core.deadlines import TIMER_RESOLUTION_S
from ...core.store import Policy
from ...telemetry import Traces
from .metrics import CoalesceMetrics, TableCoalesceMetrics
from .shared_call import call_store


class SingleCall:
    """A call of the store: it collects operations until its task starts, and then sends them.

    `callers` are the futures of each key. `until` is the deadline of the first operation. `waiting` is the number of
    callers without outcome.
    """

    __slots__ = ("callers", "operations", "since", "spans", "started", "task", "until", "waiting")

    def __init__(self, since: float, until: float) -> None:
        self.since = since
        self.until = until
        self.started = False
        self.waiting = 0
        self.operations: dict[Key, Operation] = {}
        self.callers: dict[Key, list[asyncio.Future[Outcome]]] = {}
        self.spans: list[Span] = []
        self.task: asyncio.Task[None]

    def accepts(self, operation: Operation, until: float, operations_max: int) -> bool:
        """Return whether an operation with this deadline may join: a get, or an update of another record."""
        return (
            (until == self.until or abs(until - self.until) < TIMER_RESOLUTION_S)
            and len(self.operations) < operations_max
            and (type(operation) is Get or operation.key not in self.operations)
        )

    def add(self, operation: Operation, caller: "asyncio.Future[Outcome]") -> None:
        """Add an operation, or another caller of a get that it has."""
        self.waiting += 1
        if operation.key in self.operations:
            self.callers[operation.key].append(caller)
        else:
            self.operations[operation.key], self.callers[operation.key] = operation, [caller]

    def start(self) -> Sequence[Operation]:
        """Close the call to other operations, and return the ones that still have a caller."""
        self.started = True
        for key in [key for key, callers in self.callers.items() if False not in [caller.done() for caller in callers]]:
            del self.operations[key], self.callers[key]
        return [*self.operations.values()]

    def leave(self) -> None:
        """Count a caller less. A call without callers ends."""
        self.waiting -= 1
        if self.started and not self.waiting:
            self.task.cancel()

    def resolve(self, outcomes: Sequence[Outcome]) -> None:
        """Give each caller the outcome of its operation."""
        for callers, outcome in zip(self.callers.values(), outcomes, strict=True):
            for caller in callers:
                if not caller.done():
                    caller.set_result(outcome)

    def abandon(self) -> None:
        """Cancel all callers: there will be no outcome."""
        for callers in self.callers.values():
            for caller in callers:
                caller.cancel()


class SharedSingles(Policy):
    """A store whose single operations share calls: gets, and updates.

    `gets_max` and `updates_max` limit the operations of one call. With 0, they do not share calls.
    """

    def __init__(
        self,
        inner: Store,
        *,
        gets_max: int,
        updates_max: int = 0,
        metrics: CoalesceMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        table_metrics = None if metrics is None else TableCoalesceMetrics(metrics, inner.spec.name)
        self._gets = _Sharing(inner, gets_max, table_metrics, traces) if gets_max else None
        self._updates = _Sharing(inner, updates_max, table_metrics, traces) if updates_max else None

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
        """Send the operations. A single one may share its call with those of other callers, unless it is long."""
        if len(operations) == 1:
            operation = operations[0]
            if type(operation) is Get and self._gets is not None:
                return await self._gets.apply(operations, until)
            if type(operation) is Update and self._updates is not None and type(operation.changes) is tuple:
                return await self._updates.apply(operations, until)
        return await self._inner.apply(operations, until)

    async def close(self) -> None:
        """Return when no operation is in flight. Operations that still arrive are done."""
        for sharing in (self._gets, self._updates):
            if sharing is not None:
                await sharing.finish()
        await super().close()


class _Sharing:
    """The calls for operations of one kind.

    An operation waits for one iteration of the event loop, and for another one while a call is in flight. It does not
    wait if no other one is in progress and the one before was alone. Operations share a call only if their deadlines
    are equal, within the resolution of timers.
    """

    def __init__(
        self, inner: Store, operations_max: int, metrics: TableCoalesceMetrics | None, traces: Traces | None
    ) -> None:
        self._inner = inner
        self._operations_max = operations_max
        self._metrics = metrics
        self._traces = traces
        self._forming: SingleCall | None = None
        self._calls: set[SingleCall] = set()
        self._alone = 0
        self._last_was_unshared = True

    async def apply(self, operations: Sequence[Operation], until: float) -> Sequence[Outcome]:
        """Send a single operation, in a shared call if others are in progress."""
        if not self._last_was_unshared or self._calls or self._alone:
            return await self._share(operations[0], until)
        self._alone += 1
        try:
            return await self._inner.apply(operations, until)
        finally:
            self._alone -= 1

    async def finish(self) -> None:
        """Return when no call is in flight."""
        while self._calls:
            await asyncio.wait([call.task for call in self._calls])

    async def _share(self, operation: Operation, until: float) -> list[Outcome]:
        call = self._call(operation, until)
        caller: asyncio.Future[Outcome] = call.task.get_loop().create_future()
        call.add(operation, caller)
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

    def _call(self, operation: Operation, until: float) -> SingleCall:
        """Return the call that collects operations, if it accepts this one, or a new one."""
        call = self._forming
        if call is not None and call.accepts(operation, until, self._operations_max):
            return call
        loop = asyncio.get_running_loop()
        call = self._forming = SingleCall(time.monotonic(), until)
        call.task = loop.create_task(self._run(call))
        self._calls.add(call)
        return call

    async def _run(self, call: SingleCall) -> None:
        try:
            if len(self._calls) > 1:
                await asyncio.sleep(0)
            if self._forming is call:
                self._forming = None
            if operations := call.start():
                self._last_was_unshared = call.waiting == 1 and len(self._calls) == 1 and not self._alone
                self._observe(call)
                call.resolve(await self._send(call, operations))
        except BaseException:
            call.abandon()
            raise
        finally:
            self._calls.discard(call)
            if self._forming is call:
                self._forming = None

    async def _send(self, call: SingleCall, operations: Sequence[Operation]) -> Sequence[Outcome]:
        if self._traces is None:
            return await call_store(self._inner, operations, call.until)
        with self._traces.shared_span("shared call", call.spans):
            return await call_store(self._inner, operations, call.until)

    def _observe(self, call: SingleCall) -> None:
        if self._metrics is not None:
            waited_s = time.monotonic() - call.since
            full = len(call.operations) == self._operations_max
            self._metrics.shared(len(call.operations), call.waiting, waited_s, full=full)
