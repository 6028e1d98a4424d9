"""The RocksDB store: one table's operations."""

import logging
import math
import time
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

import pyarrow as pa
from rocksdict import WriteBatch

from ...core import (
    NOT_READ,
    READ_BYTES_MAX,
    Capabilities,
    Changed,
    DeadlineExceeded,
    Get,
    GetColumn,
    Operation,
    Outcome,
    Page,
    Put,
    PutColumn,
    RecordUnreadable,
    Scan,
    Stored,
    StoreUnavailable,
    TableError,
    TableSpec,
    Transition,
    Update,
    Write,
    WriteHealth,
    WritesRejected,
    Written,
    WrittenColumn,
    are_plain_puts,
    decide,
    etag_column,
    takes_long,
    transition,
    value_bytes,
    with_etag,
)
from .database import Database
from .group_commit import BYTES_PER_TURN_MAX, Turn
from .reads import RecordReader
from .records import identity, is_plain, pack, pack_all_plain, pack_plain, pack_versions, read, unpack
from .scans import Scanner
from .tokened_puts import TokenedValue, pack_tokened, tokened_values

log = logging.getLogger(__name__)

Result = TypeVar("Result")

ATTEMPTS_MAX = 4
"""How often a long update is decided apart from the writer thread, if its record changes each time."""

KEYS_PER_READ_MAX = 32
"""How many records a write reads in one call: a turn of the writer thread may end after any of them."""

_LONG = StoreUnavailable("the update takes long and must be decided apart from the writer thread")


