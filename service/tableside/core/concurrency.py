"""Work cut into parts and done side by side, a bounded number at once; and turns. Knows nothing of what the work is."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from typing import Any, Generic, TypeVar

TURN_S = 0.01
"""How long work that awaits nothing may go on before others have their turn."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def parts(
    items: Sequence[Item], count_max: int, bytes_max: int | None = None, size: Callable[[Item], int] = lambda item: 0
) -> Iterator[Sequence[Item]]:
    """Cut items, in order, into parts of at most `count_max` items and `bytes_max` bytes; each has one at least."""
    if bytes_max is None:
        yield from (items[start : start + count_max] for start in range(0, len(items), count_max))
        return
    start, size_bytes = 0, 0
    for index, item in enumerate(items):
        own_bytes = size(item)
        if index > start and (index - start == count_max or size_bytes + own_bytes > bytes_max):
            yield items[start:index]
            start, size_bytes = index, 0
        size_bytes += own_bytes
    if items:
        yield items[start:]


async def together(works: Sequence[Coroutine[Any, Any, Result]], at_once: int) -> list[Result]:
    """Do works side by side, at most `at_once` of them, and return their results in the same order.

    An exception of one, or cancellation, cancels the rest.
    """
    if len(works) < 2:
        return [await work for work in works]
    results: dict[int, Result] = {}
    waiting = iter(enumerate(works))

    async def worker() -> None:
        for index, work in waiting:
            results[index] = await work

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(works))):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        for work in works:
            work.close()
    return [results[index] for index in range(len(works))]


class Turn:
    """Of work in many steps that await nothing: lets others have their turn after every few milliseconds."""

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._over_at = self._time() + TURN_S

    async def passes(self) -> None:
        """Go on at once, or when others have had their turn."""
        if self._time() >= self._over_at:
            await asyncio.sleep(0)
            self._over_at = self._time() + TURN_S


async def within(work: Coroutine[Any, Any, Result], ends_at: float) -> Result:
    """Return what the work returns; raise TimeoutError if it has not by then, a time of the running loop's clock.

    Its first step is done at once, and bounded by nothing; only if it waits then, a timer is set.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result
    async with asyncio.timeout_at(ends_at):
        return await _Rest(work, waits_for)


class _Rest(Generic[Result]):
    """Work that waits for something after its first step."""

    def __init__(self, work: Coroutine[Any, Any, Result], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Result]:
        """Wait for it, then go on as any coroutine that is awaited."""
        work, waits_for = self._work, self._waits_for
        try:
            while True:
                try:
                    value = yield waits_for
                except GeneratorExit:
                    work.close()
                    raise
                except BaseException as error:  # noqa: BLE001  # the work's, to do with as it likes
                    waits_for = work.throw(error)
                else:
                    waits_for = work.send(value)
        except StopIteration as done:
            result: Result = done.value
            return result
