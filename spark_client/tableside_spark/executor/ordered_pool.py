"""A bounded thread pool whose results are in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ordered(
    items: Iterable[Item], call: Callable[[Item], Result], window: int, size: Callable[[], int] | None = None
) -> Iterator[Result]:
    """Yield `call(item)` for every item in order, with at most `window` calls at a time.

    `size` returns the current limit, from 1 to `window`. Without it, the limit is always `window`.

    Items are consumed only as results are consumed, so that at most `window` items and results exist together. Closing
    the iterator, or an error, cancels calls that have not started. A call runs in the consumer's
    context, with its trace span.
    """
    pool = ThreadPoolExecutor(window, thread_name_prefix="tableside")
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(copy_context().run, call, item))
            while len(waiting) >= (window if size is None else size()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
