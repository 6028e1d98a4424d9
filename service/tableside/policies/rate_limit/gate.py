"""Pays for the operations of a call: in one call if the credits are available, otherwise in parts as they arrive."""

import asyncio
import time
from collections.abc import Sequence

from ...core import Operation, Outcome, Store, Throttled, gather_bounded
from ...telemetry import Traces, wait_span
from .credits import Cost, Credits
from .metrics import LimitCounters

RETRY_AFTER_MIN_S = 0.001


class Gate:
    """Sends operations of one direction of a table when they are paid. `name` describes the limit in error details."""

    def __init__(self, inner: Store, cost: Cost, name: str, counts: LimitCounters, traces: Traces | None) -> None:
        self._inner = inner
        self._cost = cost
        self._uniform = cost.uniform
        self._name = name
        self._counters = counts
        self._traces = traces

    async def apply(
        self, operations: Sequence[Operation], until: float, credit: Credits, *, charge_found: bool
    ) -> Sequence[Outcome]:
        """Send the operations when they are paid. Operations that cannot be paid in time get Throttled.

        With `charge_found`, these are gets whose found records cost credits.
        """
        if self._uniform:
            return await self._in_parts(operations, [1.0] * len(operations), until, credit, charge_found)
        costs = [self._cost.of(operation) for operation in operations]
        total = sum(costs)
        if (total == 0 and not charge_found) or credit.try_take(total):
            return await self._send(operations, until, credit, charge_found)
        if 0.0 in costs and not charge_found:
            return await self._free_first(operations, costs, until, credit)
        return await self._in_parts(operations, costs, until, credit, charge_found)

    async def _free_first(
        self, operations: Sequence[Operation], costs: list[float], until: float, credit: Credits
    ) -> Sequence[Outcome]:
        """Send free operations without waiting for the credits of the others."""
        order = sorted(range(len(costs)), key=lambda position: costs[position] > 0)
        free = costs.count(0.0)
        ordered = [operations[position] for position in order]
        paying = [costs[position] for position in order[free:]]
        calls = [
            self._inner.apply(ordered[:free], until),
            self._in_parts(ordered[free:], paying, until, credit, charge_found=False),
        ]
        both = [outcome for outcomes in await gather_bounded(calls, len(calls)) for outcome in outcomes]
        outcomes: list[Outcome] = [None] * len(operations)
        for position, outcome in zip(order, both, strict=True):
            outcomes[position] = outcome
        return outcomes

    async def _in_parts(
        self, operations: Sequence[Operation], costs: list[float], until: float, credit: Credits, charge_found: bool
    ) -> Sequence[Outcome]:
        """Send each part when its credits have arrived, without waiting for the outcomes of earlier parts."""
        taken = await self._take(costs, until, credit)
        if taken == len(operations):
            return await self._send(operations, until, credit, charge_found)
        parts: list[asyncio.Task[Sequence[Outcome]]] = []
        sent = 0
        try:
            async with asyncio.TaskGroup() as group:
                while taken:
                    part = operations[sent : sent + taken]
                    parts.append(group.create_task(self._send(part, until, credit, charge_found)))
                    sent += taken
                    taken = await self._take(costs[sent:], until, credit)
                throttled = self._throttled(costs[sent:], credit)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [outcome for part in parts for outcome in part.result()] + throttled

    async def _send(
        self, operations: Sequence[Operation], until: float, credit: Credits, charge_found: bool
    ) -> Sequence[Outcome]:
        outcomes = await self._inner.apply(operations, until)
        if charge_found:
            credit.charge(self._cost.found_cost(outcomes))
        return outcomes

    async def _take(self, costs: list[float], until: float, credit: Credits) -> int:
        if not costs:
            return 0
        if taken := credit.take_some(costs):
            return taken
        started = time.monotonic()
        if started + credit.wait_s(costs[0]) > until + RETRY_AFTER_MIN_S:
            return 0
        with wait_span(self._traces, "rate limit wait"):
            taken = await credit.take(costs, until)
        self._counters.waited(time.monotonic() - started)
        return taken

    def _throttled(self, costs: list[float], credit: Credits) -> list[Outcome]:
        if not costs:
            return []
        self._counters.throttled(len(costs))
        wait_s = max(RETRY_AFTER_MIN_S, credit.wait_s(costs[0]))
        return [Throttled(f"{self._name} leaves no credit before the deadline", retry_after_s=wait_s)] * len(costs)
