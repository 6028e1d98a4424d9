"""Reading ahead keeps the order and errors, computes one item ahead, and scans use it."""

import threading
from collections.abc import Iterator

import pytest

from tableside_spark.executor.task_client import read_ahead

WAIT_MAX_S = 30


class Source:
    """Numbers from 0. An event is set for each number that has been computed."""

    def __init__(self, count: int) -> None:
        self.computed = [threading.Event() for _ in range(count)]

    def __iter__(self) -> Iterator[int]:
        for number, event in enumerate(self.computed):
            event.set()
            yield number


def test_items_come_in_order() -> None:
    assert list(read_ahead(iter(range(10)))) == list(range(10))
    assert list(read_ahead(iter(()))) == []


def test_one_item_is_computed_ahead_of_the_consumer() -> None:
    source = Source(4)
    items = read_ahead(iter(source))
    assert next(items) == 0
    assert source.computed[1].wait(WAIT_MAX_S)
    assert next(items) == 1
    assert source.computed[2].wait(WAIT_MAX_S)
    assert not source.computed[3].is_set()


def test_an_error_is_raised_in_the_place_of_its_item() -> None:
    def source() -> Iterator[int]:
        yield 0
        raise LookupError("one")

    items = read_ahead(source())
    assert next(items) == 0
    with pytest.raises(LookupError, match="one"):
        next(items)


def test_closing_does_not_wait_for_the_item_ahead() -> None:
    started, released = threading.Event(), threading.Event()

    def source() -> Iterator[int]:
        yield 0
        started.set()
        assert released.wait(WAIT_MAX_S)
        yield 1

    items = read_ahead(source())
    assert next(items) == 0
    assert started.wait(WAIT_MAX_S)
    items.close()  # type: ignore[attr-defined] # it is a generator
    released.set()
