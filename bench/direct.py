"""Run prepared batches with a store's drivers, as fast as possible, on an event loop in this process."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self, TypeAlias

import uvloop

from .cases import PLAIN, Case, Op
from .drivers import Batch, Driver

Rate: TypeAlias = Callable[[int, float], float]
"""Measures operations per second, for a number of concurrent requests and a duration in seconds."""


class Direct:
    """The drivers, connected."""

    def __init__(self, drivers: Mapping[str, type[Driver]], where: str) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._drivers = {name: self._runner.run(driver.open(where)) for name, driver in drivers.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self._drivers.values():
            self._runner.run(driver.close())
        self._runner.close()

    def fill(self, batches: Sequence[Sequence[str]], case: Case = PLAIN) -> None:
        """Write the records."""
        for driver in self._drivers.values():
            for batch in batches:
                self._runner.run(driver.put(driver.ready(batch, case)))

    def rates(self, op: Op, batches: Sequence[Sequence[str]], case: Case = PLAIN) -> dict[str, Rate]:
        """Return a function for each driver that measures batches over these keys."""
        return {name: self._rate(driver, op, batches, case) for name, driver in self._drivers.items()}

    def _rate(self, driver: Driver, op: Op, batches: Sequence[Sequence[str]], case: Case) -> Rate:
        ready, size = [driver.ready(batch, case) for batch in batches], len(batches[0])

        def rate(at_once: int, seconds: float) -> float:
            return size * self._runner.run(_repeated(driver, op, ready, at_once, seconds))

        return rate


async def _repeated(driver: Driver, op: Op, batches: Sequence[Batch], at_once: int, seconds: float) -> float:
    """Return the number of batches per second with this many coroutines. Each executes at least one batch."""
    run = getattr(driver, op)
    started, count = time.perf_counter(), 0

    async def work(index: int) -> None:
        nonlocal count
        first = position = index * len(batches) // at_once
        while position == first or time.perf_counter() - started < seconds:
            await run(batches[position % len(batches)])
            position += 1
            count += 1

    async with asyncio.TaskGroup() as tasks:
        for index in range(at_once):
            tasks.create_task(work(index))
    return count / (time.perf_counter() - started)
