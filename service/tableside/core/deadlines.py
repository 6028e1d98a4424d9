"""Deadlines of many tasks and other objects, with one timer of the event loop for all.

`asyncio.timeout_at` sets and cancels a timer for each, which takes a tenth of the time of a short request.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from .concurrency import Started

TIMER_RESOLUTION_S = 0.001
"""Resolution of the event loop's timers: deadlines within this time count as passed."""

Result = TypeVar("Result")


class Expiring(Protocol):
    """An object with a deadline, a time of `time.monotonic`."""

    until: float


Item = TypeVar("Item", bound=Expiring)


class Deadlines(Generic[Item]):
    """Calls `expire` for each item that is still registered at its deadline."""

    def __init__(self, expire: Callable[[Item], None]) -> None:
        self._expire = expire
        self._items: set[Item] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._expires_at = math.inf  # uvloop has timers without `when` if they are due within a millisecond.

    def add(self, item: Item) -> None:
        """Register an item."""
        self._items.add(item)
        if item.until < self._expires_at:
            self._set_timer(item.until)

    def remove(self, item: Item) -> None:
        """Unregister an item. The timer does not change: when it fires, it is set for the items registered by then."""
        self._items.discard(item)

    def stop(self) -> None:
        """Cancel the timer if no item is registered."""
        if not self._items:
            self._set_timer(math.inf)

    def _set_timer(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(until, self._expire_due) if until < math.inf else None
        self._expires_at = until

    def _expire_due(self) -> None:
        self._timer, self._expires_at = None, math.inf
        now = time.monotonic()
        for item in [each for each in self._items if each.until <= now + TIMER_RESOLUTION_S]:
            self._items.discard(item)
            self._expire(item)
        if self._items:
            self._set_timer(min(item.until for item in self._items))


class _LimitedTask:
    __slots__ = ("expired", "task", "until")

    def __init__(self, task: "asyncio.Task[Any]", until: float) -> None:
        self.task = task
        self.until = until
        self.expired = False

    def expire(self) -> None:
        self.expired = True
        self.task.cancel()


async def run_until(coroutine: Coroutine[Any, Any, Result], deadline: float) -> Result:
    """Run a coroutine. Raise TimeoutError if it has not finished by `deadline`, a time of `time.monotonic`.

    Its first step runs immediately and is not limited in time. The task is registered only if the coroutine waits.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as finished:
        result: Result = finished.value
        return result
    # `get_running_loop` makes a system call. A future, which the coroutine usually waits for, knows its loop.
    loop = asyncio.get_running_loop() if awaited is None else awaited.get_loop()
    task = asyncio.current_task(loop)
    assert task is not None
    if (deadlines := _OF_TASKS.get(loop)) is None:
        deadlines = _OF_TASKS[loop] = Deadlines(_LimitedTask.expire)
    limited = _LimitedTask(task, deadline)
    deadlines.add(limited)
    try:
        return await Started(coroutine, awaited)
    except asyncio.CancelledError:
        if limited.expired and task.cancelling() == 1:
            raise TimeoutError from None
        raise
    finally:
        deadlines.remove(limited)
        if limited.expired:
            task.uncancel()


_OF_TASKS: WeakKeyDictionary[asyncio.AbstractEventLoop, Deadlines[_LimitedTask]] = WeakKeyDictionary()
"""The deadlines of tasks by their event loops."""
