"""Yielding to the event loop, and bounded concurrency."""

import asyncio
import threading
import time

import pytest

from tableside.core.concurrency import (
    PIECE_BYTES_MIN,
    LongPieces,
    Pieces,
    PieceSize,
    Yielder,
    chunks_of,
    gather_bounded,
    in_pieces,
)
from tableside.core.errors import DeadlineExceeded, InvalidOperation
from tableside.core.slices import SLICE_S


@pytest.mark.parametrize(
    ("count", "count_max", "sizes"), [(0, 3, []), (1, 3, [1]), (3, 3, [3]), (7, 3, [3, 3, 1])], ids=str
)
def test_items_are_cut_by_their_number(count: int, count_max: int, sizes: list[int]) -> None:
    items = list(range(count))
    cut = list(chunks_of(items, count_max))
    assert [len(part) for part in cut] == sizes
    assert [item for part in cut for item in part] == items


@pytest.mark.parametrize(
    ("items", "cut"),
    [
        ([], []),
        ([5, 5, 5], [[5, 5], [5]]),
        ([11, 1, 1], [[11], [1, 1]]),
        ([1, 11, 1], [[1], [11], [1]]),
        ([1, 1, 1, 1], [[1, 1, 1], [1]]),
        ([10], [[10]]),
        ([6, 4, 1], [[6, 4], [1]]),
    ],
    ids=str,
)
def test_items_are_divided_by_size_with_at_least_one_per_part(items: list[int], cut: list[list[int]]) -> None:
    assert [list(part) for part in chunks_of(items, 3, 10, lambda item: item)] == cut


async def test_tasks_run_concurrently_up_to_the_limit() -> None:
    running = most = 0

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (number % 3))
        running -= 1
        return number

    assert await gather_bounded([work(number) for number in range(20)], 4) == list(range(20))
    assert most == 4


async def test_an_empty_list_of_tasks_has_no_results() -> None:
    assert await gather_bounded([], 4) == []


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


async def test_only_long_work_yields_to_other_tasks() -> None:
    order: list[str] = []
    asyncio.get_running_loop().call_soon(order.append, "other")
    yielder = Yielder()
    await yielder.maybe_yield()
    order.append("short")
    for _ in range(3):
        time.sleep(SLICE_S)  # noqa: ASYNC251  # this is the work that awaits nothing
        await yielder.maybe_yield()
    order.append("long")
    assert order == ["short", "other", "long"]


async def test_slices_do_not_depend_on_the_resolution_of_the_loops_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: 0.0)
    order: list[str] = []

    def work() -> Pieces[None]:
        for _ in range(2):
            loop.call_soon(order.append, "other")
            time.sleep(SLICE_S)
            yield
            order.append("piece")

    await in_pieces(work())
    assert order == ["other", "piece", "other", "piece"]
    yielder = Yielder()
    time.sleep(SLICE_S)  # noqa: ASYNC251  # this is the work that awaits nothing
    assert yielder.due


def test_the_size_of_a_piece_follows_the_time_that_its_bytes_take() -> None:
    now_s = 0.0
    size = PieceSize(2**15, clock=lambda: now_s)

    def process(pieces: int, seconds_per_byte: float) -> float:
        nonlocal now_s
        for _ in range(pieces):
            before_s, size_bytes = now_s, size.size_bytes
            with size.measure():
                now_s += size_bytes * seconds_per_byte
        return now_s - before_s

    assert process(10, 1e-9) < SLICE_S
    assert size.size_bytes == 2**15
    assert process(10, 2.5e-7) == pytest.approx(SLICE_S / 2, rel=0.01)
    process(10, 1e-3)
    assert size.size_bytes == PIECE_BYTES_MIN
    process(10, 1e-9)
    assert size.size_bytes == 2**15


async def test_long_pieces_run_in_a_thread_before_the_work_continues() -> None:
    threads: list[int] = []

    def work() -> LongPieces[int]:
        yield lambda: threads.append(threading.get_ident())
        yield None
        return len(threads)

    assert await in_pieces(work()) == 1
    assert threads != [threading.get_ident()]


async def test_the_result_of_a_long_piece_is_returned_to_the_work() -> None:
    def work() -> LongPieces[int]:
        first: int = yield lambda: 20
        yield None
        second: int = yield lambda: 22
        return first + second

    assert await in_pieces(work()) == 42


async def test_the_work_may_handle_the_table_error_of_a_long_piece() -> None:
    def fails() -> None:
        raise InvalidOperation("no object")

    def work(error: type[Exception]) -> LongPieces[str]:
        try:
            yield fails
        except error as caught:
            return str(caught)
        raise AssertionError

    assert await in_pieces(work(InvalidOperation)) == "no object"
    with pytest.raises(InvalidOperation):
        await in_pieces(work(KeyError))


async def test_a_long_piece_that_takes_too_long_is_a_deadline_exceeded() -> None:
    def work() -> LongPieces[str]:
        try:
            yield lambda: time.sleep(0.2)
        except DeadlineExceeded:
            return "late"
        raise AssertionError

    assert await in_pieces(work(), asyncio.get_running_loop().time() + 0.01) == "late"


async def test_another_error_of_a_long_piece_is_raised() -> None:
    def work() -> LongPieces[None]:
        yield lambda: [][0]

    with pytest.raises(IndexError):
        await in_pieces(work())
