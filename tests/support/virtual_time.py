"""An event loop whose clock moves only when no callback is ready, and then straight to the next timer.

Tests of deadlines, pauses and rates take no time and always see the same times. `time.monotonic` returns the time of
this loop, so a computation never waits for a slice because the machine is slow. If all tasks wait and no timer is set,
the test fails immediately instead of hanging.
"""

import asyncio
import functools
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class _Selector(selectors.DefaultSelector):
    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready: list[Any] = super().select(0)
        if not ready:
            assert timeout is not None, "all tasks wait, and no timer or event can wake them"
            self.passed_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that starts at 1,000 s. `time()` is exact to rounding."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return 1000.0 + self._virtual.passed_s


def in_virtual_time(
    test: Callable[Parameters, Coroutine[Any, Any, Result]],
) -> Callable[Parameters, Result]:
    """Run a test on a new loop with a virtual clock."""

    @functools.wraps(test)
    def called(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        return run(test(*arguments, **named))

    return called


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on a new loop with a virtual clock."""
    with patch.object(time, "monotonic", _monotonic), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def now() -> float:
    return asyncio.get_running_loop().time()


_real_monotonic = time.monotonic


def _monotonic() -> float:
    """Return the time of the running loop. In a thread without a loop it is the real time."""
    try:
        return now()
    except RuntimeError:
        return _real_monotonic()
