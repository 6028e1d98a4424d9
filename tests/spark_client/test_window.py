"""The window keeps the order, is bounded, and closes when its consumer stops."""

import threading
import time
from collections.abc import Iterator

import pytest

from tableside_client.concurrency import map_ordered


def test_results_come_in_order_with_no_more_than_the_window_in_flight() -> None:
    lock, running, most = threading.Lock(), [0], [0]

    def call(item: int) -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.002 * (item % 3))
        with lock:
            running[0] -= 1
        return item

    assert list(map_ordered(range(40), call, 4)) == list(range(40))
    assert 1 < most[0] <= 4


def test_items_are_not_taken_beyond_the_window() -> None:
    taken: list[int] = []

    def source() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    results = map_ordered(source(), lambda item: item, 3)
    next(results)
    assert len(taken) == 3
    results.close()  # type: ignore[attr-defined] # it is a generator
    assert len(taken) == 3


def test_an_error_is_raised_and_closes_the_window() -> None:
    def call(item: int) -> int:
        if item == 2:
            raise LookupError("two")
        return item

    results = map_ordered(range(1000), call, 4)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(LookupError, match="two"):
        next(results)
