"""Work is limited in time as by a timer, and work that finishes without waiting sets no timer."""

import asyncio
import contextlib
from collections.abc import Callable
from time import monotonic

import pytest
import uvloop

from tableside.core.concurrency import Deadlines, run_until


def soon() -> float:
    return monotonic() + 0.05


async def test_work_that_waits_several_times_completes() -> None:
    async def waits() -> list[int]:
        values = []
        for number in range(3):
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            values.append(await asyncio.ensure_future(asyncio.sleep(0, number)))
        return values

    assert await run_until(waits(), monotonic() + 10) == [0, 1, 2]


async def test_work_that_exceeds_its_time_is_cancelled_and_can_clean_up() -> None:
    tidied = []

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            tidied.append(True)

    with pytest.raises(TimeoutError):
        await run_until(hangs(), soon())
    assert tidied == [True]
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]  # there is one


async def test_each_of_several_tasks_ends_at_its_own_deadline() -> None:
    started, ended = monotonic(), dict[int, float]()

    async def ends(number: int, after_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await run_until(asyncio.sleep(1), started + after_s)
        ended[number] = monotonic() - started

    await asyncio.gather(*(ends(number, after_s) for number, after_s in enumerate((0.3, 0.1, 0.2, 5))))
    assert [*ended] == [1, 2, 0, 3]
    assert ended[1] < 0.2 <= ended[2] + 0.001
    assert ended[3] >= 1


async def test_waiting_work_can_be_cancelled() -> None:
    seen = []

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.create_task(run_until(hangs(), monotonic() + 10))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_an_earlier_cancellation_takes_effect_at_the_first_wait() -> None:
    reached = []

    async def waits() -> None:
        reached.append("first step")
        await asyncio.sleep(0)
        reached.append("second step")

    async def asked() -> None:
        asyncio.current_task().cancel()  # type: ignore[union-attr]  # there is one
        await run_until(waits(), monotonic() + 10)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(asked())
    assert reached == ["first step"]


async def test_a_time_within_it_and_a_task_group_work() -> None:
    async def inner() -> str:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            one = group.create_task(asyncio.sleep(0.001, "one"))
        return one.result()

    assert await run_until(inner(), monotonic() + 10) == "one"


class Item:
    """An object with a deadline."""

    def __init__(self, until: float) -> None:
        self.until = until


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_deadline_that_has_passed_does_not_affect_a_later_one(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """A timer of uvloop that is due does not know its time."""

    async def main() -> None:
        expired = list[Item]()
        deadlines = Deadlines(expired.append)
        over, later = Item(monotonic()), Item(monotonic() + 30)
        for item in (over, later):
            deadlines.add(item)
        await asyncio.sleep(0.01)
        assert expired == [over]
        deadlines.remove(later)
        deadlines.stop()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
