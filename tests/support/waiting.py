"""Wait in tests for an effect of another process or task."""

import asyncio
import time
from collections.abc import Callable

WAIT_MAX_S = 120.0
"""How long to wait for an effect that takes milliseconds on an idle machine. A busy machine does not reach it."""

LOOK_S = 0.05
LOOK_IN_LOOP_S = 0.01


def until(holds: Callable[[], bool], within_s: float = WAIT_MAX_S, otherwise: Callable[[], str] = str) -> None:
    """Return when the condition is true. Fail with the text of `otherwise` if it is not true in time."""
    ends = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends, f"the condition did not become true in time: {otherwise()}"
        time.sleep(LOOK_S)


async def eventually(holds: Callable[[], bool]) -> None:
    """Return when the condition is true, while other tasks run. Raise TimeoutError if it is not true in time."""
    async with asyncio.timeout(WAIT_MAX_S):
        while not holds():
            await asyncio.sleep(LOOK_IN_LOOP_S)
