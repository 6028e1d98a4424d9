"""Exponential backoff between attempts."""

from collections.abc import Callable

_DOUBLINGS_MAX = 64


def exponential_backoff_s(
    attempt: int, initial_s: float, limit_s: float, jitter: Callable[[], float] = lambda: 1.0
) -> float:
    """Return the pause before the next attempt, in seconds.

    The pause is `initial_s` for attempt 0, doubles with every attempt up to `limit_s`, and is multiplied by `jitter()`,
    a random number from 0 to 1 ("full jitter").
    """
    return min(limit_s, initial_s * 2.0 ** min(attempt, _DOUBLINGS_MAX)) * jitter()
