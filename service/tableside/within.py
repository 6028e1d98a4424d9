"""A bound on the time of work that often waits for nothing, at no cost where it does not.

A timer and what belongs to it take longer than a get from this process's memory does.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


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
