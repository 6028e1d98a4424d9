"""Divides the time of the event loop between long computations, so that a short request waits for one slice at most.

A computation that awaits nothing else awaits `next_slice` after each slice. One computation at a time gets a
slice, in turn. Between two slices, the loop handles everything else that is ready.

The first slices of a request come before the later slices of others, and also while a thread computes for another
request. A batch of 1,000 small records therefore does not wait for batches that take seconds.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from .errors import DeadlineExceeded
from .helper_process import HelperFailed, HelperProcess

SLICE_S = 0.0005
"""How long a computation may occupy the event loop before it awaits its next slice."""

FREE_TURNS = 3
"""How many turns of the loop pass between two slices. A short request needs so many: it is received, started, sent."""

FIRST_SLICES = 8
"""How many slices of a request come before the later slices of others."""

FIRST_IN_ROW_MAX = 4
"""After so many first slices in a row, a later one has its turn, if one is waiting."""

THREADS_MAX = 2
"""How many threads compute at a time. The result of each can be as large as a body."""

Result = TypeVar("Result")


class SliceScheduler:
    """The computations of one event loop that wait for a slice, in the order of their arrival.

    `helper` is the process that long computations may use, if there is one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.helper: HelperProcess | None = None
        self._call_soon = loop.call_soon
        self._create_future = loop.create_future
        self._first: deque[asyncio.Future[None]] = deque()
        self._later: deque[asyncio.Future[None]] = deque()
        self._slices: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self._in_row = 0
        self._threads = 0
        self._free_threads = asyncio.Semaphore(THREADS_MAX)
        self._scheduled = False

    def next_slice(self) -> "asyncio.Future[None]":
        """Return a future that completes when the caller may compute again."""
        slice_, task, used = self._create_future(), asyncio.current_task(), 0
        if task is not None:
            used = self._slices.get(task, 0)
            self._slices[task] = used + 1
        (self._first if used < FIRST_SLICES else self._later).append(slice_)
        self._schedule()
        return slice_

    async def run_in_thread(self, work: Callable[[], Result], until: float) -> Result:
        """Call a function in a thread, while only first slices of this scheduler run, and return its result.

        The interpreter takes its lock from the thread when the loop needs it, unless the thread is in a long call of C.
        """
        async with _deadline(until):
            await self.next_slice()
            await self._free_threads.acquire()
            running = asyncio.get_running_loop().run_in_executor(None, work)
            self._threads += 1
            running.add_done_callback(self._on_thread_end)
            return await asyncio.shield(running)

    async def run_apart(self, work: Callable[[], Result], until: float) -> Result:
        """Call a picklable function in the helper process, or in a thread if it is not ready. Return its result."""
        if self.helper is not None:
            if self.helper.ready:
                with suppress(HelperFailed):
                    async with _deadline(until):
                        return await self.helper.run(work)
            self.helper.start_soon()
        return await self.run_in_thread(work, until)

    def _on_thread_end(self, _: "asyncio.Future[Result]") -> None:
        self._threads -= 1
        self._free_threads.release()
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and (self._first or self._can_run_later):
            self._scheduled = True
            self._call_soon(self._pass, FREE_TURNS)

    def _pass(self, free_turns: int) -> None:
        """Start a slice after some turns of the loop, and schedule the one after it."""
        if free_turns:
            self._call_soon(self._pass, free_turns - 1)
            return
        self._scheduled = False
        while self._first or self._can_run_later:
            is_first = bool(self._first) and not (self._in_row >= FIRST_IN_ROW_MAX and self._can_run_later)
            slice_ = (self._first if is_first else self._later).popleft()
            if not slice_.done():
                self._in_row = self._in_row + 1 if is_first else 0
                slice_.set_result(None)
                break
        self._schedule()

    @property
    def _can_run_later(self) -> bool:
        return bool(self._later) and not self._threads


def next_slice() -> "asyncio.Future[None]":
    """Return a future that completes when the running loop has another slice for the caller."""
    return _running().next_slice()


async def run_in_thread(work: Callable[[], Result], until: float = math.inf) -> Result:
    """Call a function in a thread, while no later slice of the running loop runs. Return its result.

    At most `THREADS_MAX` threads of the loop run at a time. Raise DeadlineExceeded at the time `until` of
    `time.monotonic`. Work that has begun then continues, and its result is discarded.
    """
    return await _running().run_in_thread(work, until)


async def run_apart(work: Callable[[], Result], until: float = math.inf) -> Result:
    """Call a picklable function in the helper process of the running loop, or in a thread. Return its result.

    The parameters and the result are copied. An error must be a TableError. Raise DeadlineExceeded at the time `until`
    of `time.monotonic`. Work that has begun then continues, and its result is discarded.
    """
    return await _running().run_apart(work, until)


def use_helper(helper: HelperProcess | None) -> None:
    """Let `run_apart` use a helper process in the running loop, or none from now on."""
    _running().helper = helper


@asynccontextmanager
async def _deadline(until: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(None if until == math.inf else until):
            yield
    except TimeoutError:
        raise DeadlineExceeded("the deadline was over before a long text was parsed") from None


_SCHEDULERS: WeakKeyDictionary[asyncio.AbstractEventLoop, SliceScheduler] = WeakKeyDictionary()
"""By their event loops. Only one thread uses each loop."""


def _running() -> SliceScheduler:
    loop = asyncio.get_running_loop()
    if (scheduler := _SCHEDULERS.get(loop)) is None:
        scheduler = _SCHEDULERS[loop] = SliceScheduler(loop)
    return scheduler