class RocksdbStore:
    """The records of one table: the keys of the database that begin with the table's prefix."""

    capabilities = Capabilities()

    def __init__(self, database: Database, spec: TableSpec, health: WriteHealth) -> None:
        self._database = database
        self._health = health
        self.spec = spec
        self._prefix = spec.name_in_store.encode() + b"\0"
        self._reader = RecordReader(database, self._prefix, spec.key)
        self._scanner = Scanner(database, spec, self._prefix)

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
        """Read all keys in one call, or write in turns of bounded size, which are durable when this returns."""
        turns: list[Sequence[Outcome]] = []
        count = read_bytes = 0
        try:
            if isinstance(operations, GetColumn):
                return await self._reader.get(operations)
            if not isinstance(operations, PutColumn) and set(map(type, operations)) <= {Get}:
                return await self._reader.get(operations)
            while count < len(operations):
                if count and (stopped := self._stopped(read_bytes, until)) is not None:
                    return _joined([*turns, [stopped] * (len(operations) - count)])
                remaining = operations[count:] if count else operations
                written = await self._database.run_write(partial(self._write, remaining))
                if not isinstance(written, WrittenColumn):
                    written = await self._with_long(remaining, written, until)
                    read_bytes += value_bytes(written)
                turns.append(written)
                count += len(written)
        except Exception as error:
            log.exception("RocksDB failed")
            turns.append([self._unavailable(error, operation) for operation in operations[count:]])
        outcomes = _joined(turns)
        self._health.observe(outcomes)
        return outcomes

    async def scan(self, scan: Scan) -> Page:
        """Read a page in the order of keys."""
        return await self._scanned(self._scanner.page(scan))

    async def splits(self, count_max: int) -> list[bytes]:
        """Divide the table into parts of similar size."""
        return await self._scanned(self._scanner.splits(count_max))

    async def _scanned(self, work: Awaitable[Result]) -> Result:
        try:
            return await work
        except TableError:
            raise
        except Exception as error:
            log.exception("RocksDB failed")
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception, operation: Operation | None = None) -> TableError:
        """Return the outcome for an error of the driver, whose text may contain paths: only the log has it."""
        if isinstance(error, TableError):
            return error
        if operation is None or isinstance(operation, Get):
            return StoreUnavailable(f"table {self.spec.name!r}: RocksDB could not read")
        return WritesRejected(f"table {self.spec.name!r}: RocksDB could not write", applied="unknown")

    # Operations

    async def _with_long(
        self, operations: Sequence[Operation], outcomes: Sequence[Outcome], until: float
    ) -> Sequence[Outcome]:
        """Execute the updates whose outcomes are `_LONG`."""
        if _LONG not in outcomes:
            return outcomes
        return [
            await self._update_long(operation, until) if outcome is _LONG else outcome
            for operation, outcome in zip(operations, outcomes, strict=False)
        ]

    async def _update_long(self, update: Operation, until: float) -> Outcome:
        try:
            return await self._decide_long(update, until)
        except Exception as error:
            log.exception("RocksDB failed")
            return self._unavailable(error, update)

    async def _decide_long(self, update: Operation, until: float) -> Outcome:
        """Decide a long update apart from the writer thread, and write it if the record is still the same."""
        assert isinstance(update, Update)
        [key] = self.spec.key.encode_all([update.key], self._prefix)
        for _ in range(ATTEMPTS_MAX):
            if time.monotonic() >= until:
                return DeadlineExceeded(f"table {self.spec.name!r}: the deadline was over")
            version, step = await self._decided(key, update)
            [outcome] = await self._database.run_write(partial(self._replace, key, version, step))
            if outcome is not _LONG:
                return outcome
        [outcome] = await self._database.run_write(partial(self._write, [update], any_length=True))
        return outcome

    async def _decided(self, key: bytes, update: Update) -> tuple[bytes | None, Transition]:
        """Return the `identity` of the record and the effect of the update. The record itself is freed."""
        version, stored = await self._database.run_read(partial(self._read_stored, key))
        return version, await decide(stored, update, self.spec, now_ms=self._database.now_ms(), etag="")

    def _read_stored(self, key: bytes) -> tuple[bytes | None, Stored | RecordUnreadable | None]:
        [raw] = self._database.get([key])
        return None if raw is None else identity(raw), _stored(raw)

    def _replace(self, key: bytes, version: bytes | None, step: Transition, turn: Turn) -> list[Outcome]:
        """Write a decision if the record still has this `identity`. Otherwise the outcome is `_LONG`."""
        [raw] = self._database.get([key])
        turn.spend(len(raw or b""))
        if (None if raw is None else identity(raw)) != version:
            return [_LONG]
        del raw  # It may be large, and the driver is about to copy the new value.
        if isinstance(step, Changed):
            batch, step = WriteBatch(raw_mode=True), with_etag(step, self._database.next_etag())
            self._add_record(batch, key, step.stored)
            turn.spend(batch.size_in_bytes(), 0)
            self._database.write(batch)
        return [step.outcome]

    def _write(self, operations: Sequence[Operation], turn: Turn, *, any_length: bool = False) -> Sequence[Outcome]:
        """Execute the first operations, as many as the turn allows, and return their outcomes.

        Those of updates that would take long are `_LONG`, unless `any_length` is true.
        """
        if isinstance(operations, PutColumn) and self.spec.ttl_s is None and self._database.all_plain(self._prefix):
            return self._put_column(operations[: turn.operations_left], turn)
        batch, outcomes, read_bytes = WriteBatch(raw_mode=True), list[Outcome](), 0
        while len(outcomes) < len(operations) and not (outcomes and turn.over):
            start = len(outcomes)
            part = operations[start : start + min(KEYS_PER_READ_MAX, turn.operations_left)]
            keys = self.spec.key.encode_all([operation.key for operation in part], self._prefix)
            puts = part if self.spec.ttl_s is None and are_plain_puts(part) else None
            if puts is not None and self._database.all_plain(self._prefix):
                outcomes += self._put_plain(batch, keys, puts, turn)
                continue
            raws = self._database.get(keys[: self._database.keys_per_read(BYTES_PER_TURN_MAX, start, read_bytes)])
            read_bytes += sum([len(raw) for raw in raws if raw is not None])
            if puts is not None and all(raw is None or is_plain(raw) for raw in raws):
                turn.spend(sum([len(raw) for raw in raws if raw is not None]), 0)
                outcomes += self._put_plain(batch, keys[: len(raws)], puts[: len(raws)], turn)
            elif self.spec.ttl_s is None and (values := tokened_values(part, raws)) is not None:
                turn.spend(sum([len(raw) for raw in raws if raw is not None]), 0)
                outcomes += self._put_tokened(batch, keys[: len(raws)], values, turn)
            else:
                outcomes += self._apply_each(
                    batch, list(zip(keys, raws, part, strict=False)), turn, any_length=any_length
                )
        if not batch.is_empty():
            self._database.write(batch)
        return outcomes

    def _put_column(self, puts: PutColumn, turn: Turn) -> WrittenColumn:
        batch, versions = WriteBatch(raw_mode=True), pack_versions(self._database.next_versions(len(puts)))
        raws = pack_all_plain(puts.values, versions)
        count = self._add_all(batch, self._reader.names(puts), raws, turn, not_plain=None)
        self._database.write(batch)
        return WrittenColumn(etag_column(versions.hex(), puts.keys)[:count])

    def _put_plain(self, batch: WriteBatch, keys: Sequence[bytes], puts: Sequence[Put], turn: Turn) -> list[Outcome]:
        versions = self._database.next_versions(len(puts))
        raws = (pack_plain(put.value, version) for put, version in zip(puts, versions, strict=True))
        count = self._add_all(batch, keys, raws, turn, not_plain=None)
        return [Written(f"{version:016x}") for version in versions[:count]]

    def _put_tokened(
        self, batch: WriteBatch, keys: Sequence[bytes], values: Sequence[TokenedValue], turn: Turn
    ) -> list[Outcome]:
        versions = self._database.next_versions(len(values))
        raws = (pack_tokened(value, version) for value, version in zip(values, versions, strict=True))
        count = self._add_all(batch, keys, raws, turn, not_plain=self._prefix)
        return [Written(f"{version:016x}") for version in versions[:count]]

    def _add_all(
        self, batch: WriteBatch, keys: Sequence[bytes], raws: Iterable[bytes], turn: Turn, *, not_plain: bytes | None
    ) -> int:
        """Add the first records, as many as the turn allows in bytes but at least one. Return their number."""
        add, sizes_bytes, left_bytes = batch.put, list[int](), turn.bytes_left
        for key, raw in zip(keys, raws, strict=False):
            add(key, raw)
            size_bytes = len(raw)
            sizes_bytes.append(size_bytes)
            left_bytes -= size_bytes
            if left_bytes <= 0:
                break
        self._database.note_write(max(sizes_bytes), not_plain)
        turn.spend(sum(sizes_bytes), len(sizes_bytes))
        return len(sizes_bytes)

    def _apply_each(
        self,
        batch: WriteBatch,
        part: Sequence[tuple[bytes, bytes | None, Operation]],
        turn: Turn,
        *,
        any_length: bool,
    ) -> list[Outcome]:
        """Execute operations one by one, until the turn has ended."""
        now, outcomes = self._database.now_ms(), list[Outcome]()
        before_bytes = batch.size_in_bytes()
        for key, raw, operation in part:
            if outcomes and turn.over:
                break
            if isinstance(operation, Get):
                outcomes.append(read(raw, now))
            else:
                stored = _stored(raw)
                long = not any_length and takes_long(stored, operation)
                outcomes.append(_LONG if long else self._add_write(batch, key, stored, operation, now))
            written_bytes = batch.size_in_bytes()
            turn.spend(len(raw or b"") + written_bytes - before_bytes)
            before_bytes = written_bytes
        return outcomes

    def _stopped(self, read_bytes: int, until: float) -> TableError | None:
        """Return the outcome of operations that are not attempted after others, or None if they are attempted.

        `read_bytes` is the size of the values that the others returned.
        """
        if time.monotonic() >= until:
            return DeadlineExceeded(f"table {self.spec.name!r}: the deadline was over")
        return NOT_READ if read_bytes > READ_BYTES_MAX else None

    def _add_write(
        self, batch: WriteBatch, key: bytes, stored: Stored | RecordUnreadable | None, operation: Write, now: int
    ) -> Outcome:
        step = transition(stored, operation, self.spec, now_ms=now, etag=self._database.next_etag())
        if isinstance(step, Changed):
            self._add_record(batch, key, step.stored)
        return step.outcome

    def _add_record(self, batch: WriteBatch, key: bytes, stored: Stored | None) -> None:
        if stored is None:
            batch.delete(key)
        else:
            raw = pack(stored)
            self._database.note_write(len(raw), None if is_plain(raw) else self._prefix)
            batch.put(key, raw)


def _joined(turns: Sequence[Sequence[Outcome]]) -> Sequence[Outcome]:
    """Return the outcomes of several turns, in a column if all are in columns."""
    columns = [turn.etags for turn in turns if isinstance(turn, WrittenColumn)]
    if columns and len(columns) == len(turns):
        return WrittenColumn(pa.concat_arrays(columns))
    return list(chain.from_iterable(turns))


def _stored(raw: bytes | None) -> Stored | RecordUnreadable | None:
    try:
        return None if raw is None else unpack(raw)
    except RecordUnreadable as error:
        return error.with_traceback(None)
