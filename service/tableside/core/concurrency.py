"""Deadlines, bounded concurrency, backoff and cooperative yielding for coroutines."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from types import coroutine
from typing import Any, TypeAlias, TypeVar

RESOLUTION_S = 0.025
"""How much before its deadline a call may be ended."""

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
    sizes_bytes = [] if bytes_max is None else list(map(size, items))
    if len(items) <= count_max and (bytes_max is None or sum(sizes_bytes) <= bytes_max):
        yield from [items] if items else []
        return
    if bytes_max is None:
        yield from (items[start : start + count_max] for start in range(0, len(items), count_max))
        return
    start, chunk_bytes = 0, 0
    for index, item_bytes in enumerate(sizes_bytes):
        if index > start and (index - start == count_max or chunk_bytes + item_bytes > bytes_max):
            yield items[start:index]
            start, chunk_bytes = index, 0
        chunk_bytes += item_bytes
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


@coroutine
def resumed(
    started: Coroutine[Any, Any, Result] | Generator[Any, Any, Result], awaited: Any
) -> Generator[Any, Any, Result]:
    """Continue a coroutine after its first step, which returned `awaited`, as `await` does (PEP 380)."""
    try:
        while True:
            try:
                value = yield awaited
            except GeneratorExit:
                started.close()
                raise
            except BaseException as error:  # noqa: BLE001  # passed on to the coroutine, which may handle it
                awaited = started.throw(error)
            else:
                awaited = started.send(value)
    except StopIteration as finished:
        result: Result = finished.value
        return result


class _Call:
    """A call with a deadline: its task, and whether that was cancelled at the deadline."""

    __slots__ = ("expired", "task")

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self.task = task
        self.expired = False

    def expire(self) -> None:
        self.expired = self.task.cancel()


class Deadlines:
    """Ends calls at their deadlines. Those within `RESOLUTION_S` have one timer: a timer for each would take 1 us."""

    def __init__(self) -> None:
        self._calls: dict[float, set[_Call]] = {}

    async def run(self, coroutine: Coroutine[Any, Any, Result], until: float) -> Result:
        """Await a coroutine. Raise TimeoutError at the time `until` of `time.monotonic`, or `RESOLUTION_S` before.

        Its first step has no timeout: a read that waits for nothing is not registered.
        """
        try:
            awaited = coroutine.send(None)
        except StopIteration as finished:
            result: Result = finished.value
            return result
        # `get_running_loop` makes a system call. A future knows its loop.
        loop = asyncio.get_running_loop() if awaited is None else awaited.get_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        call, cancelling = _Call(task), task.cancelling()
        calls: set[_Call] = set()
        if until <= loop.time():
            loop.call_soon(call.expire)  # before the next step
        else:
            calls = self._until(until, loop)
            calls.add(call)
        try:
            return await resumed(coroutine, awaited)
        except asyncio.CancelledError as error:
            if call.expired and task.cancelling() <= cancelling + 1:
                raise TimeoutError from error
            raise
        finally:
            calls.discard(call)
            if call.expired:
                task.uncancel()

    def _until(self, until: float, loop: asyncio.AbstractEventLoop) -> set[_Call]:
        """Return the calls that a timer ends at about this time, none if it is infinite."""
        at = until if until == math.inf else math.floor(until / RESOLUTION_S) * RESOLUTION_S
        if (calls := self._calls.get(at)) is None:
            calls = self._calls[at] = set()
            if at < math.inf:
                loop.call_at(at, self._expire, at)
        return calls

    def _expire(self, at: float) -> None:
        for call in self._calls.pop(at):
            call.expire()


def exponential_backoff_s(
    attempt: int, initial_s: float, limit_s: float, jitter: Callable[[], float] = lambda: 1.0
) -> float:
    """Return the pause before the next attempt, in seconds.

    The pause is `initial_s` for attempt 0, doubles with every attempt up to `limit_s`, and is multiplied by `jitter()`,
    a random number from 0 to 1 ("full jitter").
    """
    return min(limit_s, initial_s * 2.0 ** min(attempt, 64)) * jitter()  # without an overflow
