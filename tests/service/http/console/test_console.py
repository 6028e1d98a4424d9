"""The rate at which the console samples metrics: high while a page is open, and limited in its share of the time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from support.virtual_time import in_virtual_time, now
from tableside.http.console.console import (
    EVERY_S,
    SHARE_MAX,
    UNWATCHED_EVERY_S,
    WATCHED_S,
    Console,
)
from tableside.http.console.counts import Counts, Reading


def at_cost(cost_s: float, times: list[float]) -> Callable[[], Awaitable[tuple[Reading, float]]]:
    async def reading() -> tuple[Reading, float]:
        times.append(now())
        return Reading({}, Counts(), {}), cost_s

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
async def test_it_samples_rarely_without_open_pages() -> None:
    times: list[float] = []
    async with running(Console(at_cost(0.0, times))):
        await asyncio.sleep(10 * UNWATCHED_EVERY_S + 1)
    assert [after - before for before, after in pairwise(times)] == [UNWATCHED_EVERY_S] * 10


@in_virtual_time
async def test_it_samples_often_while_a_page_is_open_and_shortly_after() -> None:
    times: list[float] = []
    console = Console(at_cost(0.0, times))
    async with running(console):
        await asyncio.sleep(5)
        console.mark_viewed()
        looked = now()
        await asyncio.sleep(WATCHED_S * 2)
    often = [at for at in times if looked <= at < looked + WATCHED_S]
    assert often[0] == looked
    assert len(often) == WATCHED_S / EVERY_S
    assert times[-1] - times[-2] == UNWATCHED_EVERY_S


@in_virtual_time
async def test_expensive_samples_are_taken_less_often() -> None:
    times: list[float] = []
    console = Console(at_cost(0.3, times))
    async with running(console):
        for _ in range(600):
            console.mark_viewed()
            await asyncio.sleep(1)
    assert len(times) * 0.3 <= 600 * SHARE_MAX + 0.3


@in_virtual_time
async def test_a_reading_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    asked = 0

    async def reading() -> tuple[Reading, float]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ValueError
        return Reading({}, Counts(), {}), 0.0

    async with running(console := Console(reading)):
        await asyncio.sleep(UNWATCHED_EVERY_S + 1)
    assert len(console.history) == 1
    assert "cannot be read for the console" in caplog.text
