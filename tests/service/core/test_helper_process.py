"""The helper process computes what its callers give it, and threads replace it while it is not there."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tableside.core import DeadlineExceeded, InvalidOperation, values
from tableside.core.concurrency import InThread, LongPieces, in_pieces
from tableside.core.helper_process import RESTART_PAUSE_S, HelperFailed, HelperProcess
from tableside.core.json_errors import NotJson
from tableside.core.keys import KeySchema
from tableside.core.long_texts import operation_members
from tableside.core.shortest_first import ShortestFirst
from tableside.core.slices import run_apart, use_helper

SCHEMA = KeySchema()
START_MAX_S = 30.0


async def ready(helper: HelperProcess) -> int:
    """Start a helper, and return its process id."""
    helper.start_soon()
    await wait_until(lambda: helper.ready)
    assert helper.pid is not None
    return helper.pid


async def wait_until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(START_MAX_S):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
async def helper() -> AsyncIterator[HelperProcess]:
    """A helper that runs."""
    started = HelperProcess()
    await ready(started)
    yield started
    await started.close()


async def test_work_is_done_in_another_process(helper: HelperProcess) -> None:
    assert await helper.run(os.getpid) == helper.pid != os.getpid()


async def test_a_long_piece_may_ask_for_a_thread_of_this_process(helper: HelperProcess) -> None:
    def work() -> LongPieces[tuple[int, int]]:
        here = yield InThread(os.getpid)
        there = yield os.getpid
        return here, there

    use_helper(helper)
    assert await in_pieces(work()) == (os.getpid(), helper.pid)


async def test_errors_of_operations_are_raised_with_all_their_members(helper: HelperProcess) -> None:
    with pytest.raises(NotJson) as found:
        await helper.run(partial(values.parse, b'{"a":}'))
    assert (found.value.detail, found.value.position) == (
        "not JSON at byte 5: unexpected character, expected a JSON value",
        5,
    )
    with pytest.raises(InvalidOperation, match="an operation must be an object"):
        await helper.run(partial(operation_members, b"[]", SCHEMA))


async def test_work_that_fails_or_cannot_be_sent_is_left_to_the_caller(helper: HelperProcess) -> None:
    with pytest.raises(HelperFailed, match="ZeroDivisionError"):
        await helper.run(partial(divmod, 1, 0))
    with pytest.raises(HelperFailed):
        await helper.run(lambda: 1)
    assert await helper.run(os.getpid) == helper.pid, "it still works"


async def test_short_work_does_not_wait_for_a_queue_of_long_work(helper: HelperProcess) -> None:
    order: list[str] = []

    async def run(name: str, size_bytes: int) -> None:
        await helper.run(partial(bytes.count, b"x" * size_bytes, b"x"))
        order.append(name)

    first = asyncio.create_task(helper.run(partial(time.sleep, 0.2)))
    await asyncio.sleep(0)
    long = [asyncio.create_task(run(f"long {number}", 2**20 - number)) for number in range(3)]
    await asyncio.sleep(0)
    short = [asyncio.create_task(run(f"short {number}", 2**10 + number)) for number in range(4)]
    await asyncio.gather(first, *long, *short)
    assert order == ["short 0", "short 1", "short 2", "long 0", "short 3", "long 2", "long 1"]


async def test_a_turn_that_was_given_to_a_cancelled_caller_is_passed_on() -> None:
    turns, order = ShortestFirst(), list[str]()

    async def run(name: str) -> None:
        await turns.take(1)
        order.append(name)
        turns.give()

    await turns.take(1)
    waiting = [asyncio.create_task(run(name)) for name in "abc"]
    await asyncio.sleep(0)
    waiting[1].cancel()
    turns.give()
    waiting[0].cancel()
    await asyncio.wait(waiting)
    assert order == ["c"]
    await run("d")
    assert order == ["c", "d"]


async def test_work_of_a_cancelled_caller_is_not_started(helper: HelperProcess, tmp_path: Path) -> None:
    file = tmp_path / "started"
    first = asyncio.create_task(helper.run(partial(time.sleep, 0.3)))
    second = asyncio.create_task(helper.run(file.touch))
    await asyncio.sleep(0.1)
    second.cancel()
    await first
    assert await helper.run(os.getpid) == helper.pid
    assert not file.exists()


async def test_a_killed_helper_is_replaced_by_threads_and_later_by_another() -> None:
    now_s = 0.0
    helper = HelperProcess(clock=lambda: now_s)
    use_helper(helper)
    try:
        first = await ready(helper)
        assert await run_apart(os.getpid) == first
        os.kill(first, signal.SIGKILL)
        assert await run_apart(os.getpid) == os.getpid()
        assert await run_apart(threading.get_ident) != threading.get_ident()
        now_s += RESTART_PAUSE_S
        assert await run_apart(os.getpid) == os.getpid(), "it starts in the background"
        await wait_until(lambda: helper.ready)
        assert await run_apart(os.getpid) == helper.pid != first
    finally:
        use_helper(None)
        await helper.close()


async def test_a_caller_waits_until_its_deadline_and_the_helper_remains(helper: HelperProcess) -> None:
    use_helper(helper)
    loop = asyncio.get_running_loop()
    try:
        started = loop.time()
        for _ in range(2):  # The second one waits for the first.
            with pytest.raises(DeadlineExceeded):
                await run_apart(partial(time.sleep, 0.5), loop.time() + 0.05)
        assert loop.time() - started < 0.5
        assert await run_apart(os.getpid, loop.time() + 30) == helper.pid
    finally:
        use_helper(None)


async def test_the_process_ends_when_it_is_closed_even_at_work() -> None:
    helper = HelperProcess()
    pid = await ready(helper)
    working = asyncio.create_task(helper.run(partial(time.sleep, 60)))
    await asyncio.sleep(0.1)
    await helper.close()
    with pytest.raises(HelperFailed):
        await working
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    helper.start_soon()
    assert not helper.ready, "a closed helper does not start again"


async def test_a_helper_that_was_never_used_has_no_process() -> None:
    helper = HelperProcess()
    await helper.close()
    assert helper.pid is None
