"""Plans: calls that may run concurrently, step by step, for the blocking and the asynchronous client.

A plan yields the calls of a step and receives their results in order.
"""

import asyncio
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from tableside_client.calls import AsyncRun, Call, Run
from tableside_client.concurrency import map_ordered

T = TypeVar("T")

Plan: TypeAlias = Generator[Iterable[Call[Any]], list[Any], T]

REQUESTS_IN_FLIGHT_MAX = 4
"""The maximum number of concurrent calls of a plan."""


def run_plan(plan: Plan[T], run: Run) -> T:
    """Run a plan with threads. An error of a call ends the plan, and the calls that have not started."""
    results: list[Any] | None = None
    while True:
        step = _advance(plan, results)
        if isinstance(step, _Ended):
            return step.result
        results = list(map_ordered(step, run, REQUESTS_IN_FLIGHT_MAX))


async def run_plan_async(plan: Plan[T], run: AsyncRun) -> T:
    """Run a plan with tasks. Its own work runs in a thread. An error of a call cancels the others."""
    results: list[Any] | None = None
    while True:
        step = await asyncio.to_thread(_advance, plan, results)
        if isinstance(step, _Ended):
            return step.result
        results = await _run_calls(step, run)


@dataclass(frozen=True, slots=True)
class _Ended(Generic[T]):
    """The result of a plan."""

    result: T


def _advance(plan: Plan[T], results: list[Any] | None) -> Iterable[Call[Any]] | _Ended[T]:
    """Return the calls of the next step, or the result of the plan: a thread cannot raise `StopIteration`."""
    try:
        return next(plan) if results is None else plan.send(results)
    except StopIteration as end:
        return _Ended(end.value)


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
