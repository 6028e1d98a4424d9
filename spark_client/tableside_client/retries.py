"""How often and how long to ask again. Pure but for the clock, the sleep and the dice, which are arguments."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retries:
    """Bounds on asking again: in attempts (the first included) and in seconds of one call as a whole."""

    attempts_max: int = 8
    first_s: float = 0.1
    longest_s: float = 10.0
    total_s: float = 120.0


DEFAULT_RETRIES = Retries()


class Budget:
    """What is left of the attempts and the time of one call.

    Waits grow exponentially with full jitter ("Exponential Backoff And Jitter", Brooker 2015), and are never
    shorter than what the service asked for.
    """

    def __init__(
        self,
        retries: Retries,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._retries = retries
        self._clock = clock
        self._sleep = sleep
        self._dice = dice
        self._deadline = clock() + retries.total_s
        self._attempts = 1

    def wait(self, retry_after_s: float | None) -> bool:
        """Wait before the next attempt; False, at once, where none is left within the bounds."""
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
        return ceiling_s * self._dice()
