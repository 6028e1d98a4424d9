"""Writes of one table, which the writer thread executes: a turn is one batch of the database."""

from collections.abc import Sequence

from rocksdict import WriteBatch

from ...core import (
    Batch,
    Changed,
    Get,
    Operation,
    Outcome,
    Put,
    Results,
    TableSpec,
    Transition,
    Written,
    expiries_ms,
    joined_outcomes,
    put_columns,
    transition,
)
from .database import Database
from .group_commit import BYTES_PER_TURN_MAX, Turn
from .records import may_replace, pack, pack_puts, pack_value, unpack

KEYS_PER_READ_MAX = 250
"""How many records a write reads in one call: a turn of the writer thread may end after any of them."""

_UNREAD = ("key", "value", "ttl_s", "returning")
"""The members of a put that do not depend on the present record, unless that remembers writes."""


class RecordWriter:
    """Writes records of one table, whose keys in the database begin with `prefix`."""

    def __init__(self, database: Database, spec: TableSpec, prefix: bytes) -> None:
        self._database = database
        self._spec = spec
        self._prefix = prefix

    def write(self, writes: Batch, turn: Turn) -> Sequence[Outcome]:
        """Execute the first writes, as many as the turn allows, and return their outcomes."""
        batch, read_bytes, count, total = WriteBatch(raw_mode=True), 0, 0, len(writes)
        outcomes: list[Sequence[Outcome]] = []
        blind = not self._database.remembers_writes(self._prefix) and writes.kind is Put and writes.has_only(*_UNREAD)
        # A single write has no columns to share work between: it is decided like any other operation.
        in_columns = total > 1 and writes.kind is Put and writes.has_only("token", "order", *_UNREAD)
        apply = self._put if in_columns else self._apply_each
        while count < total and not (count and turn.over):
            most = min(turn.operations_left, total if blind else KEYS_PER_READ_MAX)
            part = writes[count : count + most] if count or most < total else writes
            keys = self._spec.key.encode_all(part.columns["key"], self._prefix)
            if blind:
                raws: Sequence[bytes | None] = [None] * len(keys)
            else:
                raws = self._database.get(keys[: self._database.keys_per_read(BYTES_PER_TURN_MAX, count, read_bytes)])
                read_bytes += sum(map(len, filter(None, raws)))
                part = part[: len(raws)]
            outcomes.append(apply(batch, keys, raws, part, turn))
            count += len(outcomes[-1])
        if not batch.is_empty():
            self._database.write(batch)
        return joined_outcomes(outcomes)

    def _put(
        self, batch: WriteBatch, keys: Sequence[bytes], raws: Sequence[bytes | None], puts: Batch, turn: Turn
    ) -> Sequence[Outcome]:
        """Put values without conditions, as many as the turn allows in bytes but at least one.

        `raws` are the present records, None for each if the table remembers no writes.
        """
        turn.spend(sum(map(len, filter(None, raws))), 0)
        now, versions = self._database.now_ms(), self._database.next_versions(len(puts))
        expiries, memories = expiries_ms(puts.cells("ttl_s"), self._spec.ttl_s, now), pack_puts(puts)
        packed: list[bytes | None] = [*map(pack_value, puts.columns["value"], versions, expiries, memories)]
        decided: dict[int, Outcome] = {}
        for at, (raw, memory) in enumerate(zip(raws, memories, strict=False)):
            if not may_replace(raw, memory):
                step = self._step(raw, puts[at], now, f"{versions[at]:016x}")
                packed[at] = pack(step.stored) if isinstance(step, Changed) and step.stored is not None else None
                decided[at] = step.outcome
        remembered = puts.has("token") or puts.has("order") or bool(decided)
        count = self._add_all(batch, keys, packed, turn, remembered=remembered)
        etags = [f"{version:016x}" for version in versions[:count]]
        written = Results(Written, put_columns(puts, etags, expiries[:count]))
        return [decided.get(at, outcome) for at, outcome in enumerate(written)] if decided else written

    def _add_all(
        self, batch: WriteBatch, keys: Sequence[bytes], raws: Sequence[bytes | None], turn: Turn, *, remembered: bool
    ) -> int:
        """Add the first records, as many as the turn allows in bytes but at least one. Return their number."""
        add, sizes_bytes, left_bytes = batch.put, list[int](), turn.bytes_left
        for key, raw in zip(keys, raws, strict=False):
            if raw is not None:
                add(key, raw)
            size_bytes = len(raw or b"")
            sizes_bytes.append(size_bytes)
            left_bytes -= size_bytes
            if left_bytes <= 0:
                break
        self._database.note_write(max(sizes_bytes), self._prefix if remembered else None)
        turn.spend(sum(sizes_bytes), len(sizes_bytes))
        return len(sizes_bytes)

    def _apply_each(
        self, batch: WriteBatch, keys: Sequence[bytes], raws: Sequence[bytes | None], writes: Batch, turn: Turn
    ) -> list[Outcome]:
        now = self._database.now_ms()
        outcomes: list[Outcome] = []
        for key, raw, write in zip(keys, raws, writes, strict=False):
            if outcomes and turn.over:
                break
            step = self._step(raw, write, now, f"{self._database.next_versions(1)[0]:016x}")
            outcomes.append(step.outcome)
            packed = b""
            if isinstance(step, Changed) and step.stored is not None:
                packed = pack(step.stored)
                self._database.note_write(len(packed), self._prefix if step.stored.memory else None)
                batch.put(key, packed)
            elif isinstance(step, Changed):
                batch.delete(key)
            turn.spend(len(raw or b"") + len(packed))
        return outcomes

    def _step(self, raw: bytes | None, write: Operation, now: int, etag: str) -> Transition:
        assert not isinstance(write, Get)
        stored = None if raw is None else unpack(raw)
        return transition(stored, write, self._spec, now_ms=now, etag=etag)
