"""The RocksDB store: one table's operations.

A batch of gets uses one reader thread at a time, because two gain nothing: both need the interpreter between reads.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from rocksdict import WriteBatch

from ...core import (
    NO_DEADLINE,
    NOT_READ,
    READ_BYTES_MAX,
    Applying,
    Batch,
    Budget,
    Capabilities,
    Get,
    Operation,
    Outcome,
    Page,
    Range,
    Scan,
    StoreUnavailable,
    TableError,
    TableSpec,
    WriteHealth,
    WritesRejected,
    apply_by_kind,
    joined_outcomes,
    value_bytes,
)
from .database import RECORDS_PER_TURN_MAX, Database, key_types_key
from .group_commit import Turn
from .records import read, read_all
from .scans import Scanner
from .writes import RecordWriter

log = logging.getLogger(__name__)

INLINE_KEYS_MAX = 16
"""Reads of up to this many keys run on the event loop: they take less time than switching to a thread and back."""

INLINE_BYTES_MAX = 2**20
"""After so many bytes, such a read continues on a thread: a value of 16 MiB takes 15 ms."""


class RocksdbStore:
    """The records of one table: the keys of the database that begin with the table's prefix."""

    capabilities = Capabilities()

    def __init__(self, database: Database, spec: TableSpec, health: WriteHealth) -> None:
        self._database = database
        self._health = health
        self.spec = spec
        self._prefix = spec.name_in_store.encode() + b"\0"
        self._prefix_end = spec.name_in_store.encode() + b"\1"
        database.delete_memories_s[self._prefix] = spec.delete_memory_s
        self._inline_turn_is_over = False
        self._writer = RecordWriter(database, spec, self._prefix)
        self._scanner = Scanner(database, spec, self._prefix)

    def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Applying:
        """Read all keys in one call, or write in turns of bounded size, which are durable when this returns."""
        return apply_by_kind(
            operations, lambda batch: self._get(batch) if batch.kind is Get else self._write(batch, budget)
        )

    async def _get(self, gets: Batch) -> Sequence[Outcome]:
        """Return the outcomes of gets. After values of READ_BYTES_MAX together, the others are NOT_READ."""
        try:
            inline = len(gets) <= INLINE_KEYS_MAX
            while inline and self._inline_turn_is_over:  # noqa: ASYNC110  # an event would not keep the order of reads
                await asyncio.sleep(0)
            if len(gets) == 1:
                [raw] = self._database.get([self._prefix + self.spec.key.encode(gets[0].key)])
                self._note_inline(len(raw or b""))
                return [read(raw, self._database.now_ms())]
            reads = _Reads(self._database, self.spec.key.encode_all(gets.columns["key"], self._prefix))
            if inline:
                reads.read(INLINE_BYTES_MAX)
                self._note_inline(reads.size_bytes)
            while not reads.complete:
                await self._database.run_read(partial(reads.read, READ_BYTES_MAX))
            return reads.results()
        except Exception as error:  # noqa: BLE001  # logged
            return [self._failure(error)] * len(gets)

    def _note_inline(self, size_bytes: int) -> None:
        """After a large read, let the next ones wait for the next iteration of the event loop: others come first."""
        if size_bytes > INLINE_BYTES_MAX:
            self._inline_turn_is_over = True
            asyncio.get_running_loop().call_soon(self._begin_inline_turn)

    def _begin_inline_turn(self) -> None:
        self._inline_turn_is_over = False

    async def _write(self, batch: Batch, budget: Budget) -> Sequence[Outcome]:
        turns: list[Sequence[Outcome]] = []
        count = read_bytes = 0
        try:
            while count < len(batch):
                is_over = count > 0 and budget.is_over()
                if is_over or read_bytes > READ_BYTES_MAX:
                    turns.append([budget.exceeded() if is_over else NOT_READ] * (len(batch) - count))
                    break
                work = partial(self._writer.write, batch[count:] if count else batch)
                turns.append(await self._database.run_write(work, durable=not self.spec.loading))
                count += len(turns[-1])
                if count < len(batch):
                    read_bytes += value_bytes(turns[-1])
        except Exception as error:  # noqa: BLE001  # logged
            turns.append([self._failure(error, writes=True)] * (len(batch) - count))
        outcomes = joined_outcomes(turns)
        self._health.observe(outcomes)
        return outcomes

    async def scan(self, scan: Scan) -> Page:
        """Read a page in the order of keys."""
        with self._translated():
            return await self._scanner.page(scan)

    async def splits(self, count_max: int) -> list[bytes]:
        """Divide the table into parts of similar size."""
        with self._translated():
            return await self._scanner.splits(count_max)

    async def drop(self) -> None:
        """Delete all keys of the table, and the types of its key. The row cache rules out a deletion of a range."""
        with self._translated(writes=True):
            rest = Range(self._prefix, self._prefix_end)
            while not rest.empty:
                items, more = await self._database.run_scan(partial(self._database.items, rest))
                keys = [key for key, _ in items]
                await self._database.run_write(partial(self._delete, keys), durable=False)
                rest = Range(keys[-1] + b"\0" if more else self._prefix_end, self._prefix_end)
            await self._database.run_write(partial(self._delete, [key_types_key(self.spec)]))

    def _delete(self, keys: Sequence[bytes], turn: Turn) -> list[Outcome]:
        batch = WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(key)
        turn.spend(batch.size_in_bytes(), len(keys))
        self._database.write(batch)
        return []

    @contextmanager
    def _translated(self, *, writes: bool = False) -> Iterator[None]:
        try:
            yield
        except TableError:
            raise
        except Exception as error:
            raise self._failure(error, writes=writes) from error

    def _failure(self, error: Exception, *, writes: bool = False) -> TableError:
        """Return the outcome for an error of the driver, whose text may contain paths: only the log has it."""
        if isinstance(error, TableError):
            return error
        log.error("RocksDB failed", exc_info=error)
        if writes:
            return WritesRejected(f"table {self.spec.name!r}: RocksDB could not write", applied="unknown")
        return StoreUnavailable(f"table {self.spec.name!r}: RocksDB could not read")


class _Reads:
    """The reads of one batch, which share a limit on the bytes of their values."""

    def __init__(self, database: Database, names: Sequence[bytes]) -> None:
        self._database, self._names = database, names
        self._now_ms = database.now_ms()
        self._raws: list[bytes | None] = []
        self.size_bytes = 0

    @property
    def complete(self) -> bool:
        """Whether all records were read, or as many as fit."""
        return len(self._raws) == len(self._names) or self.size_bytes > READ_BYTES_MAX

    def results(self) -> Sequence[Outcome]:
        """Return the outcomes."""
        results = read_all(self._raws, self._now_ms)
        rest = len(self._names) - len(self._raws)
        return [*results, *[NOT_READ] * rest] if rest else results

    def read(self, bytes_max: int) -> None:
        """Read the next records, until the values of all turns exceed `bytes_max`."""
        stop = min(len(self._names), len(self._raws) + RECORDS_PER_TURN_MAX)
        while (count := len(self._raws)) < stop and self.size_bytes <= bytes_max:
            end = count + self._database.keys_per_read(bytes_max - self.size_bytes, count, self.size_bytes)
            raws = self._database.get([*self._names[count : min(end, stop)]])
            self.size_bytes += sum(map(len, filter(None, raws)))
            self._raws += raws
