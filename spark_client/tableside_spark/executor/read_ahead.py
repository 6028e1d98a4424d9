"""Compute the next item of an iterator in a thread while the current one is used."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items, which are not None, in order, and compute one item ahead of the consumer.

    An error is raised in the place of its item. Closing the iterator does not wait for the item ahead. Items are
    computed in the context of the first item's consumer, with its trace span.
    """
    pool, context = ThreadPoolExecutor(1, thread_name_prefix="tableside"), copy_context()

    def following() -> Item | None:
        return next(items, None)

    try:
        ahead = pool.submit(context.run, following)
        while (item := ahead.result()) is not None:
            ahead = pool.submit(context.run, following)
            yield item
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
