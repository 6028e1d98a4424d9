"""Calls of the store that several callers wait for, and which keys they read now.

A load is one task, so that it belongs to none of those who wait: the first of them may leave, and it goes on for the
others. Only when nobody waits is it cancelled. Knows nothing of what is kept.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from opentelemetry.trace import Link

from ...core import Get, Key, Operation, Outcome, TableError

GRACE_S = 0.1
"""How long after its deadline a load is believed to answer still, and how much earlier its errors may be due to it."""


class Load:
    """One call of the store: what it asks, from when on, and how long it may take.

    `read_at` is a time of the monotonic clock, `until` and `ended_at` of the loop's. `link` is to the span of who began
    it, which the span of the call is a child of.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        call: Coroutine[Any, Any, list[Outcome]],
        read_at: float,
        until: float,
        link: Link | None = None,
    ) -> None:
        self.operations = operations
        self.reads = [operation.key for operation in operations if type(operation) is Get]
        self.read_at = read_at
        self.until = until
        self.link = link
        self.ended_at: float | None = None
        self.waiting = 0
        self.task = asyncio.get_running_loop().create_task(call)
        self._found: dict[Key, Outcome] | None = None

    @property
    def ended(self) -> bool:
        """Whether the store has answered, or the call has failed."""
        return self.ended_at is not None

    @property
    def failed(self) -> bool:
        """Whether the call raised or was cancelled, of one that has ended."""
        return self.task.cancelled() or self.task.exception() is not None

    def outcome(self, key: Key) -> Outcome:
        """Return what became of one of its operations. Raise what the call raised."""
        if self._found is None:
            keys = [operation.key for operation in self.operations]
            self._found = dict(zip(keys, self.task.result(), strict=True))
        return self._found[key]

    def lacked_time(self, error: TableError, until: float) -> bool:
        """Whether a caller who has until then, which is later, may fare better than with this error."""
        assert self.ended_at is not None
        return error.retriable and until > self.until and self.ended_at >= self.until - GRACE_S

    async def waited(self, until: float) -> None:
        """Return when it has ended, or at `until`, or when it should have ended long ago."""
        if not self.ended:
            ends = min(until, self.until + GRACE_S)
            timeout_s = None if ends == math.inf else ends - asyncio.get_running_loop().time()
            await asyncio.wait((self.task,), timeout=timeout_s)


class Loads:
    """The load, by key, that a get may wait for and whose answer may be kept."""

    def __init__(self) -> None:
        self._current: dict[Key, Load] = {}

    def __len__(self) -> int:
        """Return how many keys are being read."""
        return len(self._current)

    def start(self, load: Load, ended: Callable[[], None]) -> None:
        """Make a load the current one of its keys; `ended` is called when it has, before those who wait go on."""
        self._current.update(dict.fromkeys(load.reads, load))

        def has_ended(task: object) -> None:
            load.ended_at = asyncio.get_running_loop().time()
            ended()

        load.task.add_done_callback(has_ended)

    def to_join(self, operation: Operation, now: float) -> Load | None:
        """Return the load to wait for, if there is one young enough and not past its time; `now` is monotonic."""
        if (load := self._current.get(operation.key)) is None or not young_enough(operation, now - load.read_at):
            return None
        return load if asyncio.get_running_loop().time() < load.until + GRACE_S else None

    def forget(self, keys: Sequence[Key] | None = None) -> None:
        """Let no get join the loads of these keys, or of any, any more, and nothing that they find be kept."""
        if keys is None:
            self._current.clear()
        elif self._current:
            for key in keys:
                self._current.pop(key, None)

    def finish(self, load: Load) -> set[Key]:
        """Let go of a load, and return those of its keys whose current one it was."""
        current = self._current
        keys = {key for key in load.reads if current.get(key) is load}
        for key in keys:
            del current[key]
        return keys

    def leave(self, load: Load) -> None:
        """Wait for a load no longer; the last to leave one that has not ended cancels it."""
        load.waiting -= 1
        if not load.waiting and not load.task.done():
            self.finish(load)
            load.task.cancel()


def young_enough(operation: Operation, age_s: float) -> bool:
    """Whether an operation is a get that takes an answer which is so old, in seconds."""
    return type(operation) is Get and (operation.max_age_s is None or 0 < operation.max_age_s >= age_s)
