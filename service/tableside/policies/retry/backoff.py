"""The retry schedule of one direction: the number of attempts, the pauses between them and their total time."""

import math
from collections.abc import Callable
from typing import Literal

import msgspec

from ...core import exponential_backoff_s

BackoffKind = Literal["exponential", "fixed", "none"]


class RetrySchedule(msgspec.Struct, frozen=True):
    """When to retry. `attempts_max` counts all attempts, including the first.

    The pause before attempt n + 1 depends on the strategy. "exponential": random between 0 and `pause_s` * 2 ** (n - 1)
    seconds, at most `pause_max_s`. "fixed": `pause_s`. "none": no pause. All attempts end `total_s` after the first one
    began, if that is given.
    """

    attempts_max: int = 3
    backoff: BackoffKind = "exponential"
    pause_s: float = 0.05
    pause_max_s: float = 2.0
    total_s: float | None = None

    def __post_init__(self) -> None:
        """Reject values that are out of range or contradict each other."""
        if self.attempts_max < 1:
            raise ValueError("attempts_max must be at least 1")
        if not (0 <= self.pause_s <= self.pause_max_s < math.inf):
            raise ValueError("pause_s must be at least 0 s and at most pause_max_s")
        if self.total_s is not None and not self.total_s > 0:
            raise ValueError("retry_total_s must be above 0 s")
        if self.backoff == "fixed" and self.attempts_max > 1 and self.pause_s >= self.ends_at(0.0):
            raise ValueError("retry_total_s must be above a fixed pause_s: otherwise no attempt is repeated")

    def pause(self, attempt: int, jitter: Callable[[], float]) -> float:
        """Return the pause after an attempt, in seconds. `jitter` returns a random number from 0 to 1."""
        match self.backoff:
            case "none":
                return 0.0
            case "fixed":
                return self.pause_s
            case "exponential":
                return exponential_backoff_s(attempt - 1, self.pause_s, self.pause_max_s, jitter)

    def ends_at(self, started: float) -> float:
        """Return the end of the total time of attempts that began at `started`, or infinity if there is no limit."""
        return math.inf if self.total_s is None else started + self.total_s
