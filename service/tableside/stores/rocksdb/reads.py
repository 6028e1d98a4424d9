"""Reads for batches of gets, in turns of bounded size.

A batch uses one reader thread at a time, because two gain nothing: both need the interpreter between their reads.
"""

from collections.abc import Sequence
from functools import partial

from ...core import NOT_READ, READ_BYTES_MAX, Key, KeySchema, Outcome, chunks_of
from .database import Database
from .records import read_all

INLINE_KEYS_MAX = 16
"""Reads of up to this many keys run on the event loop: they take less time than switching to a thread and back."""

KEYS_PER_TURN_MAX = 1000
"""How many records one turn of a reader thread reads."""

KEYS_PER_GET_MIN, KEYS_PER_GET_MAX = 8, 32
"""How many records of unknown size are read in one call: the fewest at first, and more if they are small.

The values of a call are counted after each of these reads. The reader waits for the interpreter after each, so records
that cannot be too large together are read in one call.
"""


class RecordReader:
    """Reads records of one table, whose keys in the database are `prefix` and the encoded key."""

    def __init__(self, database: Database, prefix: bytes, schema: KeySchema) -> None:
        self._database = database
        self._prefix = prefix
        self._schema = schema

    async def get(self, keys: Sequence[Key]) -> list[Outcome]:
        """Return the outcomes of gets. After values of READ_BYTES_MAX together, the others are NOT_READ."""
        names = self._schema.encode_all(keys, self._prefix)
        if len(names) <= KEYS_PER_GET_MIN:
            return read_all(self._database.get(names), self._database.now_ms())
        call = _Call(self._database)
        if len(names) <= INLINE_KEYS_MAX:
            call.read(names)
        else:
            for turn in chunks_of(names, KEYS_PER_TURN_MAX):
                await self._database.run_read(partial(call.read, [*turn]))
        return call.outcomes + [NOT_READ] * (len(names) - len(call.outcomes))


class _Call:
    """The reads of one call, which share a limit on the bytes of their values."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._now_ms = database.now_ms()
        self._bytes = 0
        self.outcomes: list[Outcome] = []

    def read(self, names: list[bytes]) -> None:
        """Read records until the values of all turns are too large together."""
        raws: list[bytes | None] = []
        while len(raws) < len(names) and self._bytes <= READ_BYTES_MAX:
            count = self._count(len(self.outcomes) + len(raws))
            found = self._database.get(names[len(raws) : len(raws) + count])
            self._bytes += sum([len(raw) for raw in found if raw is not None])
            raws += found
        self.outcomes += read_all(raws, self._now_ms)

    def _count(self, known: int) -> int:
        """Return how many records to read next: as many as fit if all are of the largest size.

        If that is unknown or few, a limited number that fits if they have the mean size of the `known` ones.
        """
        left_bytes = READ_BYTES_MAX - self._bytes
        mean_bytes = self._bytes // (known or 1)
        probably_fitting = left_bytes // (mean_bytes + 1) if known else 0
        certainly_fitting = left_bytes // (self._database.record_bytes_max + 1)
        return max(KEYS_PER_GET_MIN, min(KEYS_PER_GET_MAX, probably_fitting), certainly_fitting)
