"""Retries: repeats operations that failed with a transient error, within limits of time, attempts and a budget.

Errors: operations with a `retriable` error are retried, with two exceptions. DeadlineExceeded means that the caller's
deadline has passed (an attempt that timed out is StoreUnavailable, see `timeout`). Overloaded means that the service
sheds load, and retries would add load. Throttled, Contended and StoreUnavailable are retried, each after a pause.

Writes: a write is retried if it was certainly not applied, or if the record remembers it, and so recognizes the
repetition. Another write that may have been applied is never retried, not even an unconditional put or delete. An
acknowledged write of another caller between the two applications would be lost. An abandoned attempt may also arrive
after the repetition was acknowledged, and undo the caller's next write.

Outcomes: the last attempt gives the outcome. If an earlier attempt may have been applied, an error has `applied`
"unknown". A write with a token whose first attempt was applied, but whose response was lost, has the outcome
`replayed`. The write is in the record once. Its etag and value are the record's current ones, which may come from a
later write. Whether a retry or an earlier request of the caller applied it cannot be determined.

Scans are not retried.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

from pydantic import BaseModel, Field, model_validator

from ..core import NO_DEADLINE, Budget, DeadlineExceeded, Get, Operation, Outcome, Store, TableError
from ..core.batch import Direction, all_succeeded, at_positions, direction
from ..core.budget import NotRead
from ..core.concurrency import exponential_backoff_s
from ..core.errors import Overloaded
from ..core.operations import is_remembered
from ..core.store import Policy
from ..telemetry import Traces, wait_span
from .metrics import PolicyMetrics


class RetrySchedule(BaseModel, frozen=True, extra="forbid"):
    """When to retry. `attempts_max` counts all attempts, including the first. 1 disables retries.

    The pause before attempt n + 1 is random between 0 and `pause_s` * 2 ** (n - 1) seconds, at most `pause_max_s`.
    """

    attempts_max: int = Field(default=3, ge=1, le=100)
    pause_s: float = Field(default=0.05, ge=0, le=60)
    pause_max_s: float = Field(default=2.0, ge=0, le=600)

    @model_validator(mode="after")
    def _check_pauses(self) -> Self:
        if self.pause_s > self.pause_max_s:
            raise ValueError("pause_s must be at most pause_max_s")
        return self

    @property
    def retries_configured(self) -> bool:
        """Whether the configuration sets `attempts_max`, and above 1."""
        return "attempts_max" in self.model_fields_set and self.attempts_max > 1


class RetryBudget:
    """Limits retries to the fraction `share` of recent operations, plus `per_s` per second.

    New operations earn credit, which decays over `window_s`. Retries spend it. With any credit left, a whole call may
    be retried, even a larger one: it leaves a debt, and no call is retried until the debt is paid. So one lost
    connection does not fail a batch, and the fraction is still kept on average.
    """

    def __init__(self, share: float = 0.2, per_s: float = 10.0, window_s: float = 10.0) -> None:
        self._share = share
        self._per_s = per_s
        self._window_s = window_s
        self._reserve = per_s * window_s
        self._credit = self._reserve
        self._counted_at = -math.inf

    def earn(self, count: int, now: float) -> None:
        """Record so many new operations. `now` is in seconds of any clock."""
        self._update(now)
        self._credit += self._share * count

    def spend(self, count: int, now: float) -> bool:
        """Return whether so many operations may be retried, and if so, spend the credit."""
        self._update(now)
        if self._credit < 1:
            return False
        self._credit -= count
        return True

    def remaining(self, now: float) -> float:
        """Return how many operations could be retried now. Below 1, none can, and a negative number is the debt."""
        self._update(now)
        return self._credit

    def _update(self, now: float) -> None:
        """Update the credit to `now`: it grows up to the reserve, and decays above it."""
        passed_s = now - self._counted_at
        self._counted_at = now
        if self._credit > self._reserve:
            self._credit = self._reserve + (self._credit - self._reserve) * math.exp(-passed_s / self._window_s)
        else:
            self._credit = min(self._reserve, self._credit + self._per_s * passed_s)


class Retry(Policy):
    """A store that retries reads and writes, each by its own schedule.

    If the store returned a time to wait, the pause begins after it. The default times of error classes are for callers
    and are ignored. If the pause would reach the deadline, the error is returned immediately. All tables of a store
    share one budget.
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
        metrics: PolicyMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        self._schedules: dict[Direction, RetrySchedule] = {"read": read, "write": write}
        self._budget = budget or RetryBudget()
        self._jitter = jitter
        self._sleep = sleep
        self._metrics = metrics or PolicyMetrics()
        self._traces = traces

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Send the operations, and retry the ones with a transient error."""
        self._budget.earn(len(operations), time.monotonic())
        first = await self._inner.apply(operations, budget)
        if all_succeeded(first):
            return first
        outcomes, sent, attempt = [*first], list(range(len(first))), 1
        while sent := await self._choose_and_pause(operations, outcomes, sent, attempt, budget.until):
            attempt += 1
            again = await self._inner.apply(at_positions(operations, sent), budget)
            for position, outcome in zip(sent, again, strict=True):
                outcomes[position] = _merge(outcomes[position], outcome)
        return outcomes

    async def _choose_and_pause(
        self, operations: Sequence[Operation], outcomes: Sequence[Outcome], sent: list[int], attempt: int, until: float
    ) -> list[int]:
        """Choose which of the operations sent last to retry, pause, and return their positions."""
        waits_s = {
            position: outcome.retry_hint_s or 0.0
            for position in sent
            if isinstance(outcome := outcomes[position], TableError) and _repeatable(operations[position], outcome)
        }
        if not waits_s:
            return []
        way, now = direction(operations), time.monotonic()
        schedule = self._schedules[way]
        if attempt >= schedule.attempts_max:
            self._give_up(way, len(waits_s), "attempts")
            return []
        pause_s = exponential_backoff_s(attempt - 1, schedule.pause_s, schedule.pause_max_s, self._jitter)
        chosen = [position for position, wait_s in waits_s.items() if now + wait_s + pause_s < until]
        self._give_up(way, len(waits_s) - len(chosen), "deadline")
        if not chosen:
            return []
        if not self._budget.spend(len(chosen), now):
            self._give_up(way, len(chosen), "budget")
            return []
        pause_s += max(waits_s[position] for position in chosen)
        with wait_span(self._traces if pause_s > 0 else None, "retry pause"):
            await self._sleep(pause_s)
        self._metrics.retries.labels(self.spec.name, way).inc(len(chosen))
        return chosen

    def _give_up(self, way: Direction, count: int, reason: str) -> None:
        if count:
            self._metrics.retries_given_up.labels(self.spec.name, way, reason).inc(count)


def _repeatable(operation: Operation, error: TableError) -> bool:
    """Return whether a retry may succeed and cannot apply a write twice."""
    if not error.retriable or isinstance(error, DeadlineExceeded | Overloaded | NotRead):
        return False
    return isinstance(operation, Get) or error.applied == "no" or is_remembered(operation)


def _merge(before: Outcome, now: Outcome) -> Outcome:
    """Return the outcome of a retry. If an earlier attempt may have been applied, so may an operation with an error."""
    assert isinstance(before, TableError)
    if not isinstance(now, TableError) or before.applied == "no" or now.applied == "unknown":
        return now
    detail = f"{now.detail} (an earlier attempt may have been applied)"
    return type(now)(detail, applied="unknown", retry_after_s=now.retry_hint_s, retriable=now.retriable)
