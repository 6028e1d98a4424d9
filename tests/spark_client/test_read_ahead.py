"""Reading ahead computes one item ahead of the consumer, and closing does not wait for it."""

import threading
from collections.abc import Iterator

from tableside_client.concurrency import read_ahead

WAIT_MAX_S = 10


def test_one_item_is_computed_ahead_of_the_consumer() -> None:
    computed = [threading.Event() for _ in range(4)]

    def source() -> Iterator[int]:
        for number, event in enumerate(computed):
            event.set()
            yield number

    items = read_ahead(source())
    assert next(items) == 0
    assert computed[1].wait(WAIT_MAX_S)
    assert next(items) == 1
    assert computed[2].wait(WAIT_MAX_S)
    assert not computed[3].is_set()


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
