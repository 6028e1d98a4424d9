"""The store that is asked again: attempt, choose, pause, attempt. Which failures and why is said in the package."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from ...directions import direction
from ...errors import DeadlineExceeded, Overloaded, TableError
from ...operations import Get, Operation, Outcome, Record, Written
from ...store import Policy, Store
from .budget import RetryBudget
from .metrics import Counts, Metrics, Reason

Backoff = Literal["exponential", "fixed", "none"]

_SUCCESSES = frozenset({Record, Written, type(None)})


class Retry(Policy):
    """A store that is asked again.

    `read_attempts_max` and `write_attempts_max` count calls, the first included. Before attempt n + 1 the pause is
    random between 0 and `pause_s` * 2 ** (n - 1) seconds ("exponential"), exactly `pause_s` ("fixed"), or none; at most
    `pause_max_s` in any case. Where the store said how long to wait, the pause begins after that; the default of an
    error's class is for callers and is not waited for. A pause that would reach the deadline is not begun: the error is
    the answer, now.
    """

    def __init__(
        self,
        inner: Store,
        *,
        read_attempts_max: int,
        write_attempts_max: int,
        backoff: Backoff = "exponential",
        pause_s: float = 0.05,
        pause_max_s: float = 2.0,
        budget: RetryBudget | None = None,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(inner)
        if min(read_attempts_max, write_attempts_max) < 1:
            raise ValueError("attempts are calls: at least 1")
        if pause_s < 0 or pause_max_s < 0:
            raise ValueError("a pause is at least 0 s")
        self._attempts_max = {"read": read_attempts_max, "write": write_attempts_max}
        self._backoff = backoff
        self._pause_s = pause_s
        self._pause_max_s = pause_max_s
        self._budget = budget or RetryBudget()
        self._jitter = jitter
        self._sleep = sleep
        self._counts = Counts(inner.spec.name, metrics)

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Hand the operations on, and those again that may do better."""
        self._budget.earn(len(operations), asyncio.get_running_loop().time())
        outcomes = await self._inner.apply(operations, until)
        if _SUCCESSES.issuperset(map(type, outcomes)):
            return outcomes
        outcomes = list(outcomes)
        failed = [position for position, outcome in enumerate(outcomes) if isinstance(outcome, TableError)]
        attempt = 1
        while failed := await self._worth_another(operations, outcomes, failed, attempt, until):
            attempt += 1
            again = await self._inner.apply([operations[position] for position in failed], until)
            for position, outcome in zip(failed, again, strict=True):
                outcomes[position] = _told(outcomes[position], outcome)
        return outcomes

    async def _worth_another(
        self, operations: Sequence[Operation], outcomes: list[Outcome], failed: list[int], attempt: int, until: float
    ) -> list[int]:
        """Return which of the failed are to be tried again now, after the pause before that."""
        able = [position for position in failed if _repeatable(operations[position], outcomes[position])]
        left = [at for at in able if attempt < self._attempts_max[direction(operations[at])]]
        self._give_up(operations, able, left, "attempts")
        if not left:
            return []
        now, pause_s = asyncio.get_running_loop().time(), self._pause(attempt)
        waits_s = {at: _hint_s(outcomes[at]) + pause_s for at in left}
        in_time = [at for at in left if now + waits_s[at] < until]
        self._give_up(operations, left, in_time, "deadline")
        if not in_time:
            return []
        if not self._budget.spend(len(in_time), now):
            self._give_up(operations, in_time, [], "budget")
            return []
        await self._sleep(max(waits_s[at] for at in in_time))
        self._counts.retried([operations[at] for at in in_time])
        return in_time

    def _pause(self, attempt: int) -> float:
        match self._backoff:
            case "none":
                return 0.0
            case "fixed":
                return min(self._pause_s, self._pause_max_s)
            case "exponential":
                return self._jitter() * min(self._pause_s * 2.0 ** min(attempt - 1, 64), self._pause_max_s)

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
