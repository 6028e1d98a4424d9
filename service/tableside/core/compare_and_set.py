"""Writes to a store that supports only compare-and-set: read the records, decide, replace unchanged ones.

A batch takes one round trip to read and one to write. If another writer changed a record first, its write is retried
alone, under a lock that excludes the other writers of this process. So, of many writers of one record in this process,
each conflicts only with other processes. The store implements `VersionedRecords` to read and replace records.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast
from weakref import WeakValueDictionary

import msgspec

from .concurrency import Yielder, exponential_backoff_s, gather_bounded
from .errors import Contended, DeadlineExceeded, RecordUnreadable, TableError
from .operations import Key, Operation, Outcome, Write
from .store import Clock, TableSpec, now_ms
from .transitions import Changed, Stored, transition

ATTEMPTS_MAX = 64
"""Maximum number of attempts of one write before it fails with Contended."""

CONTENDED_CONCURRENCY_MAX = 16
"""Maximum number of contended records of one batch that are retried concurrently."""

BACKOFF_S = 0.002
BACKOFF_MAX_S = 0.25


class VersionedRecord(msgspec.Struct, frozen=True):
    """A record that was read, and the version by which the store later recognizes it."""

    stored: Stored | RecordUnreadable | None
    version: Any = None


class Replacement(msgspec.Struct, frozen=True):
    """One record to replace: its current version, and the new one (`changed.stored`, None removes the record)."""

    write: Write
    version: Any
    changed: Changed


class VersionedRecords(Protocol):
    """Reads records with their versions, and replaces those whose version is unchanged. Implemented by a store."""

    async def read(self, writes: Sequence[Write], until: float) -> Sequence[VersionedRecord | TableError]:
        """Read the records of writes with strong consistency."""
        ...

    async def replace(self, replacements: Sequence[Replacement], until: float) -> list[Outcome | bool]:
        """Replace the records whose version is unchanged.

        Each result is one of three. An outcome: its error states whether the record may have been replaced. True: the
        outcome is the replacement's `changed`. False: the record has another version now.
        """
        ...


class CompareAndSet:
    """Applies the writes of one table by compare-and-set."""

    def __init__(
        self,
        spec: TableSpec,
        records: VersionedRecords,
        *,
        clock: Clock = now_ms,
        etag: Callable[[], str] = lambda: "",
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._spec = spec
        self._records = records
        self._clock = clock
        self._etag = etag
        self._jitter = jitter
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def apply(self, operations: Sequence[Operation], until: float) -> list[Outcome]:
        """Apply writes with distinct keys, and return their outcomes in the same order."""
        writes = cast("Sequence[Write]", operations)
        outcomes: list[Outcome] = [None] * len(writes)
        busy = [self.is_contended(write.key) for write in writes]
        direct = [index for index, is_busy in enumerate(busy) if not is_busy]
        retried = [index for index, is_busy in enumerate(busy) if is_busy]
        for index, outcome in zip(direct, await self._attempt([writes[index] for index in direct], until), strict=True):
            if outcome is False:
                retried.append(index)
            else:
                outcomes[index] = _final(outcome)
        retries = [self._write_alone(writes[index], until) for index in retried]
        for index, final in zip(retried, await gather_bounded(retries, CONTENDED_CONCURRENCY_MAX), strict=True):
            outcomes[index] = final
        return outcomes

    def is_contended(self, key: Key) -> bool:
        """Return whether a writer of this process retries a write to the record. Others should wait for it."""
        lock = self._locks.get(key) if self._locks else None
        return lock is not None and lock.locked()

    async def _attempt(self, writes: Sequence[Write], until: float) -> list[Outcome | bool]:
        """Try each write once. An outcome is False if another writer changed the record first."""
        if not writes:
            return []
        outcomes: list[Outcome | bool] = []
        replacements: dict[int, Replacement] = {}
        current = deque(await self._records.read(writes, until))
        now, yielder = self._clock(), Yielder()
        late = time.monotonic() >= until
        for index, write in enumerate(writes):
            found = current.popleft()
            if yielder.due:
                await yielder.maybe_yield()
                late = time.monotonic() >= until
            if isinstance(found, TableError):
                outcomes.append(found)
                continue
            if late:
                outcomes.append(DeadlineExceeded("the deadline passed before the write was decided"))
                continue
            decided = transition(found.stored, write, self._spec, now_ms=now, etag=self._etag())
            outcomes.append(decided.outcome)
            if isinstance(decided, Changed):
                replacements[index] = Replacement(write, found.version, decided)
        del found  # It may be large, and the driver is about to copy the new value.
        if replacements:
            answers = await self._records.replace(list(replacements.values()), until)
            for index, answer in zip(replacements, answers, strict=True):
                if answer is not True:
                    outcomes[index] = answer
        return outcomes

    async def _write_alone(self, write: Write, until: float) -> Outcome:
        lock = self._locks.setdefault(write.key, asyncio.Lock())
        try:
            async with asyncio.timeout_at(until):
                await lock.acquire()
        except TimeoutError:
            return DeadlineExceeded("the deadline passed while other writers changed the record")
        try:
            return await self._retry(write, until)
        finally:
            lock.release()

    async def _retry(self, write: Write, until: float) -> Outcome:
        for attempt in range(ATTEMPTS_MAX):
            if time.monotonic() >= until:
                return DeadlineExceeded("the deadline passed while other writers changed the record")
            [outcome] = await self._attempt([write], until)
            if outcome is not False:
                return _final(outcome)
            pause_s = exponential_backoff_s(attempt, BACKOFF_S, BACKOFF_MAX_S, self._jitter)
            await asyncio.sleep(min(pause_s, max(0.0, until - time.monotonic())))
        return Contended(f"other writers changed the record during each of {ATTEMPTS_MAX} attempts")


def _final(outcome: Outcome | bool) -> Outcome:
    assert not isinstance(outcome, bool)
    return outcome
