"""The background task that removes expired records from a RocksDB database, and finds facts about the other records.

Reads skip expired records in any case.
"""

import asyncio
import logging
import time
from functools import partial

from rocksdict import WriteBatch

from ...core import DELETE_MEMORY_S, Outcome, Range, Stored
from .database import FIRST_RECORD, Contents, Database, table_prefix
from .group_commit import Turn
from .records import remembers_writes, unpack

log = logging.getLogger(__name__)

SWEEP_PAUSE = 19
"""The pause after each step, as a multiple of the step's duration: a sweep takes at most a twentieth of a core."""


async def sweep_forever(database: Database, every_s: float) -> None:
    """Go through the whole database at intervals, and delete expired records."""
    while True:
        await asyncio.sleep(every_s)
        position: bytes | None = FIRST_RECORD
        contents = Contents()
        try:
            while position is not None:
                started = time.perf_counter()
                expired, position = await database.run_scan(partial(_expired_keys, database, position, contents))
                if expired:
                    await database.run_write(partial(_delete_expired, database, expired))
                await asyncio.sleep(SWEEP_PAUSE * (time.perf_counter() - started))
            database.swept = contents
        except Exception:
            log.exception("removing expired records failed; the next sweep retries")


def _expired_keys(database: Database, low: bytes, contents: Contents) -> tuple[list[bytes], bytes | None]:
    """Return the expired keys among the next ones, and the next position, or None at the end."""
    now, expired = database.now_ms(), list[bytes]()
    items, more = database.items(Range(low))
    for key, raw in items:
        contents.add(len(raw), table_prefix(key) if remembers_writes(raw) else None)
        if _is_forgotten(database, key, raw, now):
            expired.append(key)
    return expired, items[-1][0] + b"\0" if more else None


def _delete_expired(database: Database, keys: list[bytes], turn: Turn) -> list[Outcome]:
    """Delete the records that are still expired: a write may have replaced one since it was found."""
    now, batch = database.now_ms(), WriteBatch(raw_mode=True)
    for key, raw in zip(keys, database.get(keys), strict=True):
        if raw is not None and _is_forgotten(database, key, raw, now):
            batch.delete(key)
        turn.spend(len(raw or b""))
    database.write(batch)
    return []


def _is_forgotten(database: Database, key: bytes, raw: bytes, now_ms: int) -> bool:
    """Return whether a record has expired, and its memory need not be kept."""
    if raw[:1] == b"{" or raw[1:2] == b"\0":
        return False
    memory_s = database.delete_memories_s.get(table_prefix(key), DELETE_MEMORY_S)
    stored = unpack(raw)
    return isinstance(stored, Stored) and not stored.remembered(now_ms, memory_s)
