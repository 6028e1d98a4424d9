"""Group commit: one thread runs many writers' work and makes it durable with one sync.

Work that arrives during a sync waits and runs with the next group, in order of arrival, on the one writer thread.
Reading, deciding and writing in one piece of work is therefore atomic among all writers. A turn of the thread, from one
sync to the next, is bounded in operations, bytes and time. Larger work takes several turns, and other work runs
between them.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeAlias, TypeVar

Result = TypeVar("Result")

OPERATIONS_PER_TURN_MAX = 1000
"""How many operations the thread executes between two syncs."""

BYTES_PER_TURN_MAX = 8 * 2**20
"""How many bytes the thread reads and writes between two syncs. The last operation of a turn may exceed this."""

TURN_S = 0.05
"""How long the thread works between two syncs. The last operation of a turn may exceed this."""


class Turn:
    """The remainder of one turn of the writer thread."""

    def __init__(self) -> None:
        self._operations, self._bytes = OPERATIONS_PER_TURN_MAX, BYTES_PER_TURN_MAX
        self._ends_at = time.perf_counter() + TURN_S

    @property
    def operations_left(self) -> int:
        """The number of operations that the turn still allows, at least one."""
        return max(1, self._operations)

    @property
    def bytes_left(self) -> int:
        """The number of bytes that the turn still allows."""
        return self._bytes

    def spend(self, size_bytes: int, count: int = 1) -> None:
        """Count operations that read and wrote this many bytes."""
        self._operations -= count
        self._bytes -= size_bytes

    @property
    def over(self) -> bool:
        """Whether the thread has to sync before the next operation."""
        return self._operations <= 0 or self._bytes <= 0 or time.perf_counter() >= self._ends_at


Work: TypeAlias = Callable[[Turn], Result]
"""Work of the writer thread: it executes operations until it has finished or the turn has ended, but at least one."""


class GroupCommit(Generic[Result]):
    """Runs pieces of work on one thread and returns their results after one common sync.

    `sync` makes the writes of the work durable. If it fails, `sync_failed` turns the error and the result of each piece
    into the result that its caller gets.
    """

    def __init__(self, sync: Callable[[], None], sync_failed: Callable[[Exception, Result], Result]) -> None:
        self._sync = sync
        self._sync_failed = sync_failed
        self._pending: list[tuple[Work[Result], bool, asyncio.Future[Result]]] = []
        self._thread = ThreadPoolExecutor(1, "tableside-writer")
        self._drain_task: asyncio.Task[None] | None = None

    async def run(self, work: Work[Result], *, durable: bool = True) -> Result:
        """Run the work and return its result once it is durable. Cancelling the caller does not stop the work.

        Work that is not `durable` becomes so with the next work that is.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._pending.append((work, durable, future))
        if self._drain_task is None or self._drain_task.done():
            self._drain_task = asyncio.create_task(self._drain())
        return await future

    async def close(self) -> None:
        """Finish the accepted work, then end the thread."""
        while self._drain_task is not None and not self._drain_task.done():
            await asyncio.wait([self._drain_task])
        self._thread.shutdown()

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending:
            group, self._pending = self._pending, []
            results: Sequence[Result | Exception]
            try:
                works = [(work, durable) for work, durable, _ in group]
                results = await loop.run_in_executor(self._thread, self._commit, works)
            except Exception as error:  # noqa: BLE001  # the thread has ended, for example: no caller may wait forever
                results = [error] * len(group)
            self._pending[:0] = group[len(results) :]
            for (_, _, future), result in zip(group, results, strict=False):
                if future.cancelled():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _commit(self, group: list[tuple[Work[Result], bool]]) -> list[Result | Exception]:
        turn, results, any_durable = Turn(), list[Result | Exception](), False
        for work, durable in group:
            if results and turn.over:
                break
            results.append(_result(work, turn))
            any_durable = any_durable or durable
        if not any_durable:
            return results
        try:
            self._sync()
        except Exception as error:  # noqa: BLE001  # after any error, no write of this group is known to be durable
            return [result if isinstance(result, Exception) else self._sync_failed(error, result) for result in results]
        return results


def _result(work: Work[Result], turn: Turn) -> Result | Exception:
    try:
        return work(turn)
    except Exception as error:  # noqa: BLE001  # re-raised to the caller of this piece of work
        return error
