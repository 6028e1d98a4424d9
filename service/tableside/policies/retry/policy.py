"""The store that is asked again: attempt, choose, pause, attempt. Which failures and why is said in the package."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ...core import DeadlineExceeded, Get, Operation, Outcome, Store, StoreUnavailable, TableError
from ...core.directions import DIRECTIONS, Direction, all_succeeded, apply_by_direction, count_reads, direction
from ...core.errors import Overloaded
from ...core.store import Policy
from ...telemetry import Traces, wait_span
from .backoff import RetrySchedule
from .budget import RetryBudget
from .metrics import Reason, RetryCounters, RetryMetrics


class _Deadlines(msgspec.Struct, frozen=True, gc=False):
    """When the caller's time is over, and when that of attempts and pauses is."""

    deadline: float
    total: float


class Retry(Policy):
    """A store that is asked again, reads as `read` says and writes as `write` does.

    Where the store said how long to wait, the pause begins after that; the default of an error's class is for callers
    and is not waited for. A pause that would reach the deadline is not begun: the error is the answer, now. What the
    last attempt had no time for, though the caller still has some, is StoreUnavailable. The budget is that of all
    tables of a store.
    """

    def __init__(
        self,
        inner: Store,
        *,
        read: RetrySchedule,
        write: RetrySchedule,
        budget: RetryBudget | None = None,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        metrics: RetryMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        self._attempts: dict[Direction, RetrySchedule] = {"read": read, "write": write}
        self._endless = read.total_s is None and write.total_s is None
        self._budget = budget or RetryBudget()
        self._jitter = jitter
        self._sleep = sleep
        self._counts = RetryCounters(inner.spec.name, metrics)
        self._traces = traces

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Hand the operations on, and those again that may do better."""
        now = asyncio.get_running_loop().time()
        self._budget.earn(len(operations), now)
        if self._endless:
            outcomes = await self._inner.apply(operations, until)
            if all_succeeded(outcomes):
                return outcomes
            return await self._again(operations, outcomes, _Deadlines(until, math.inf))
        read, write = (_Deadlines(until, self._attempts[name].ends_at(now)) for name in DIRECTIONS)
        if read == write or (gets := count_reads(operations)) == len(operations):
            return await self._tried(operations, read)
        if gets == 0:
            return await self._tried(operations, write)
        return await apply_by_direction(
            operations, lambda some: self._tried(some, read), lambda some: self._tried(some, write)
        )

    async def _tried(self, operations: Sequence[Operation], ends: _Deadlines) -> list[Outcome]:
        outcomes = await self._attempt(operations, ends)
        if all_succeeded(outcomes):
            return outcomes
        return await self._again(operations, outcomes, ends)

    async def _again(self, operations: Sequence[Operation], first: list[Outcome], ends: _Deadlines) -> list[Outcome]:
        outcomes = list(first)
        failed = [position for position, outcome in enumerate(outcomes) if isinstance(outcome, TableError)]
        attempt = 1
        while failed := await self._worth_another(operations, outcomes, failed, attempt, ends):
            attempt += 1
            again = await self._attempt([operations[position] for position in failed], ends)
            for position, outcome in zip(failed, again, strict=True):
                outcomes[position] = _told(outcomes[position], outcome)
        return outcomes

    async def _attempt(self, operations: Sequence[Operation], ends: _Deadlines) -> list[Outcome]:
        if ends.deadline <= ends.total:
            return await self._inner.apply(operations, ends.deadline)
        outcomes = await self._inner.apply(operations, ends.total)
        if all_succeeded(outcomes):
            return outcomes
        return [self._cut(*both) for both in zip(operations, outcomes, strict=True)]

    def _cut(self, operation: Operation, outcome: Outcome) -> Outcome:
        """Say of an operation whose attempts, not whose caller, had no more time that it was so."""
        if not isinstance(outcome, DeadlineExceeded):
            return outcome
        name = direction(operation)
        total_s = self._attempts[name].total_s
        detail = (
            f"table {self.spec.name!r}: the store did not finish the {name} within the retry_total_s of {total_s} s"
        )
        return StoreUnavailable(detail, applied=outcome.applied)

    async def _worth_another(
        self,
        operations: Sequence[Operation],
        outcomes: list[Outcome],
        failed: list[int],
        attempt: int,
        ends: _Deadlines,
    ) -> list[int]:
        """Return which of the failed are to be tried again now, after the pause before that."""
        able = [position for position in failed if _repeatable(operations[position], outcomes[position])]
        left = [at for at in able if attempt < self._attempts[direction(operations[at])].attempts_max]
        self._give_up(operations, able, left, "attempts")
        if not left:
            return []
        waits_s = self._waits_s(operations, outcomes, left, attempt)
        chosen = self._affordable(operations, self._in_time(operations, waits_s, ends))
        if chosen:
            await self._pause(max(waits_s[at] for at in chosen))
            self._counts.retried([operations[at] for at in chosen])
        return chosen

    def _in_time(self, operations: Sequence[Operation], waits_s: dict[int, float], ends: _Deadlines) -> list[int]:
        """Return those whose pause ends before their time does."""
        now, all_left = asyncio.get_running_loop().time(), list(waits_s)
        before_deadline = [at for at in all_left if now + waits_s[at] < ends.deadline]
        self._give_up(operations, all_left, before_deadline, "deadline")
        in_time = [at for at in before_deadline if now + waits_s[at] < ends.total]
        self._give_up(operations, before_deadline, in_time, "total")
        return in_time

    def _affordable(self, operations: Sequence[Operation], positions: list[int]) -> list[int]:
        """Return these if the budget has anything left, and none if not."""
        if not positions or self._budget.spend(len(positions), asyncio.get_running_loop().time()):
            return positions
        self._give_up(operations, positions, [], "budget")
        return []

    def _waits_s(
        self, operations: Sequence[Operation], outcomes: list[Outcome], positions: list[int], attempt: int
    ) -> dict[int, float]:
        """Return how long each has to wait: what the store said, and then the pause of its direction."""
        names = {direction(operations[at]) for at in positions}
        pauses = {name: self._attempts[name].pause(attempt, self._jitter) for name in sorted(names)}
        return {at: _hint_s(outcomes[at]) + pauses[direction(operations[at])] for at in positions}

    async def _pause(self, seconds: float) -> None:
        with wait_span(self._traces if seconds > 0 else None, "retry pause"):
            await self._sleep(seconds)

    def _give_up(self, operations: Sequence[Operation], before: list[int], after: list[int], reason: Reason) -> None:
        if len(after) < len(before):
            kept = set(after)
            self._counts.given_up([operations[position] for position in before if position not in kept], reason)


def _repeatable(operation: Operation, outcome: Outcome) -> bool:
    """Whether asking again may help, and cannot hurt."""
    if not isinstance(outcome, TableError) or not outcome.retriable:
        return False
    if isinstance(outcome, DeadlineExceeded | Overloaded):
        return False
    return isinstance(operation, Get) or outcome.applied == "no" or operation.token is not None


def _hint_s(outcome: Outcome) -> float:
    """Return how long the store itself said to wait."""
    assert isinstance(outcome, TableError)
    return outcome.retry_hint_s or 0.0


def _told(before: Outcome, now: Outcome) -> Outcome:
    """Return the outcome of another attempt, with what is still unknown of those before it."""
    assert isinstance(before, TableError)
    if not isinstance(now, TableError) or before.applied == "no" or now.applied == "unknown":
        return now
    return type(now)(
        f"{now.detail} (an earlier attempt may have been applied)",
        applied="unknown",
        retry_after_s=now.retry_hint_s,
        retriable=now.retriable,
    )
