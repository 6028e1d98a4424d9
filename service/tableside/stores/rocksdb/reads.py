"""Reads for batches of gets, in turns of bounded size.

A batch uses one reader thread at a time, because two gain nothing: both need the interpreter between their reads.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from ...core import NOT_READ, READ_BYTES_MAX, Key, KeySchema, Outcome, Record, Results
from .database import Database
from .records import read, read_all

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
        self._turn_is_over = False

    async def get(self, keys: Sequence[Key]) -> Sequence[Outcome]:
        """Return the outcomes of gets. After values of READ_BYTES_MAX together, the others are NOT_READ."""
        names = self._schema.encode_all(keys, self._prefix)
        inline = len(names) <= INLINE_KEYS_MAX
        while inline and self._turn_is_over:  # noqa: ASYNC110  # an event would not keep the order of the reads
            await asyncio.sleep(0)
        if len(names) == 1:
            [raw] = self._database.get(names)
            self._note_inline(len(raw or b""))
            return [read(raw, self._database.now_ms())]
        call = _Call(self._database, names)
        if inline:
            call.read(INLINE_BYTES_MAX)
            self._note_inline(call.size_bytes)
        while not call.complete:
            await self._database.run_read(partial(call.read, READ_BYTES_MAX))
        return call.results()

    def _note_inline(self, size_bytes: int) -> None:
        """After a large read, let the next ones wait for the next iteration of the event loop: others come first."""
        if size_bytes > INLINE_BYTES_MAX:
            self._turn_is_over = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._turn_is_over = False


class _Call:
    """The reads of one call, which share a limit on the bytes of their values."""

    def __init__(self, database: Database, names: Sequence[bytes]) -> None:
        self._database = database
        self._names = names
        self._now_ms = database.now_ms()
        self._results: list[Results] = []
        self._count = 0
        self.size_bytes = 0

    @property
    def complete(self) -> bool:
        """Whether all records were read, or as many as fit."""
        return self._count == len(self._names) or self.size_bytes > READ_BYTES_MAX

    def results(self) -> Results:
        """Return the outcomes."""
        rest = len(self._names) - self._count
        if rest:
            nothing = [None] * rest
            not_read = Results(Record, {"value": nothing, "etag": nothing}, dict.fromkeys(range(rest), NOT_READ))
            self._results.append(not_read)
        return Results.joined(self._results)

    def read(self, bytes_max: int) -> None:
        """Read the next records, until the values of all turns exceed `bytes_max`."""
        stop = min(len(self._names), self._count + KEYS_PER_TURN_MAX)
        while self._count < stop and self.size_bytes <= bytes_max:
            count = self._database.keys_per_read(bytes_max - self.size_bytes, self._count, self.size_bytes)
            raws = self._database.get([*self._names[self._count : min(self._count + count, stop)]])
            self.size_bytes += sum(map(len, filter(None, raws)))
            self._count += len(raws)
            self._results.append(read_all(raws, self._now_ms))
            del raws  # They may be large, and the driver is about to copy the next.
