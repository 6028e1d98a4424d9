"""Waiting in tests for what another process does in its own time."""

import time
from collections.abc import Callable

LOOK_S = 0.05


def until(holds: Callable[[], bool], within_s: float = 60.0, otherwise: Callable[[], str] = str) -> None:
    """Return when it holds. Fail, with what `otherwise` says then, if it does not come about in time."""
    ends = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends, f"it did not come about: {otherwise()}"
        time.sleep(LOOK_S)
