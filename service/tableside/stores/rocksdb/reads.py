"""Reads for batches of gets, in turns of bounded size.

A batch uses one reader thread at a time, because two gain nothing: both need the interpreter between their reads.
"""

from collections.abc import Sequence
from functools import partial

from ...core import NOT_READ, READ_BYTES_MAX, Key, KeySchema, Outcome
from .database import Database
from .records import read_all

INLINE_KEYS_MAX = 16
"""Reads of up to this many keys run on the event loop: they take less time than switching to a thread and back."""

INLINE_BYTES_MAX = 2**20
"""After so many bytes, such a read continues on a thread: a value of 16 MiB takes 15 ms."""

KEYS_PER_TURN_MAX = 1000
"""How many records one turn of a reader thread reads."""


class RecordReader:
    """Reads records of one table, whose keys in the database are `prefix` and the encoded key."""

    def __init__(self, database: Database, prefix: bytes, schema: KeySchema) -> None:
        self._database = database
        self._prefix = prefix
        self._schema = schema

    async def get(self, keys: Sequence[Key]) -> list[Outcome]:
        """Return the outcomes of gets. After values of READ_BYTES_MAX together, the others are NOT_READ."""
        names = self._schema.encode_all(keys, self._prefix)
        if len(names) == 1:
            return read_all(self._database.get(names), self._database.now_ms())
        call = _Call(self._database, names)
        if len(names) <= INLINE_KEYS_MAX:
            call.read(INLINE_BYTES_MAX)
        while not call.complete:
            await self._database.run_read(partial(call.read, READ_BYTES_MAX))
        return call.outcomes + [NOT_READ] * (len(names) - len(call.outcomes))


class _Call:
    """The reads of one call, which share a limit on the bytes of their values."""

    def __init__(self, database: Database, names: Sequence[bytes]) -> None:
        self._database = database
        self._names = names
        self._now_ms = database.now_ms()
        self._bytes = 0
        self.outcomes: list[Outcome] = []

    @property
    def complete(self) -> bool:
        """Whether all records were read, or as many as fit."""
        return len(self.outcomes) == len(self._names) or self._bytes > READ_BYTES_MAX

    def read(self, bytes_max: int) -> None:
        """Read the next records, until the values of all turns exceed `bytes_max`."""
        stop = min(len(self._names), len(self.outcomes) + KEYS_PER_TURN_MAX)
        while (start := len(self.outcomes)) < stop and self._bytes <= bytes_max:
            count = self._database.keys_per_read(bytes_max - self._bytes, start, self._bytes)
            found = self._database.get([*self._names[start : min(start + count, stop)]])
            self._bytes += sum([len(raw) for raw in found if raw is not None])
            self.outcomes += read_all(found, self._now_ms)
            del found  # They may be large, and the driver is about to copy the next.
