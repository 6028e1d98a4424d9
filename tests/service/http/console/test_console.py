"""The readings of metrics: how often they are taken, and the change that pages show."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from support.virtual_time import in_virtual_time, now
from tableside.http.console.console import EVERY_S, SHARE_MAX, Console, Reading


def at_cost(cost_s: float, times: list[float]) -> Callable[[], Awaitable[tuple[Reading, float]]]:
    async def reading() -> tuple[Reading, float]:
        times.append(now())
        return Reading({"t": {"reads": len(times) * 10.0}}, {}, {}), cost_s

    return reading


@asynccontextmanager
async def running(console: Console) -> AsyncIterator[None]:
    task = asyncio.create_task(console.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@in_virtual_time
async def test_pages_show_the_change_of_the_last_fifteen_seconds() -> None:
    async with running(console := Console(at_cost(0.0, []))):
        await asyncio.sleep(EVERY_S / 2)
        assert console.now("t") is None
        await asyncio.sleep(20 * EVERY_S)
        change = console.now("t")
        assert change is not None
        assert (change.seconds, change["reads"]) == (3 * EVERY_S, 30)
        unknown = console.now("unknown")
        assert unknown is not None
        assert unknown.operations == 0


@in_virtual_time
async def test_expensive_readings_are_taken_less_often() -> None:
    times: list[float] = []
    async with running(Console(at_cost(0.3, times))):
        await asyncio.sleep(600)
    assert len(times) * 0.3 <= 600 * SHARE_MAX + 0.3


@in_virtual_time
async def test_a_reading_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    asked = 0

    async def reading() -> tuple[Reading, float]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ValueError
        return Reading({}, {}, {"requests": 1.0}), 0.0

    async with running(console := Console(reading)):
        await asyncio.sleep(EVERY_S + 1)
    assert console.in_flight == {"requests": 1.0}
    assert "cannot be read for the console" in caplog.text
