"""A kind of store for small tables that people want to read: each table is a file of JSON lines, cached in memory."""

import asyncio
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel
from sortedcontainers import SortedDict
from tableside.core import (
    NO_DEADLINE,
    Budget,
    Capabilities,
    Changed,
    Clock,
    Get,
    Memory,
    NoOptions,
    Operation,
    Outcome,
    Page,
    PageBuilder,
    Range,
    Scan,
    Stored,
    StoreUnavailable,
    TableSpec,
    live_record,
    now_ms,
    scan_range,
    transition,
)


class FilesSettings(BaseModel, frozen=True, extra="forbid"):
    """The options of an entry under `stores`, besides its kind."""

    path: Path


class FilesBackend:
    """A folder of tables. Only one process may open it."""

    Settings, TableOptions, single_process = FilesSettings, NoOptions, True

    def __init__(self, path: Path, clock: Clock = now_ms) -> None:
        self._path, self._clock = path, clock

    @classmethod
    async def open(cls, settings: FilesSettings) -> "FilesBackend":
        settings.path.mkdir(parents=True, exist_ok=True)
        return cls(settings.path)

    async def store(self, spec: TableSpec) -> "FilesStore":
        return FilesStore(self._path / f"{spec.name_in_store}.jsonl", spec, self._clock)

    async def tables(self) -> list[str]:
        return sorted(file.stem for file in self._path.glob("*.jsonl"))

    async def ping(self) -> None:
        if not self._path.is_dir():
            raise StoreUnavailable("the folder of the tables is gone")

    async def close(self) -> None:
        pass


class FilesStore:
    """The records of one table, by their encoded keys."""

    capabilities = Capabilities()

    def __init__(self, file: Path, spec: TableSpec, clock: Clock) -> None:
        self.spec, self._file, self._clock, self._writing = spec, file, clock, asyncio.Lock()
        lines = file.read_bytes().splitlines() if file.exists() else []
        self._records = SortedDict(map(self._loaded, lines))

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
        return await asyncio.shield(asyncio.create_task(self._apply(operations)))  # completes after a cancellation

    async def _apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        async with self._writing:
            after, now = self._records.copy(), self._clock()
            outcomes = [self._outcome(operation, after, now) for operation in operations]
            if after != self._records:
                try:
                    await asyncio.to_thread(self._save, after)
                except OSError as error:
                    return [StoreUnavailable(f"the table's file cannot be written: {error.strerror}")] * len(outcomes)
                self._records = after
            return outcomes

    def _outcome(self, operation: Operation, records: "SortedDict[bytes, Stored]", now: int) -> Outcome:
        key = self.spec.key.encode(operation.key)
        if isinstance(operation, Get):
            return live_record(records.get(key), now)
        step = transition(records.get(key), operation, self.spec, now_ms=now, etag=uuid.uuid4().hex)
        if isinstance(step, Changed):
            records.pop(key, None)
            if step.stored is not None:
                records[key] = step.stored
        return step.outcome

    def _save(self, records: "SortedDict[bytes, Stored]") -> None:
        new = self._file.with_suffix(".new")
        with new.open("wb") as file:
            file.writelines(self._line(key, one) for key, one in records.items())
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)

    def _line(self, key: bytes, one: Stored) -> bytes:
        value = msgspec.Raw(one.value or b"null")
        return msgspec.json.encode((self.spec.key.decode(key), value, one.etag, one.expires_ms, one.memory)) + b"\n"

    def _loaded(self, line: bytes) -> tuple[bytes, Stored]:
        key, value, *rest = msgspec.json.decode(line, type=_LINE)
        text = None if value == b"null" else bytes(value)
        return self.spec.key.encode(self.spec.key.from_json(key)), Stored(text, *rest)

    async def scan(self, scan: Scan) -> Page:
        page, last, now, wanted = PageBuilder(scan), b"", self._clock(), scan_range(self.spec, scan)
        keys = [] if wanted.empty else self._records.irange(wanted.low, wanted.high, inclusive=(True, False))
        for key in keys:
            if page.complete:
                return Page(page.records, last)
            last, one = key, live_record(self._records[key], now)
            if one is None:
                page.skip()
            else:
                page.add(self.spec.key.decode(key), one)
        return Page(page.records, None)

    async def splits(self, count_max: int) -> list[bytes]:
        return [Range().to_split()]


_LINE = tuple[Any, msgspec.Raw, str, int, Memory]
