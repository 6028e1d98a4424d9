"""A bounded number of calls in flight, their results in order. Knows only threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ordered(items: Iterable[Item], call: Callable[[Item], Result], window: int) -> Iterator[Result]:
    """`call(item)` for every item, at most `window` at a time, results in the items' order.

    Items are taken only as results are consumed, so no more than `window` of either exist at once. Closing the
    iterator, or an error, cancels the calls that have not begun. A call has the context, and so the span, that is
    current where results are taken.
    """
    pool = ThreadPoolExecutor(window, thread_name_prefix="tableside")
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(copy_context().run, call, item))
            if len(waiting) >= window:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
