"""Bounded concurrency, deadlines, backoff and cooperative yielding for coroutines.

All deadlines share one timer of the event loop. `asyncio.timeout_at` sets and cancels a timer for each, which takes a
tenth of the time of a short request.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

SLICE_S = 0.001
"""How long a computation may occupy the event loop before other tasks run."""

PIECE_OPERATIONS = 1000
PIECE_BYTES = 3 * 2**15
"""How many operations, and how many bytes of their values, are processed before other tasks may run.

The C library maps larger buffers, from 128 KiB, in memory anew for each use. That takes longer than processing them.
"""

Item = TypeVar("Item")
Result = TypeVar("Result")

Pieces: TypeAlias = Generator[None, None, Result]
"""Work that awaits nothing, as a generator: it yields between its pieces and returns the result."""


async def gather_bounded(coroutines: Sequence[Coroutine[Any, Any, Result]], concurrency_max: int) -> list[Result]:
    """Run at most `concurrency_max` coroutines concurrently, and return their results in the same order.

    If one raises an exception or the caller is cancelled, the others are cancelled.
    """
    if len(coroutines) < 2:
        return [await coroutine for coroutine in coroutines]
    results: dict[int, Result] = {}
    remaining = iter(enumerate(coroutines))

    async def worker() -> None:
        for index, coroutine in remaining:
            results[index] = await coroutine

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency_max, len(coroutines))):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        for coroutine in coroutines:
            coroutine.close()
    return [results[index] for index in range(len(coroutines))]


def chunks_of(
    items: Sequence[Item], count_max: int, bytes_max: int | None = None, size: Callable[[Item], int] = lambda item: 0
) -> Iterator[Sequence[Item]]:
    """Split items, in order, into chunks of at most `count_max` items and `bytes_max` bytes.

    `size` returns the size of an item in bytes. Every chunk contains at least one item, even one that is too large.
    """
    if len(items) <= count_max and (bytes_max is None or sum(map(size, items)) <= bytes_max):
        yield from [items] if items else []
        return
    if bytes_max is None:
        yield from (items[start : start + count_max] for start in range(0, len(items), count_max))
        return
    start, chunk_bytes = 0, 0
    for index, item in enumerate(items):
        item_bytes = size(item)
        if index > start and (index - start == count_max or chunk_bytes + item_bytes > bytes_max):
            yield items[start:index]
            start, chunk_bytes = index, 0
        chunk_bytes += item_bytes
    if items:
        yield items[start:]


class Yielder:
    """Lets other tasks run whenever a long computation that awaits nothing has used a slice of the event loop."""

    def __init__(self) -> None:
        self._yield_at = time.monotonic() + SLICE_S

    @property
    def due(self) -> bool:
        """Whether `SLICE_S` has passed since the last yield. Testing it first is faster than `maybe_yield`."""
        return time.monotonic() >= self._yield_at

    async def maybe_yield(self) -> None:
        """Let other tasks run if `SLICE_S` has passed since the last yield. Otherwise return immediately."""
        if self.due:
            await asyncio.sleep(0)
            self._yield_at = time.monotonic() + SLICE_S


class Started(Generic[Result]):
    """A coroutine that waits for something after its first step. `awaited` is what that step returned."""

    def __init__(self, coroutine: Coroutine[Any, Any, Result] | Generator[Any, Any, Result], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, Result]:
        """Wait, then continue as `await` does (PEP 380)."""
        coroutine, awaited = self._coroutine, self._awaited
        try:
            while True:
                try:
                    value = yield awaited
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as error:  # noqa: BLE001  # passed on to the coroutine, which may handle it
                    awaited = coroutine.throw(error)
                else:
                    awaited = coroutine.send(value)
        except StopIteration as finished:
            result: Result = finished.value
            return result


_DOUBLINGS_MAX = 64


def exponential_backoff_s(
    attempt: int, initial_s: float, limit_s: float, jitter: Callable[[], float] = lambda: 1.0
) -> float:
    """Return the pause before the next attempt, in seconds.

    The pause is `initial_s` for attempt 0, doubles with every attempt up to `limit_s`, and is multiplied by `jitter()`,
    a random number from 0 to 1 ("full jitter").
    """
    return min(limit_s, initial_s * 2.0 ** min(attempt, _DOUBLINGS_MAX)) * jitter()


TIMER_RESOLUTION_S = 0.001
"""Resolution of the event loop's timers: deadlines within this time count as passed."""


class Expiring(Protocol):
    """An object with a deadline, a time of `time.monotonic`."""

    until: float


Limited = TypeVar("Limited", bound=Expiring)


class Deadlines(Generic[Limited]):
    """Calls `expire` for each item that is still registered at its deadline."""

    def __init__(self, expire: Callable[[Limited], None]) -> None:
        self._expire = expire
        self._items: set[Limited] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._expires_at = math.inf  # uvloop has timers without `when` if they are due within a millisecond.

    def add(self, item: Limited) -> None:
        """Register an item."""
        self._items.add(item)
        if item.until < self._expires_at:
            self._set_timer(item.until)

    def remove(self, item: Limited) -> None:
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
