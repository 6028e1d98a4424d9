"""Limits and backoff of retries."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retries:
    """Limits on the retries of one request.

    Waits grow exponentially with full jitter, and are at least as long as the service's `Retry-After`.

    Attributes:
        attempts_max: The maximum number of attempts, including the first.
        first_s: The upper limit of the first wait, in seconds. It doubles with each attempt.
        longest_s: The upper limit of every wait, in seconds.
        total_s: The maximum time of the request with all its attempts, in seconds.
    """

    attempts_max: int = 8
    first_s: float = 0.1
    longest_s: float = 10.0
    total_s: float = 120.0


DEFAULT_RETRIES = Retries()


class RetryBudget:
    """The remaining attempts and time of one request.

    Waits grow exponentially with full jitter ("Exponential Backoff And Jitter", Brooker 2015), and are never
    shorter than the service's `Retry-After`.
    """

    def __init__(
        self,
        retries: Retries,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self._retries = retries
        self._clock = clock
        self._sleep = sleep
        self._uniform = uniform
        self._deadline = clock() + retries.total_s
        self._attempts = 1

    def wait(self, retry_after_s: float | None) -> bool:
        """Wait before the next attempt. Returns False without waiting if the attempts or the time are used up."""
        if self._attempts >= self._retries.attempts_max:
            return False
        pause_s = max(self._backoff_s(), retry_after_s or 0.0)
        if self._clock() + pause_s > self._deadline:
            return False
        self._attempts += 1
        self._sleep(pause_s)
        return True

    def _backoff_s(self) -> float:
        ceiling_s = min(self._retries.longest_s, self._retries.first_s * 2.0 ** (self._attempts - 1))
        return ceiling_s * self._uniform()
