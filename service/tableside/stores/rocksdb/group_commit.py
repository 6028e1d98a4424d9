"""Group commit: one thread runs many writers' work and makes it durable with one sync.

Work that arrives during a sync waits and runs with the next group, in order of arrival, on the one writer thread.
Reading, deciding and writing in one piece of work is therefore atomic among all writers. A turn of the thread, from one
sync to the next, is bounded in operations, bytes and time. Larger work takes several turns, and other work runs
between them.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from ...core import Outcome, WritesRejected, Written

log = logging.getLogger(__name__)

OPERATIONS_PER_TURN_MAX = 1000
BYTES_PER_TURN_MAX = 8 * 2**20
TURN_S = 0.05
"""The limits of a turn. Its last operation may exceed the bytes, which it reads or writes, and the time."""


class Turn:
    """The remainder of one turn of the writer thread: the operations and the bytes that it still allows."""

    def __init__(self) -> None:
        self.bytes_left = BYTES_PER_TURN_MAX
        self.operations_left = OPERATIONS_PER_TURN_MAX
        self._ends_at = time.perf_counter() + TURN_S

    def spend(self, size_bytes: int, count: int = 1) -> None:
        """Count operations that read and wrote this many bytes."""
        self.operations_left -= count
        self.bytes_left -= size_bytes

    @property
    def over(self) -> bool:
        """Whether the thread has to sync before the next operation."""
        return self.operations_left <= 0 or self.bytes_left <= 0 or time.perf_counter() >= self._ends_at


Work: TypeAlias = Callable[[Turn], Sequence[Outcome]]
"""Work of the writer thread: it executes operations until it has finished or the turn has ended, but at least one."""

_Pending: TypeAlias = tuple[Work, bool, asyncio.Future[Sequence[Outcome]]]
"""Work, whether it must be durable, and its outcomes."""


class GroupCommit:
    """Runs pieces of work on one thread and returns their outcomes after one common `sync`, which makes writes durable.

    If the sync fails, the outcome of each write is unknown. Each turn begins with a call of `recover`.
    """

    def __init__(self, recover: Callable[[], None], sync: Callable[[], None]) -> None:
        self._recover, self._sync = recover, sync
        self._pending: list[_Pending] = []
        self._thread = ThreadPoolExecutor(1, "tableside-writer")
        self._drain_task: asyncio.Task[None] | None = None

    async def run(self, work: Work, *, durable: bool = True) -> Sequence[Outcome]:
        """Run the work and return its outcomes once it is durable. Cancelling the caller does not stop the work.

        Work that need not be `durable` becomes so with the next work that is.
        """
        future: asyncio.Future[Sequence[Outcome]] = asyncio.get_running_loop().create_future()
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
            results: Sequence[Sequence[Outcome] | Exception]
            try:
                results = await loop.run_in_executor(self._thread, self._commit, group)
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

    def _commit(self, group: Sequence[_Pending]) -> list[Sequence[Outcome] | Exception]:
        self._recover()
        turn, any_durable = Turn(), False
        results: list[Sequence[Outcome] | Exception] = []
        for work, durable, _ in group:
            if results and turn.over:
                break
            try:
                results.append(work(turn))
            except Exception as error:  # noqa: BLE001  # raised to the caller of this piece of work
                results.append(error)
            any_durable = any_durable or durable
        try:
            if any_durable:
                self._sync()
        except Exception:  # After any error, no write of this group is known to be durable.
            log.exception("RocksDB could not sync")
            unknown = WritesRejected("RocksDB could not sync", applied="unknown")
            for at, result in enumerate(results):
                if not isinstance(result, Exception):
                    results[at] = [unknown if isinstance(outcome, Written) else outcome for outcome in result]
        return results
