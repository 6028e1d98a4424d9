"""Group commit: one thread runs many writers' work and makes it durable with one sync.

Work that arrives during a sync waits and runs with the next group, in order of arrival, on the one writer thread.
Reading, deciding and writing in one piece of work is therefore atomic among all writers.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Result = TypeVar("Result")


class GroupCommit(Generic[Result]):
    """Runs pieces of work on one thread and returns their results after one common sync.

    `sync` makes the writes of the work durable. If it fails, `sync_failed` turns the error and the result of each piece
    into the result that its caller gets.
    """

    def __init__(
        self,
        sync: Callable[[], None],
        sync_failed: Callable[[Exception, Result], Result],
        *,
        group_max: int = 256,
    ) -> None:
        self._sync = sync
        self._sync_failed = sync_failed
        self._group_max = group_max
        self._pending: list[tuple[Callable[[], Result], asyncio.Future[Result]]] = []
        self._thread = ThreadPoolExecutor(1, "tableside-writer")
        self._drain_task: asyncio.Task[None] | None = None

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run the work and return its result once it is durable. Cancelling the caller does not stop the work."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._pending.append((work, future))
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
            group, self._pending = self._pending[: self._group_max], self._pending[self._group_max :]
            results: Sequence[Result | Exception]
            try:
                results = await loop.run_in_executor(self._thread, self._commit, [work for work, _ in group])
            except Exception as error:  # noqa: BLE001  # the thread has ended, for example: no caller may wait forever
                results = [error] * len(group)
            for (_, future), result in zip(group, results, strict=True):
                if future.cancelled():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _commit(self, group: list[Callable[[], Result]]) -> list[Result | Exception]:
        results = [_result(work) for work in group]
        try:
            self._sync()
        except Exception as error:  # noqa: BLE001  # after any error, no write of this group is known to be durable
            return [result if isinstance(result, Exception) else self._sync_failed(error, result) for result in results]
        return results


def _result(work: Callable[[], Result]) -> Result | Exception:
    try:
        return work()
    except Exception as error:  # noqa: BLE001  # re-raised to the caller of this piece of work
        return error
