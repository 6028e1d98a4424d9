"""Wait in tests for an effect of another process."""

import time
from collections.abc import Callable

LOOK_S = 0.05


def until(holds: Callable[[], bool], within_s: float = 60.0, otherwise: Callable[[], str] = str) -> None:
    """Return when the condition is true. Fail with the text of `otherwise` if it is not true in time."""
    ends = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends, f"the condition did not become true in time: {otherwise()}"
        time.sleep(LOOK_S)
