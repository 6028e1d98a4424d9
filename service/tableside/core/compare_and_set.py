"""Writes to a store that can only compare and set: read the records, decide, replace those that are still the same.

A batch takes one round trip to read and one to write. A record that another writer got to first is tried again alone,
while it is kept from the other writers of this process: so of many writers of one record here, each is disturbed only
by other processes. Knows nothing of how records are read and replaced: that is the store's `VersionedRecords`.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

import msgspec

from .backoff import exponential_backoff_s
from .concurrency import gather_bounded
from .errors import Contended, DeadlineExceeded, RecordUnreadable, TableError
from .operations import Key, Outcome, Write
from .store import Clock, TableSpec, now_ms
from .transitions import Changed, Stored, transition

ATTEMPTS_MAX = 64
"""How often one write is tried before it ends as Contended."""

CONTENDED_CONCURRENCY_MAX = 16
"""How many contended records of one call are worked on side by side."""

BACKOFF_S = 0.002
BACKOFF_MAX_S = 0.25


class VersionedRecord(msgspec.Struct, frozen=True):
    """A record as it was read: what it is, and whatever the store needs to recognise it later."""

    stored: Stored | RecordUnreadable | None
    version: Any = None


class Replacement(msgspec.Struct, frozen=True):
    """One record to replace: what was seen, and what it is to become (`changed.stored`; None is: absent)."""

    write: Write
    current: VersionedRecord
    changed: Changed


class VersionedRecords(Protocol):
    """How a store reads records and replaces them if they are still what was read."""

    async def read(self, keys: Sequence[Key], until: float) -> list[VersionedRecord | TableError]:
        """Read records, strongly consistent."""
        ...

    async def replace(self, steps: Sequence[Replacement], until: float) -> list[Outcome | bool]:
        """Replace records that are still as they were seen.

        The answer for each is its outcome (an error says whether the record may have been replaced), True for the
        outcome that the step has already, or False if the record is another one by now.
        """
        ...


class CompareAndSet:
    """Does the writes of one table by comparing and setting."""

    def __init__(
        self,
        spec: TableSpec,
        exchange: VersionedRecords,
        *,
        clock: Clock = now_ms,
        etag: Callable[[], str] = lambda: "",
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._spec = spec
        self._exchange = exchange
        self._clock = clock
        self._etag = etag
        self._jitter = jitter
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def apply(self, writes: Sequence[Write], until: float) -> list[Outcome]:
        """Do writes, no two with one key, and return their outcomes in the same order."""
        outcomes: list[Outcome] = [None] * len(writes)
        busy = [self._locked(write.key) for write in writes]
        first = [index for index, is_busy in enumerate(busy) if not is_busy]
        alone = [index for index, is_busy in enumerate(busy) if is_busy]
        for index, outcome in zip(first, await self._round([writes[index] for index in first], until), strict=True):
            if outcome is False:
                alone.append(index)
            else:
                outcomes[index] = _settled(outcome)
        works = [self._alone(writes[index], until) for index in alone]
        for index, settled in zip(alone, await gather_bounded(works, CONTENDED_CONCURRENCY_MAX), strict=True):
            outcomes[index] = settled
        return outcomes

    async def _round(self, writes: Sequence[Write], until: float) -> list[Outcome | bool]:
        """Try each write once; False says that another writer got there first."""
        if not writes:
            return []
        outcomes: list[Outcome | bool] = []
        steps: dict[int, Replacement] = {}
        seen = await self._exchange.read([write.key for write in writes], until)
        now = self._clock()
        for index, (write, found) in enumerate(zip(writes, seen, strict=True)):
            if isinstance(found, TableError):
                outcomes.append(found)
                continue
            decided = transition(found.stored, write, self._spec, now_ms=now, etag=self._etag())
            outcomes.append(decided.outcome)
            if isinstance(decided, Changed):
                steps[index] = Replacement(write, found, decided)
        if steps:
            answers = await self._exchange.replace(list(steps.values()), until)
            for index, answer in zip(steps, answers, strict=True):
                if answer is not True:
                    outcomes[index] = answer
        return outcomes

    async def _alone(self, write: Write, until: float) -> Outcome:
        lock = self._locks.setdefault(write.key, asyncio.Lock())
        try:
            async with asyncio.timeout_at(until):
                await lock.acquire()
        except TimeoutError:
            return DeadlineExceeded("the deadline was over while others wrote the record")
        try:
            return await self._until_it_holds(write, until)
        finally:
            lock.release()

    async def _until_it_holds(self, write: Write, until: float) -> Outcome:
        time = asyncio.get_running_loop().time
        for attempt in range(ATTEMPTS_MAX):
            if time() >= until:
                return DeadlineExceeded("the deadline was over while others wrote the record")
            [outcome] = await self._round([write], until)
            if outcome is not False:
                return _settled(outcome)
            pause_s = exponential_backoff_s(attempt, BACKOFF_S, BACKOFF_MAX_S, self._jitter)
            await asyncio.sleep(min(pause_s, max(0.0, until - time())))
        return Contended(f"others changed the record each of {ATTEMPTS_MAX} times")

    def _locked(self, key: Key) -> bool:
        lock = self._locks.get(key)
        return lock is not None and lock.locked()


def _settled(outcome: Outcome | bool) -> Outcome:
    assert not isinstance(outcome, bool)
    return outcome
