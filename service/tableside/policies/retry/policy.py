"""The retry policy. The package describes which errors are retried, and why."""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ...core import DeadlineExceeded, Get, Operation, Outcome, Store, StoreUnavailable, TableError
from ...core.bounded_reads import NotRead
from ...core.directions import DIRECTIONS, Direction, all_succeeded, apply_by_direction, count_reads, direction
from ...core.errors import Overloaded
from ...core.store import Policy
from ...telemetry import Traces, wait_span
from .backoff import RetrySchedule
from .budget import RetryBudget
from .metrics import Reason, RetryCounters, RetryMetrics


class _Deadlines(msgspec.Struct, frozen=True, gc=False):
    """The caller's deadline, and the end of the total time for attempts and pauses."""

    deadline: float
    total: float


class Retry(Policy):
    """A store that retries reads and writes, each by its own schedule.

    If the store returned a time to wait, the pause begins after it. The default times of error classes are for callers
    and are ignored. If the pause would reach the deadline, the error is returned immediately. If the total time ends
    before the caller's deadline, unfinished operations get StoreUnavailable. All tables of a store share one budget.
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
        self._schedules: dict[Direction, RetrySchedule] = {"read": read, "write": write}
        self._without_total = read.total_s is None and write.total_s is None
        self._budget = budget or RetryBudget()
        self._jitter = jitter
        self._sleep = sleep
        self._counters = RetryCounters(inner.spec.name, metrics)
        self._traces = traces

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
        """Send the operations, and retry the ones with a transient error."""
        now = time.monotonic()
        self._budget.earn(len(operations), now)
        if self._without_total:
            outcomes = await self._inner.apply(operations, until)
            if all_succeeded(outcomes):
                return outcomes
            return await self._retry_failed(operations, outcomes, _Deadlines(until, math.inf))
        read, write = (_Deadlines(until, self._schedules[name].ends_at(now)) for name in DIRECTIONS)
        if read == write or (gets := count_reads(operations)) == len(operations):
            return await self._apply_until(operations, read)
        if gets == 0:
            return await self._apply_until(operations, write)
        return await apply_by_direction(
            operations, lambda some: self._apply_until(some, read), lambda some: self._apply_until(some, write)
        )

    async def _apply_until(self, operations: Sequence[Operation], deadlines: _Deadlines) -> Sequence[Outcome]:
        outcomes = await self._attempt(operations, deadlines)
        if all_succeeded(outcomes):
            return outcomes
        return await self._retry_failed(operations, outcomes, deadlines)

    async def _retry_failed(
        self, operations: Sequence[Operation], first: Sequence[Outcome], deadlines: _Deadlines
    ) -> list[Outcome]:
        outcomes = list(first)
        failed = [position for position, outcome in enumerate(outcomes) if isinstance(outcome, TableError)]
        attempt = 1
        while failed := await self._choose_and_pause(operations, outcomes, failed, attempt, deadlines):
            attempt += 1
            again = await self._attempt([operations[position] for position in failed], deadlines)
            for position, outcome in zip(failed, again, strict=True):
                outcomes[position] = _merge(outcomes[position], outcome)
        return outcomes

    async def _attempt(self, operations: Sequence[Operation], deadlines: _Deadlines) -> Sequence[Outcome]:
        if deadlines.deadline <= deadlines.total:
            return await self._inner.apply(operations, deadlines.deadline)
        outcomes = await self._inner.apply(operations, deadlines.total)
        if all_succeeded(outcomes):
            return outcomes
        return [self._as_unavailable(*both) for both in zip(operations, outcomes, strict=True)]

    def _as_unavailable(self, operation: Operation, outcome: Outcome) -> Outcome:
        """Convert DeadlineExceeded of the total time, but not of the caller's deadline, to StoreUnavailable."""
        if not isinstance(outcome, DeadlineExceeded):
            return outcome
        name = direction(operation)
        total_s = self._schedules[name].total_s
        detail = (
            f"table {self.spec.name!r}: the store did not finish the {name} within the retry_total_s of {total_s} s"
        )
        return StoreUnavailable(detail, applied=outcome.applied)

    async def _choose_and_pause(
        self,
        operations: Sequence[Operation],
        outcomes: list[Outcome],
        failed: list[int],
        attempt: int,
        deadlines: _Deadlines,
    ) -> list[int]:
        """Choose which of the failed operations to retry, pause, and return their positions."""
        able = [position for position in failed if _repeatable(operations[position], outcomes[position])]
        left = [at for at in able if attempt < self._schedules[direction(operations[at])].attempts_max]
        self._give_up(operations, able, left, "attempts")
        if not left:
            return []
        waits_s = self._waits_s(operations, outcomes, left, attempt)
        chosen = self._affordable(operations, self._in_time(operations, waits_s, deadlines))
        if chosen:
            await self._pause(max(waits_s[at] for at in chosen))
            self._counters.retried([operations[at] for at in chosen])
        return chosen

    def _in_time(self, operations: Sequence[Operation], waits_s: dict[int, float], deadlines: _Deadlines) -> list[int]:
        """Return the positions whose pause ends before the deadline and the total time."""
        now, all_left = time.monotonic(), list(waits_s)
        before_deadline = [at for at in all_left if now + waits_s[at] < deadlines.deadline]
        self._give_up(operations, all_left, before_deadline, "deadline")
        in_time = [at for at in before_deadline if now + waits_s[at] < deadlines.total]
        self._give_up(operations, before_deadline, in_time, "total")
        return in_time

    def _affordable(self, operations: Sequence[Operation], positions: list[int]) -> list[int]:
        """Return the positions if the budget allows a retry, and none otherwise."""
        if not positions or self._budget.spend(len(positions), time.monotonic()):
            return positions
        self._give_up(operations, positions, [], "budget")
        return []

    def _waits_s(
        self, operations: Sequence[Operation], outcomes: list[Outcome], positions: list[int], attempt: int
    ) -> dict[int, float]:
        """Return the time that each must wait: the store's own hint plus the pause of its direction."""
        names = {direction(operations[at]) for at in positions}
        pauses = {name: self._schedules[name].pause(attempt, self._jitter) for name in sorted(names)}
        return {at: _hint_s(outcomes[at]) + pauses[direction(operations[at])] for at in positions}

    async def _pause(self, seconds: float) -> None:
        with wait_span(self._traces if seconds > 0 else None, "retry pause"):
            await self._sleep(seconds)

    def _give_up(self, operations: Sequence[Operation], before: list[int], after: list[int], reason: Reason) -> None:
        if len(after) < len(before):
            kept = set(after)
            self._counters.given_up([operations[position] for position in before if position not in kept], reason)


def _repeatable(operation: Operation, outcome: Outcome) -> bool:
    """Return whether a retry may succeed and cannot apply a write twice."""
    if not isinstance(outcome, TableError) or not outcome.retriable:
        return False
    if isinstance(outcome, DeadlineExceeded | Overloaded | NotRead):
        return False
    return isinstance(operation, Get) or outcome.applied == "no" or operation.token is not None


def _hint_s(outcome: Outcome) -> float:
    """Return the time that the store itself asked to wait."""
    assert isinstance(outcome, TableError)
    return outcome.retry_hint_s or 0.0


def _merge(before: Outcome, now: Outcome) -> Outcome:
    """Return the outcome of a retry. If an earlier attempt may have been applied, so may an operation with an error."""
    assert isinstance(before, TableError)
    if not isinstance(now, TableError) or before.applied == "no" or now.applied == "unknown":
        return now
    return type(now)(
        f"{now.detail} (an earlier attempt may have been applied)",
        applied="unknown",
        retry_after_s=now.retry_hint_s,
        retriable=now.retriable,
    )
