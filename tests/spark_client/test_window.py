"""The window keeps the order and is bounded."""

import threading
import time
from collections.abc import Iterator

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
