"""The deadlines of calls."""

import asyncio
import math
import time

import pytest

from tableside.core.concurrency import RESOLUTION_S, Deadlines


async def test_a_call_that_is_late_already_is_cancelled_before_its_next_step() -> None:
    steps = []

    async def call() -> None:
        steps.append("first")
        await asyncio.sleep(0)
        steps.append("second")

    with pytest.raises(TimeoutError):
        await Deadlines().run(call(), time.monotonic())
    assert steps == ["first"]


async def test_a_cancellation_by_others_is_passed_on_although_the_deadline_is_over() -> None:
    running = asyncio.create_task(Deadlines().run(asyncio.sleep(60), time.monotonic() + 0.01))
    await asyncio.sleep(0)
    time.sleep(0.02 + RESOLUTION_S)  # noqa: ASYNC251  # The timer and the cancellation come in the same step of the loop.
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_the_deadline_of_an_inner_call_leaves_the_outer_one_running() -> None:
    deadlines = Deadlines()

    async def outer() -> str:
        with pytest.raises(TimeoutError):
            await deadlines.run(asyncio.sleep(60), time.monotonic() + 0.01)
        await asyncio.sleep(0)
        return "finished"

    assert await deadlines.run(outer(), math.inf) == "finished"


async def test_a_call_that_ignores_its_cancellation_returns_its_result() -> None:
    async def call() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "late"
        return "never"

    assert await Deadlines().run(call(), time.monotonic() + 0.01) == "late"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
