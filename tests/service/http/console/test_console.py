"""The samples of metrics: their rate, which is high while a page is open, and those of the last minutes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from support.virtual_time import in_virtual_time, now
from tableside.http.console.console import (
    EVERY_S,
    ROWS_MAX,
    SAMPLES_MAX,
    SHARE_MAX,
    UNWATCHED_EVERY_S,
    WATCHED_S,
    Console,
    Counts,
    History,
    Reading,
)


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


# The samples of the last minutes


def reading_of(**tables: float) -> Reading:
    """Return a reading with this number of reads for each table."""
    found = Reading({}, Counts(), {})
    for name, reads in tables.items():
        row = found.tables[name] = Counts()
        row["reads"] = reads
        found.total["reads"] = found.total.get("reads", 0.0) + reads
    return found


def filled(samples: int, every_s: float = 2.0) -> History:
    history = History()
    for number in range(samples):
        history.add(number * every_s, reading_of(t=number * 10.0))
    return history


def test_the_number_of_samples_is_limited() -> None:
    assert len(filled(1000, every_s=0.1)) == SAMPLES_MAX


def test_a_thousand_tables_take_no_more_memory_than_a_few() -> None:
    history = History()
    for at in range(200):
        history.add(at, reading_of(**{f"t{number}": float(at) for number in range(1000)}))
    assert len(history) == ROWS_MAX / 1000
