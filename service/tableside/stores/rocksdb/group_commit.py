"""Many writers, one thread, one sync: what makes durable acknowledgements cheap.

Work that arrives while the disk is busy waits and is done together, in its order, on the one thread that writes.
Reading, deciding and writing inside one piece of work is therefore atomic among all writers.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Result = TypeVar("Result")


class GroupCommit(Generic[Result]):
    """Runs pieces of work on one thread and answers each after one common sync.

    `sync` makes durable what the work wrote. If it fails, `failed` turns the error and a piece's own result into the
    result that its caller gets.
    """

    def __init__(
        self,
        sync: Callable[[], None],
        failed: Callable[[Exception, Result], Result],
        *,
        group_max: int = 256,
    ) -> None:
        self._sync = sync
        self._failed = failed
        self._group_max = group_max
        self._waiting: list[tuple[Callable[[], Result], asyncio.Future[Result]]] = []
        self._thread = ThreadPoolExecutor(1, "tableside-writer")
        self._loop_task: asyncio.Task[None] | None = None

    async def run(self, work: Callable[[], Result]) -> Result:
        """Do the work, and return its result once it is durable. Work that was accepted is done, come what may."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, answer))
        if self._loop_task is None or self._loop_task.done():
            self._loop_task = asyncio.create_task(self._drain())
        return await answer

    async def close(self) -> None:
        """Finish what was accepted, then end the thread."""
        while self._loop_task is not None and not self._loop_task.done():
            await asyncio.wait([self._loop_task])
        self._thread.shutdown()

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            group, self._waiting = self._waiting[: self._group_max], self._waiting[self._group_max :]
            results: Sequence[Result | Exception]
            try:
                results = await loop.run_in_executor(self._thread, self._commit, [work for work, _ in group])
            except Exception as error:  # noqa: BLE001  # the thread has ended, or worse: nobody may wait for ever
                results = [error] * len(group)
            for (_, answer), result in zip(group, results, strict=True):
                if answer.cancelled():
                    continue
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)

    def _commit(self, group: list[Callable[[], Result]]) -> list[Result | Exception]:
        results = [_result(work) for work in group]
        try:
            self._sync()
        except Exception as error:  # noqa: BLE001  # whatever it is, no write of this group is known to be durable
            return [result if isinstance(result, Exception) else self._failed(error, result) for result in results]
        return results


def _result(work: Callable[[], Result]) -> Result | Exception:
    try:
        return work()
    except Exception as error:  # noqa: BLE001  # handed to the caller whose work it was
        return error
