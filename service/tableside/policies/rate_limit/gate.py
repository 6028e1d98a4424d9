"""How a call passes that costs credits: at once where they are there, else in parts, as they come."""

import asyncio
from collections.abc import Sequence

from ...core import Operation, Outcome, Store, Throttled, gather_bounded
from ...telemetry import Traces, wait_span
from .credits import Cost, Credits
from .metrics import LimitCounters

RETRY_AFTER_MIN_S = 0.001


class Gate:
    """Where operations of one direction of a table pay; `name` is that of the limit, for whoever is refused."""

    def __init__(self, inner: Store, cost: Cost, name: str, counts: LimitCounters, traces: Traces | None) -> None:
        self._inner = inner
        self._cost = cost
        self._uniform = cost.uniform
        self._name = name
        self._counts = counts
        self._traces = traces

    async def apply(
        self, operations: Sequence[Operation], until: float, credit: Credits, *, charge_found: bool
    ) -> list[Outcome]:
        """Hand the operations on as they are paid; Throttled, and nothing applied, where that cannot be in time.

        `charge_found` says that these are gets which pay for what they find.
        """
        if self._uniform:
            return await self._in_parts(operations, [1.0] * len(operations), until, credit, charge_found)
        costs = [self._cost.of(operation) for operation in operations]
        total = sum(costs)
        if (total == 0 and not charge_found) or credit.try_take(total):
            return await self._sent(operations, until, credit, charge_found)
        if 0.0 in costs and not charge_found:
            return await self._free_first(operations, costs, until, credit)
        return await self._in_parts(operations, costs, until, credit, charge_found)

    async def _free_first(
        self, operations: Sequence[Operation], costs: list[float], until: float, credit: Credits
    ) -> list[Outcome]:
        """Let what is free not wait for what is not."""
        order = sorted(range(len(costs)), key=lambda position: costs[position] > 0)
        free = costs.count(0.0)
        sorts = [operations[position] for position in order]
        paying = [costs[position] for position in order[free:]]
        works = [
            self._inner.apply(sorts[:free], until),
            self._in_parts(sorts[free:], paying, until, credit, charge_found=False),
        ]
        both = [outcome for outcomes in await gather_bounded(works, len(works)) for outcome in outcomes]
        outcomes: list[Outcome] = [None] * len(operations)
        for position, outcome in zip(order, both, strict=True):
            outcomes[position] = outcome
        return outcomes

    async def _in_parts(
        self, operations: Sequence[Operation], costs: list[float], until: float, credit: Credits, charge_found: bool
    ) -> list[Outcome]:
        """Send each part when its credits have come, without waiting for the parts before it."""
        taken = await self._taken(costs, until, credit)
        if taken == len(operations):
            return await self._sent(operations, until, credit, charge_found)
        parts: list[asyncio.Task[list[Outcome]]] = []
        sent = 0
        try:
            async with asyncio.TaskGroup() as group:
                while taken:
                    part = operations[sent : sent + taken]
                    parts.append(group.create_task(self._sent(part, until, credit, charge_found)))
                    sent += taken
                    taken = await self._taken(costs[sent:], until, credit)
                refused = self._refused(costs[sent:], credit)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [outcome for part in parts for outcome in part.result()] + refused

    async def _sent(
        self, operations: Sequence[Operation], until: float, credit: Credits, charge_found: bool
    ) -> list[Outcome]:
        outcomes = await self._inner.apply(operations, until)
        if charge_found:
            credit.charge(self._cost.found_cost(outcomes))
        return outcomes

    async def _taken(self, costs: list[float], until: float, credit: Credits) -> int:
        if not costs:
            return 0
        if taken := credit.take_some(costs):
            return taken
        started = asyncio.get_running_loop().time()
        if started + credit.wait_s(costs[0]) > until + RETRY_AFTER_MIN_S:
            return 0
        with wait_span(self._traces, "rate limit wait"):
            taken = await credit.take(costs, until)
        self._counts.waited(asyncio.get_running_loop().time() - started)
        return taken

    def _refused(self, costs: list[float], credit: Credits) -> list[Outcome]:
        if not costs:
            return []
        self._counts.throttled(len(costs))
        wait_s = max(RETRY_AFTER_MIN_S, credit.wait_s(costs[0]))
        return [Throttled(f"{self._name} leaves no credit before the deadline", retry_after_s=wait_s)] * len(costs)
