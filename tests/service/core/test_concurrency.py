"""Yielding to the event loop, and bounded concurrency."""

import asyncio
import threading

import pytest

from tableside.core.budget import THREADS_MAX, Budget, run_in_thread
from tableside.core.concurrency import gather_bounded
from tableside.core.errors import DeadlineExceeded


async def test_a_failure_cancels_the_others_and_is_raised_unchanged() -> None:
    cancelled = []

    async def waits(number: int) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await gather_bounded([waits(0), fails(), waits(2), waits(3)], 3)
    assert sorted(cancelled) == [0, 2]


async def test_a_few_threads_compute_at_a_time() -> None:
    ended, running, most = threading.Event(), list[int](), 0

    def work() -> int:
        nonlocal most
        running.append(threading.get_ident())
        most = max(most, len(running))
        ended.wait()
        running.pop()
        return threading.get_ident()

    tasks = [asyncio.create_task(run_in_thread(work)) for _ in range(THREADS_MAX + 2)]
    await asyncio.sleep(0.05)
    ended.set()
    assert threading.get_ident() not in await asyncio.gather(*tasks)
    assert most == THREADS_MAX


async def test_work_that_waits_for_a_thread_ends_at_its_deadline_and_is_not_started() -> None:
    ended, started = threading.Event(), list[str]()
    tasks = [asyncio.create_task(run_in_thread(lambda: ended.wait(5))) for _ in range(THREADS_MAX)]
    await asyncio.sleep(0.05)
    with pytest.raises(DeadlineExceeded):
        await run_in_thread(lambda: started.append("late"), Budget(asyncio.get_running_loop().time() + 0.05))
    ended.set()
    await asyncio.gather(*tasks)
    assert await run_in_thread(lambda: len(started)) == 0
