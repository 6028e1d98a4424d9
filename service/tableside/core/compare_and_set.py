"""Writes to a store that supports only compare-and-set: read the records, decide, replace unchanged ones.

A batch takes one round trip to read and one to write. If another writer changed a record first, its write is tried
again. Writes of one record in this process take turns, so each conflicts only with other processes. The store
implements `VersionedRecords` to read and replace records.
"""

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import msgspec

from .concurrency import Yielder, exponential_backoff_s
from .errors import Contended, DeadlineExceeded, RecordUnreadable, TableError
from .operations import Key, Operation, Outcome, Write
from .store import Clock, TableSpec, now_ms
from .transitions import Changed, Stored, transition

ATTEMPTS_MAX = 64
"""Maximum number of attempts of one write before it fails with Contended."""

BACKOFF_S = 0.002
BACKOFF_MAX_S = 0.25

_CONTENDED = "other writers changed the record during "


class VersionedRecord(msgspec.Struct, frozen=True):
    """A record that was read, and the version by which the store later recognizes it."""

    stored: Stored | RecordUnreadable | None
    version: Any = None


class Replacement(msgspec.Struct, frozen=True):
    """One record to replace: what was found, and the new record (`changed.stored`, None removes the record)."""

    write: Write
    found: VersionedRecord
    changed: Changed

    @property
    def version(self) -> Any:
        """Return the version of the record that was found."""
        return self.found.version


class VersionedRecords(Protocol):
    """Reads records with their versions, and replaces those whose version is unchanged. Implemented by a store."""

    async def read(self, writes: Sequence[Write], until: float) -> Sequence[VersionedRecord | TableError]:
        """Read the records of writes with strong consistency."""

    async def replace(self, replacements: Sequence[Replacement], until: float) -> list[Outcome | bool]:
        """Replace the records whose version is unchanged.

        Each result is one of three. An outcome: its error states whether the record may have been replaced. True: the
        outcome is the replacement's `changed`. False: the record has another version now.
        """


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
        self._last: dict[Key, asyncio.Future[None]] = {}

    async def apply(self, operations: Sequence[Operation], until: float) -> list[Outcome]:
        """Apply writes with distinct keys, and return their outcomes in the same order.

        Wait first until the earlier writes of the records have ended, at most until the deadline.
        """
        writes = cast("Sequence[Write]", operations)
        if not writes:
            return []
        outcomes: list[Outcome | bool] = [False] * len(writes)
        failure: TableError = Contended(f"{_CONTENDED}each of {ATTEMPTS_MAX} attempts")
        waiting: Sequence[int] = range(len(writes))
        keys = [write.key for write in writes]
        earlier = {self._last[key] for key in keys if key in self._last} if self._last else ()
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last.update(dict.fromkeys(keys, ended))
        try:
            if earlier:
                await asyncio.wait(earlier, timeout=None if until == math.inf else max(0.0, until - time.monotonic()))
            for attempt in range(ATTEMPTS_MAX):
                sent = writes if len(waiting) == len(writes) else [writes[index] for index in waiting]
                for index, outcome in zip(waiting, await self._attempt(sent, until), strict=True):
                    outcomes[index] = outcome
                waiting = [index for index in waiting if outcomes[index] is False]
                if not waiting:
                    break
                pause_s = exponential_backoff_s(attempt, BACKOFF_S, BACKOFF_MAX_S, self._jitter)
                if time.monotonic() + pause_s >= until:
                    failure = DeadlineExceeded(f"{_CONTENDED}all attempts until the deadline")
                    break
                await asyncio.sleep(pause_s)
        finally:
            ended.set_result(None)
            for key in keys:
                if self._last.get(key) is ended:
                    del self._last[key]
        return [failure if outcome is False else cast("Outcome", outcome) for outcome in outcomes]

    def is_contended(self, key: Key) -> bool:
        """Return whether a write of the record is in progress in this process. Others should wait for it."""
        return key in self._last

    async def _attempt(self, writes: Sequence[Write], until: float) -> list[Outcome | bool]:
        """Try each write once. An outcome is False if another writer changed the record first."""
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
                replacements[index] = Replacement(write, found, decided)
        del found  # It may be large, and the driver is about to copy the new value.
        if replacements:
            answers = await self._records.replace(list(replacements.values()), until)
            for index, answer in zip(replacements, answers, strict=True):
                if answer is not True:
                    outcomes[index] = answer
        return outcomes
