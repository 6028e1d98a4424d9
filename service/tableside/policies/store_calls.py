"""Times every call of a table's store, including failures, and records it as a span if there is a trace.

It is the innermost policy: one call here is one call of the store, after coalescing, retries and limits.
"""

import time
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from opentelemetry.trace import SpanKind

from ..core import NO_DEADLINE, Budget, Operation, Outcome, Page, Scan, Store, TableError
from ..core.batch import all_succeeded
from ..core.store import Policy
from ..telemetry import Attribute, Histogram, Traces, current_context
from .metrics import PolicyMetrics

Result = TypeVar("Result")


class StoreCalls(Policy):
    """A store whose calls are timed and traced. `kind` is the kind of the store, for the span."""

    def __init__(
        self, inner: Store, kind: str, *, metrics: PolicyMetrics | None = None, traces: Traces | None = None
    ) -> None:
        super().__init__(inner)
        self._kind = kind
        self._metrics = metrics or PolicyMetrics()
        self._traces = traces
        self._operations = self._metrics.call_operations.labels(inner.spec.name)
        self._seconds: dict[tuple[str, str], Histogram] = {}

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Send the operations, and time the call."""
        self._operations.observe(len(operations))
        started, outcome = time.perf_counter(), "cancelled"
        try:
            if self._traces is None or current_context(self._traces) is None:
                outcomes = await self._inner.apply(operations, budget)
                outcome = _outcome(outcomes)
                return outcomes
            attributes: dict[str, Attribute] = {
                "db.system.name": self._kind,
                "db.collection.name": self.spec.name,
                "db.operation.batch.size": len(operations),
            }
            with self._traces.span("store call", attributes=attributes, kind=SpanKind.CLIENT) as span:
                outcomes = await self._inner.apply(operations, budget)
                outcome = _outcome(outcomes)
                if outcome != "ok":
                    span.set_attribute("error.type", outcome)
                return outcomes
        finally:
            self._observe("apply", outcome, started)

    async def scan(self, scan: Scan) -> Page:
        """Send the scan, and time the call."""
        return await self._timed("scan", self._inner.scan(scan))

    async def splits(self, count_max: int) -> list[bytes]:
        """Send the request, and time the call."""
        return await self._timed("splits", self._inner.splits(count_max))

    async def _timed(self, call: str, work: Awaitable[Result]) -> Result:
        started, outcome = time.perf_counter(), "cancelled"
        try:
            answer = await work
            outcome = "ok"
            return answer
        except TableError as error:
            outcome = error.code
            raise
        finally:
            self._observe(call, outcome, started)

    def _observe(self, call: str, outcome: str, started: float) -> None:
        # A lookup by labels costs more than timing.
        if (child := self._seconds.get((call, outcome))) is None:
            child = self._seconds[call, outcome] = self._metrics.call_seconds.labels(self.spec.name, call, outcome)
        child.observe(time.perf_counter() - started)


def _outcome(outcomes: Sequence[Outcome]) -> str:
    if len(outcomes) == 1:
        [only] = outcomes
        return only.code if isinstance(only, TableError) else "ok"
    if all_succeeded(outcomes):
        return "ok"
    return next(outcome.code for outcome in outcomes if isinstance(outcome, TableError))
