"""Reads for batches of gets: in the order of keys, in turns of bounded size.

Neighboring keys are in the same blocks of a file, so RocksDB finds a key faster after the one before it. A batch uses
one reader thread at a time, because two gain nothing: both need the interpreter between their reads.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat

from ...core import NOT_READ, READ_BYTES_MAX, Key, Outcome, chunks_of
from .database import Database
from .records import read_all

INLINE_KEYS_MAX = 16
"""Reads of up to this many keys run on the event loop: they take less time than switching to a thread and back."""

KEYS_PER_TURN_MAX = 1000
"""How many records one turn of a reader thread reads."""

KEYS_PER_GET_MIN, KEYS_PER_GET_MAX = 8, 32
"""How many records are read in one call: the fewest at first, and more if they are small.

The values of a call are counted after each of these reads.
"""


class RecordReader:
    """Reads records of one table, whose keys in the database are `prefix` and the encoded key."""

    def __init__(self, database: Database, prefix: bytes, encode: Callable[[Key], bytes]) -> None:
        self._database = database
        self._prefix = prefix
        self._encode = encode

    async def get(self, keys: Sequence[Key]) -> list[Outcome]:
        """Return the outcomes of gets. Gets that would exceed READ_BYTES_MAX together are NOT_READ."""
        prefix, encode = self._prefix, self._encode
        names = [prefix + encode(key) for key in keys]
        if len(names) <= KEYS_PER_GET_MIN:
            return read_all(self._database.get(names), self._database.now_ms())
        call = _Call(self._database)
        if len(names) <= INLINE_KEYS_MAX:
            call.read(names)
        else:
            for turn in chunks_of(sorted(names), KEYS_PER_TURN_MAX):
                await self._database.run_read(partial(call.read, turn))
        return list(map(call.found.get, names, repeat(NOT_READ)))


class _Call:
    """The reads of one call, which share a limit on the bytes of their values."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._now_ms = database.now_ms()
        self._bytes = 0
        self.found: dict[bytes, Outcome] = {}

    def read(self, names: Sequence[bytes]) -> None:
        """Read records until the values of all turns are too large together."""
        start = 0
        while start < len(names) and self._bytes <= READ_BYTES_MAX:
            some = names[start : start + self._count()]
            raws = self._database.get([*some])
            self.found.update(zip(some, read_all(raws, self._now_ms), strict=True))
            self._bytes += sum([len(raw) for raw in raws if raw is not None])
            start += len(some)

    def _count(self) -> int:
        """Return how many records to read next: as many as would fit if they were as large as those already read."""
        mean_bytes = self._bytes // (len(self.found) or 1)
        fitting = (READ_BYTES_MAX - self._bytes) // (mean_bytes + 1) if self.found else 0
        return max(KEYS_PER_GET_MIN, min(KEYS_PER_GET_MAX, fitting))
