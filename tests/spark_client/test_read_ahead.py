"""Reading ahead computes one item ahead of the consumer, and closing does not wait for it."""

import threading
from collections.abc import Iterator

from tableside_client.concurrency import read_ahead

WAIT_MAX_S = 10


class Source:
    """Numbers from 0. An event is set for each number that has been computed."""

    def __init__(self, count: int) -> None:
        self.computed = [threading.Event() for _ in range(count)]

    def __iter__(self) -> Iterator[int]:
        for number, event in enumerate(self.computed):
            event.set()
            yield number


def test_one_item_is_computed_ahead_of_the_consumer() -> None:
    source = Source(4)
    items = read_ahead(iter(source))
    assert next(items) == 0
    assert source.computed[1].wait(WAIT_MAX_S)
    assert next(items) == 1
    assert source.computed[2].wait(WAIT_MAX_S)
    assert not source.computed[3].is_set()


def test_closing_does_not_wait_for_the_item_ahead() -> None:
    started, released, ended = threading.Event(), threading.Event(), threading.Event()

    def source() -> Iterator[int]:
        yield 0
        started.set()
        released.wait(WAIT_MAX_S)
        ended.set()
        yield 1

    items = read_ahead(source())
    assert next(items) == 0
    assert started.wait(WAIT_MAX_S)
    items.close()
    assert not ended.is_set()
    released.set()
