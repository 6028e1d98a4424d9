"""Writes of one table, which the writer thread executes: a turn is one batch of the database."""

from collections.abc import Iterable, Sequence

from rocksdict import WriteBatch

from ...core import (
    Changed,
    Get,
    Operation,
    Outcome,
    Put,
    PutColumn,
    RecordUnreadable,
    Stored,
    TableSpec,
    Write,
    Written,
    WrittenColumn,
    are_plain_puts,
    etag_column,
    transition,
)
from .database import Database
from .group_commit import BYTES_PER_TURN_MAX, Turn
from .reads import RecordReader
from .records import is_plain, pack, pack_all_plain, pack_plain, pack_versions, read, stored_for_write
from .tokened_puts import TokenedValue, pack_tokened, tokened_values

KEYS_PER_READ_MAX = 32
"""How many records a write reads in one call: a turn of the writer thread may end after any of them."""


class RecordWriter:
    """Writes records of one table, whose keys in the database begin with `prefix`."""

    def __init__(self, database: Database, spec: TableSpec, prefix: bytes, reader: RecordReader) -> None:
        self._database = database
        self._spec = spec
        self._prefix = prefix
        self._reader = reader

    def write(self, operations: Sequence[Operation], turn: Turn) -> Sequence[Outcome]:
        """Execute the first operations, as many as the turn allows, and return their outcomes."""
        if isinstance(operations, PutColumn) and self._spec.ttl_s is None and self._database.all_plain(self._prefix):
            return self._put_column(operations[: turn.operations_left], turn)
        batch, outcomes, read_bytes = WriteBatch(raw_mode=True), list[Outcome](), 0
        while len(outcomes) < len(operations) and not (outcomes and turn.over):
            start = len(outcomes)
            part = operations[start : start + min(KEYS_PER_READ_MAX, turn.operations_left)]
            keys = self._spec.key.encode_all([operation.key for operation in part], self._prefix)
            puts = part if self._spec.ttl_s is None and are_plain_puts(part) else None
            if puts is not None and self._database.all_plain(self._prefix):
                outcomes += self._put_plain(batch, keys, puts, turn)
                continue
            raws = self._database.get(keys[: self._database.keys_per_read(BYTES_PER_TURN_MAX, start, read_bytes)])
            read_bytes += sum([len(raw) for raw in raws if raw is not None])
            if puts is not None and all(raw is None or is_plain(raw) for raw in raws):
                turn.spend(sum([len(raw) for raw in raws if raw is not None]), 0)
                outcomes += self._put_plain(batch, keys[: len(raws)], puts[: len(raws)], turn)
            elif self._spec.ttl_s is None and (values := tokened_values(part, raws)) is not None:
                turn.spend(sum([len(raw) for raw in raws if raw is not None]), 0)
                outcomes += self._put_tokened(batch, keys[: len(raws)], values, turn)
            else:
                outcomes += self._apply_each(batch, list(zip(keys, raws, part, strict=False)), turn)
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
        self, batch: WriteBatch, part: Sequence[tuple[bytes, bytes | None, Operation]], turn: Turn
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
                outcomes.append(self._add_write(batch, key, stored_for_write(raw), operation, now))
            written_bytes = batch.size_in_bytes()
            turn.spend(len(raw or b"") + written_bytes - before_bytes)
            before_bytes = written_bytes
        return outcomes

    def _add_write(
        self, batch: WriteBatch, key: bytes, stored: Stored | RecordUnreadable | None, operation: Write, now: int
    ) -> Outcome:
        step = transition(stored, operation, self._spec, now_ms=now, etag=self._database.next_etag())
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
