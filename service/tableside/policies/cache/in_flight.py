"""The loads of a cache that are in flight: calls of the store that read records, which several gets can wait for.

A load runs in a separate task, so it continues for the other waiters if the one that began it is cancelled. It is
cancelled only when its last waiter leaves.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from opentelemetry.trace import Link

from ...core import Get, Key, Outcome, TableError

GRACE_S = 0.1
"""How long after its deadline a load may still return, and how long before it an error may be due to the deadline."""


class Load:
    """One call of the store that reads records.

    `read_at` is its begin on the cache's clock. `until`, its deadline, and `ended_at` are times of `time.monotonic`.
    `link` refers to the span of the request that began it, the parent of the call's span.
    """

    def __init__(
        self,
        gets: Sequence[Get],
        call: Coroutine[Any, Any, Sequence[Outcome]],
        read_at: float,
        until: float,
        link: Link | None = None,
    ) -> None:
        self.keys = [get.key for get in gets]
        self.read_at = read_at
        self.until = until
        self.link = link
        self.ended_at: float | None = None
        self.waiting = 0
        self.task = asyncio.get_running_loop().create_task(call)
        self._found: dict[Key, Outcome] | None = None

    @property
    def ended(self) -> bool:
        """Return whether the call has returned or failed."""
        return self.ended_at is not None

    @property
    def failed(self) -> bool:
        """Return whether the ended call raised or was cancelled."""
        return self.task.cancelled() or self.task.exception() is not None

    def outcome(self, key: Key) -> Outcome:
        """Return the outcome of one of its operations. If the call raised, raise the same exception."""
        if self._found is None:
            self._found = dict(zip(self.keys, self.task.result(), strict=True))
        return self._found[key]

    def ran_out_of_time(self, error: TableError, until: float) -> bool:
        """Return whether the error may be due to the load's deadline, and a later deadline `until` may avoid it."""
        assert self.ended_at is not None
        return error.retriable and until > self.until and self.ended_at >= self.until - GRACE_S

    async def wait(self, until: float) -> None:
        """Return when the load has ended, at `until`, or when the load's own deadline and grace time have passed."""
        if not self.ended:
            ends = min(until, self.until + GRACE_S)
            timeout_s = None if ends == math.inf else ends - time.monotonic()
            await asyncio.wait((self.task,), timeout=timeout_s)


class Loads:
    """The current load of each key: gets may join it, and its records may be cached."""

    def __init__(self) -> None:
        self._current: dict[Key, Load] = {}

    def __len__(self) -> int:
        """Return the number of keys with a current load."""
        return len(self._current)

    def start(self, load: Load, ended: Callable[[], None]) -> None:
        """Make a load the current one of its keys. `ended` is called when it has ended, before its waiters continue."""
        self._current.update(dict.fromkeys(load.keys, load))

        def has_ended(task: object) -> None:
            load.ended_at = time.monotonic()
            ended()

        load.task.add_done_callback(has_ended)

    def joinable(self, get: Get, now: float) -> Load | None:
        """Return the current load of the key if it is recent enough for the get and not overdue.

        `now` is a time of the monotonic clock.
        """
        if (load := self._current.get(get.key)) is None or not young_enough(get, now - load.read_at):
            return None
        return load if time.monotonic() < load.until + GRACE_S else None

    def forget(self, keys: Sequence[Key] | None = None) -> None:
        """Remove the current loads of these keys, or of all: gets cannot join them, and they are not cached."""
        if keys is None:
            self._current.clear()
        elif self._current:
            for key in keys:
                self._current.pop(key, None)

    def finish(self, load: Load) -> set[Key]:
        """Remove a load, and return the keys whose current load it was."""
        current = self._current
        keys = {key for key in load.keys if current.get(key) is load}
        for key in keys:
            del current[key]
        return keys

    def leave(self, load: Load) -> None:
        """Unregister a waiter. If it is the last one and the load has not ended, cancel the load."""
        load.waiting -= 1
        if not load.waiting and not load.task.done():
            self.finish(load)
            load.task.cancel()


def young_enough(get: Get, age_s: float) -> bool:
    """Return whether a get accepts a record of this age."""
    return get.max_age_s is None or 0 < get.max_age_s >= age_s
