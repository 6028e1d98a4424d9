"""The background task that removes expired records from a RocksDB database, and finds facts about the other records.

Reads skip expired records in any case.
"""

import asyncio
import contextlib
import logging
import time
from functools import partial

from rocksdict import WriteBatch

from ...core import DELETE_MEMORY_S, Outcome, Range, RecordUnreadable
from .database import FIRST_RECORD, Contents, Database, table_prefix
from .group_commit import Turn
from .records import remembers_writes, unpack

log = logging.getLogger(__name__)

SWEEP_PAUSE = 19
"""The pause after each step, as a multiple of the step's duration: a sweep takes at most a twentieth of a core."""

KEYS_PER_STEP_MAX = 1000
BYTES_PER_STEP_MAX = 4 * 2**20


class ExpirySweeper:
    """Goes through the whole database at intervals and deletes expired records."""

    def __init__(self, database: Database, every_s: float) -> None:
        self._database = database
        self._task = asyncio.create_task(self._sweep_forever(every_s))

    async def close(self) -> None:
        """Stop sweeping."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _sweep_forever(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            position: bytes | None = FIRST_RECORD
            contents = Contents()
            try:
                while position is not None:
                    started = time.perf_counter()
                    expired, position = await self._database.run_scan(partial(self._expired_keys, position, contents))
                    if expired:
                        await self._database.run_write(partial(self._delete_expired, expired))
                    await asyncio.sleep(SWEEP_PAUSE * (time.perf_counter() - started))
                self._database.swept = contents
            except Exception:
                log.exception("removing expired records failed; the next sweep retries")

    def _expired_keys(self, low: bytes, contents: Contents) -> tuple[list[bytes], bytes | None]:
        """Return the expired keys among the next ones, and the next position, or None at the end."""
        now, expired = self._database.now_ms(), list[bytes]()
        items, more = self._database.items(Range(low), KEYS_PER_STEP_MAX, BYTES_PER_STEP_MAX)
        for key, raw in items:
            contents.add(len(raw), table_prefix(key) if remembers_writes(raw) else None)
            if self._is_forgotten(key, raw, now):
                expired.append(key)
        return expired, items[-1][0] + b"\0" if more else None

    def _delete_expired(self, keys: list[bytes], turn: Turn) -> list[Outcome]:
        """Delete the records that are still expired: a write may have replaced one since it was found."""
        now, batch = self._database.now_ms(), WriteBatch(raw_mode=True)
        for key, raw in zip(keys, self._database.get(keys), strict=True):
            if raw is not None and self._is_forgotten(key, raw, now):
                batch.delete(key)
            turn.spend(len(raw or b""))
        self._database.write(batch)
        return []

    def _is_forgotten(self, key: bytes, raw: bytes, now_ms: int) -> bool:
        """Return whether a record has expired, and its memory need not be kept."""
        if raw[:1] == b"{" or raw[1:2] == b"\0":
            return False
        memory_s = self._database.delete_memories_s.get(table_prefix(key), DELETE_MEMORY_S)
        with contextlib.suppress(RecordUnreadable):
            return not unpack(raw).remembered(now_ms, memory_s)
        return False
