"""Bounded concurrency, timeouts and cooperative yielding for coroutines."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from .errors import TableError
from .slices import SLICE_S, next_slice, run_apart, run_in_thread

FIRST_PIECE_BYTES = 2**13
PIECE_BYTES_MIN = 2**9
PIECE_CHANGE_MAX = 4
"""The factor by which the size of a piece changes at most from one to the next."""

Item = TypeVar("Item")
Result = TypeVar("Result")

Pieces: TypeAlias = Generator[None, None, Result]
"""Work that awaits nothing, as a generator: it yields between its pieces and returns the result."""

LongPieces: TypeAlias = Generator[Callable[[], Any] | None, Any, Result]
"""Like `Pieces`, but the generator yields a piece that cannot be divided and takes long as a function to call.

The function must be picklable or `InThread`. The generator receives its result, or the TableError that it raised.
"""


class InThread(partial[Any]):
    """A long piece for a thread of this process, because it releases the interpreter's lock."""


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


class PieceSize:
    """How many bytes to process in one piece of a long computation, so that it takes about half a slice.

    The time for a byte is known only afterwards: it varies a hundredfold between a long string and empty objects.
    """

    def __init__(self, bytes_max: int, clock: Callable[[], float] = time.perf_counter) -> None:
        """Start with a small piece. No piece has more than `bytes_max` bytes. `clock` returns seconds."""
        self.size_bytes = min(bytes_max, FIRST_PIECE_BYTES)
        self._bytes_max = bytes_max
        self._clock = clock

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measure the piece that is processed within the context, and adapt the size of the next one."""
        started = self._clock()
        yield
        factor = SLICE_S / 2 / max(self._clock() - started, 1e-9)
        adapted = int(self.size_bytes * min(max(factor, 1 / PIECE_CHANGE_MAX), PIECE_CHANGE_MAX))
        self.size_bytes = min(max(adapted, PIECE_BYTES_MIN), self._bytes_max)


class Yielder:
    """Waits for another slice of the event loop whenever a long computation that awaits nothing has used one."""

    def __init__(self) -> None:
        self._yield_at = time.monotonic() + SLICE_S

    @property
    def due(self) -> bool:
        """Whether `SLICE_S` has passed since the last yield. Testing it first is faster than `maybe_yield`."""
        return time.monotonic() >= self._yield_at

    async def maybe_yield(self) -> None:
        """Let other tasks run if `SLICE_S` has passed since the last yield. Otherwise return immediately."""
        if self.due:
            await next_slice()
            self._yield_at = time.monotonic() + SLICE_S

    def is_past(self, deadline: float) -> bool:
        """Return whether a time of `time.monotonic` has passed."""
        return time.monotonic() >= deadline


async def in_pieces(work: LongPieces[Result], until: float = math.inf) -> Result:
    """Run work that yields between its pieces, and let other tasks run every `SLICE_S`. Return its result.

    Long pieces run apart from the event loop. One that has not finished by the time `until` is DeadlineExceeded.
    """
    yield_at = time.monotonic() + SLICE_S
    proceed = following = partial(next, work)
    while True:
        try:
            long_piece = proceed()
        except StopIteration as finished:
            returned: Result = finished.value
            return returned
        proceed = following
        if long_piece is not None:
            try:
                in_thread = isinstance(long_piece, InThread)
                result = await (run_in_thread(long_piece, until) if in_thread else run_apart(long_piece, until))
                proceed = partial(work.send, result)
            except TableError as error:
                proceed = partial(work.throw, error)
        elif time.monotonic() >= yield_at:
            await next_slice()
        else:
            continue
        yield_at = time.monotonic() + SLICE_S


def finish(work: Pieces[Result]) -> Result:
    """Do all pieces of some work without a break, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as finished:
            result: Result = finished.value
            return result


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
