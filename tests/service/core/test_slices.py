"""Long computations share the event loop: one slice at a time, with turns of the loop between them."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from tableside.core import DeadlineExceeded
from tableside.core.slices import (
    FIRST_IN_ROW_MAX,
    FIRST_SLICES,
    FREE_TURNS,
    THREADS_MAX,
    next_slice,
    run_in_thread,
)


async def compute(name: str, slices: int, order: list[str]) -> None:
    for _ in range(slices):
        await next_slice()
        order.append(name)


def request(order: list[str], turns: int = FREE_TURNS) -> None:
    """Note the end of work that takes some turns of the loop, as a short request does."""
    if turns == 0:
        order.append("request")
    else:
        asyncio.get_running_loop().call_soon(request, order, turns - 1)


async def test_a_short_request_waits_for_one_slice_however_many_computations_there_are() -> None:
    order: list[str] = []
    computations = [asyncio.create_task(compute("slice", 3, order)) for _ in range(20)]
    while not order:
        await asyncio.sleep(0)
    request(order)
    await asyncio.gather(*computations)
    assert order.index("request") <= 2
    assert order.count("slice") == 60


async def test_computations_take_turns() -> None:
    order: list[str] = []
    await asyncio.gather(compute("a", 3, order), compute("b", 3, order))
    assert order == ["a", "b"] * 3


async def test_the_first_slices_of_a_request_come_before_later_ones_of_others() -> None:
    order: list[str] = []
    long = [asyncio.create_task(compute("long", 20, order)) for _ in range(5)]
    while len(order) < 5 * FIRST_SLICES:
        await asyncio.sleep(0)
    await compute("new", FIRST_SLICES, order)
    assert order[5 * FIRST_SLICES :].count("long") <= FIRST_SLICES, "at most one slice was given before each"
    await asyncio.gather(*long)


async def test_later_slices_have_a_turn_between_many_first_ones() -> None:
    order: list[str] = []
    long = asyncio.create_task(compute("long", FIRST_SLICES + 5, order))
    while len(order) < FIRST_SLICES:
        await asyncio.sleep(0)
    new = [asyncio.create_task(compute("new", 1, order)) for _ in range(10 * FIRST_IN_ROW_MAX)]
    await asyncio.gather(long, *new)
    later = order[FIRST_SLICES:]
    assert [at for at, name in enumerate(later) if name == "long"] == [
        at * (FIRST_IN_ROW_MAX + 1) + later.index("long") for at in range(5)
    ]


async def test_a_computation_that_was_cancelled_gets_no_slice() -> None:
    order: list[str] = []
    cancelled = asyncio.create_task(compute("cancelled", 1, order))
    other = asyncio.create_task(compute("other", 1, order))
    await asyncio.sleep(0)
    cancelled.cancel()
    await other
    assert order == ["other"]


async def start(work: Callable[[], str]) -> "asyncio.Task[str]":
    """Return a computation that runs in a thread now."""
    started = threading.Event()

    def do() -> str:
        started.set()
        return work()

    thread = asyncio.create_task(run_in_thread(do))
    while not started.is_set():
        await asyncio.sleep(0)
    return thread


async def test_only_first_slices_begin_while_a_thread_computes() -> None:
    order: list[str] = []
    end = threading.Event()
    thread = await start(lambda: str(end.wait()))
    other = asyncio.create_task(compute("slice", FIRST_SLICES + 1, order))
    for _ in range(10 * FREE_TURNS * FIRST_SLICES):
        await asyncio.sleep(0)
    end.set()
    assert len(order) == FIRST_SLICES
    assert await thread == "True"
    await other
    assert len(order) == FIRST_SLICES + 1


async def test_a_thread_of_a_cancelled_caller_is_awaited() -> None:
    order: list[str] = []
    end = threading.Event()
    thread = await start(lambda: str(end.wait()))
    thread.cancel()
    with pytest.raises(asyncio.CancelledError):
        await thread
    other = asyncio.create_task(compute("slice", FIRST_SLICES + 1, order))
    for _ in range(10 * FREE_TURNS * FIRST_SLICES):
        await asyncio.sleep(0)
    end.set()
    assert len(order) == FIRST_SLICES
    await other


async def test_a_limited_number_of_threads_computes_at_a_time() -> None:
    end, ended = threading.Event(), list[str]()
    threads = [await start(lambda: str(end.wait())) for _ in range(THREADS_MAX)]
    try:
        cancelled, waiting = (asyncio.create_task(run_in_thread(lambda: ended.append("waited"))) for _ in range(2))
        with pytest.raises(DeadlineExceeded):
            await run_in_thread(lambda: ended.append("late"), asyncio.get_running_loop().time() + 0.05)
        cancelled.cancel()
        assert ended == []
    finally:
        end.set()
    await asyncio.gather(waiting, *threads)
    assert ended == ["waited"]


async def test_an_error_in_a_thread_reaches_the_caller_and_ends_its_slice() -> None:
    order: list[str] = []

    def fails() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await run_in_thread(fails)
    await compute("slice", 1, order)
    assert order == ["slice"]
