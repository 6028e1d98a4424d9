"""Concurrent calls: in order with a window, in steps of plans, and for several callers of a client."""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from tableside_client.calls import AsyncRun, Call, Run
from tableside_client.errors import RecordNotFound, TablesideError
from tableside_client.json_batch import OPERATIONS_PER_REQUEST

BATCHES_IN_FLIGHT_MAX = 2

V = TypeVar("V")
Lock = TypeVar("Lock")
Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ordered(
    items: Iterable[Item], call: Callable[[Item], Result], window: int, size: Callable[[], int] | None = None
) -> Iterator[Result]:
    """Yield `call(item)` for every item in order, with at most `window` calls, or as many as `size` returns, at a time.

    At most `window` items and results exist together. Closing the iterator, or an error, cancels calls that have not
    started. A call runs in the consumer's context, with its trace span.
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


def read_ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """Yield the items, which are not None, in order, and compute one item ahead, with the consumer's trace span.

    An error is raised in the place of its item. Closing the iterator does not wait for the item ahead.
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


T = TypeVar("T")

Plan: TypeAlias = Generator[Iterable[Call[Any]], list[Any], T]
"""Calls that may run concurrently, step by step: it yields the calls of a step, and receives their results in order."""

REQUESTS_IN_FLIGHT_MAX = 4


def run_plan(plan: Plan[T], run: Run) -> T:
    """Run a plan with threads. An error of a call ends the plan, and the calls that have not started."""
    results: list[Any] | None = None
    while True:
        step, result = _advance(plan, results)
        if step is None:
            ended: T = result
            return ended
        results = list(map_ordered(step, run, REQUESTS_IN_FLIGHT_MAX))


async def run_plan_async(plan: Plan[T], run: AsyncRun) -> T:
    """Run a plan with tasks. Its own work runs in a thread. An error of a call cancels the others."""
    results: list[Any] | None = None
    while True:
        step, result = await asyncio.to_thread(_advance, plan, results)
        if step is None:
            ended: T = result
            return ended
        results = await _run_calls(step, run)


def _advance(plan: Plan[T], results: list[Any] | None) -> tuple[Iterable[Call[Any]] | None, Any]:
    """Return the calls of the next step, or None and the plan's result: a thread cannot raise `StopIteration`."""
    try:
        return next(plan) if results is None else plan.send(results), None
    except StopIteration as end:
        return None, end.value


async def _run_calls(calls: Iterable[Call[Any]], run: AsyncRun) -> list[Any]:
    waiting: deque[asyncio.Task[Any]] = deque()
    results: list[Any] = []
    iterator = iter(calls)
    try:
        while (call := await asyncio.to_thread(next, iterator, None)) is not None:
            waiting.append(asyncio.create_task(run(call)))
            if len(waiting) >= REQUESTS_IN_FLIGHT_MAX:
                results.append(await waiting[0])
                waiting.popleft()
        while waiting:
            results.append(await waiting[0])
            waiting.popleft()
        return results
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


class ThreadCoalescer(Generic[V]):
    """Combines the gets of threads. `fetch` returns the value or the error of each key."""

    def __init__(
        self, fetch: Callable[[Sequence[Any]], Sequence[V | TablesideError]], threads: ThreadPoolExecutor
    ) -> None:
        self._fetch, self._threads, self._lock = fetch, threads, threading.Lock()
        self._waiting: dict[Any, Future[V | TablesideError]] = {}
        self._in_flight = 0

    def get(self, key: Any) -> V | None:
        """Return the value of a key, None if there is no record. Raises `TablesideError`."""
        with self._lock:
            future = self._waiting.setdefault(key, Future())
            start = self._in_flight < BATCHES_IN_FLIGHT_MAX
            self._in_flight += start
        if start:
            self._threads.submit(self._send_waiting)
        return _value(future.result())

    def _send_waiting(self) -> None:
        while True:
            with self._lock:
                batch = {key: self._waiting.pop(key) for key in list(islice(self._waiting, OPERATIONS_PER_REQUEST))}
                if not batch:
                    self._in_flight -= 1
                    return
            try:
                values = self._fetch(list(batch))
            except Exception as failure:  # noqa: BLE001 - each caller raises it
                for future in batch.values():
                    future.set_exception(failure)
            else:
                for future, value in zip(batch.values(), values, strict=True):
                    future.set_result(value)


class TaskCoalescer(Generic[V]):
    """Combines the gets of asyncio tasks. `fetch` returns the value or the error of each key."""

    def __init__(self, fetch: Callable[[Sequence[Any]], Awaitable[Sequence[V | TablesideError]]]) -> None:
        self._fetch = fetch
        self._waiting: dict[Any, asyncio.Future[V | TablesideError]] = {}
        self._senders: set[asyncio.Task[None]] = set()
        self._loop = EventLoop()

    async def get(self, key: Any) -> V | None:
        """Return the value of a key, None if there is no record. Raises `TablesideError`."""
        loop = self._loop.require_same()
        if (future := self._waiting.get(key)) is None:
            future = self._waiting[key] = loop.create_future()
        if len(self._senders) < BATCHES_IN_FLIGHT_MAX:
            sender = asyncio.create_task(self._send_waiting())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        # Several callers may wait for the same key: the cancellation of one does not affect the others.
        return _value(await asyncio.shield(future))

    async def _send_waiting(self) -> None:
        while self._waiting:
            batch = {key: self._waiting.pop(key) for key in list(islice(self._waiting, OPERATIONS_PER_REQUEST))}
            try:
                values = await self._fetch(list(batch))
            except Exception as failure:  # noqa: BLE001 - each caller raises it
                for future in batch.values():
                    future.set_exception(failure)
                    future.exception()  # Its callers may have been cancelled.
            except asyncio.CancelledError:
                for future in batch.values():
                    future.cancel()
                raise
            else:
                for future, value in zip(batch.values(), values, strict=True):
                    future.set_result(value)


def _value(result: V | TablesideError) -> V | None:
    if isinstance(result, RecordNotFound):
        return None
    if isinstance(result, TablesideError):
        raise result
    return result


class Turns(Generic[Lock]):
    """Locks by key. `create` makes a lock for threads or for asyncio tasks, which exists while it is used."""

    def __init__(self, create: Callable[[], Lock]) -> None:
        self._create = create
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[Any, Lock] = WeakValueDictionary()

    def take(self, key: Any) -> Lock:
        """Return the lock of a key, for a `with` statement."""
        with self._guard:
            return self._locks.setdefault(key, self._create())


class EventLoop:
    """The loop that uses an object first. Connections, locks and tasks cannot be shared with another one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def require_same(self) -> asyncio.AbstractEventLoop:
        """Return the running loop. Raises `RuntimeError` if the first one was another."""
        running = asyncio.get_running_loop()
        self._loop = self._loop or running
        if running is not self._loop:
            raise RuntimeError(
                "this AsyncClient was used in another event loop before: create a client in each asyncio.run, "
                "or use Client, which threads can share"
            )
        return running
