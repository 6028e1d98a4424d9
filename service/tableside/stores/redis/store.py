"""The Redis store: one table's operations, scans and splits."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from ...core import (
    Capabilities,
    CompareAndSet,
    Delete,
    Get,
    GetColumn,
    Operation,
    Outcome,
    Page,
    Put,
    PutColumn,
    Scan,
    TableSpec,
    Unsupported,
    WriteHealth,
    Yielder,
    are_plain_puts,
    chunks_of,
    gather_bounded,
    is_unconditional,
)
from .compare_and_set import RedisVersionedRecords
from .edits import RecordEditor, is_editable
from .keys import KeyNames
from .partition_index import PartitionIndex
from .partition_scans import PartitionScanner
from .reads import RecordReader
from .record_scripts import RecordScripts
from .scans import TableScanner
from .topology import Servers, slot_splits
from .writes import RecordWriter, is_put_once

CHECKED_PUTS = 1000
"""How many puts are checked for options before other requests have a turn."""


class RedisStore:
    """The records of one table. `never_evicts`: Redis keeps the data of tokens and of the indexes of partitions."""

    updates_per_call_max = 100
    """Redis runs nothing else while a script updates so many records: about a millisecond."""

    def __init__(
        self,
        servers: Servers,
        spec: TableSpec,
        names: KeyNames,
        index: PartitionIndex | None,
        health: WriteHealth,
        *,
        never_evicts: bool,
    ) -> None:
        exclusive = index is not None and index.exclusive and never_evicts
        self.spec = spec
        self.capabilities = Capabilities(tokens=never_evicts, sorted_scan=False, partition_scan=exclusive)
        self._servers = servers
        self._health = health
        self._names = names
        self._reads = RecordReader(servers, names)
        scripts = RecordScripts(index)
        self._writes = RecordWriter(servers, names, scripts, spec)
        self._puts_columns = spec.ttl_s is None and index is None and not servers.is_cluster
        self._scans = TableScanner(servers, names, self._reads)
        self._partition_scans = (
            None if index is None else PartitionScanner(servers, names, self._reads, index, exclusive=exclusive)
        )
        # The server's clock decides expiry: with a clock that is always 0, expiry times are times to live.
        compare_and_set = partial(CompareAndSet, spec, clock=lambda: 0)
        self._conditional = compare_and_set(RedisVersionedRecords(servers, names, self._reads, scripts, tokened=False))
        self._tokened = compare_and_set(RedisVersionedRecords(servers, names, self._reads, scripts, tokened=True))
        self._edits = RecordEditor(servers, names, scripts, spec, self._conditional)
        self._tokened_edits = RecordEditor(servers, names, scripts, spec, self._tokened)

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
        """Apply the operations: those of each kind together, and the kinds concurrently."""
        if isinstance(operations, GetColumn):
            return await self._reads.get_names(self._names.for_column(operations.keys), until)
        outcomes: Sequence[Outcome]
        if isinstance(operations, PutColumn) and self._puts_columns:
            outcomes = await self._writes.put_column(operations, until)
        elif set(map(type, operations)) <= {Get}:
            return await self._reads.get([operation.key for operation in operations], until)
        elif self.spec.ttl_s is None and await _are_plain_puts(operations):
            outcomes = await self._writes.put(cast("Sequence[Put]", operations), until)
        else:
            outcomes = await self._apply_by_kind(operations, until)
        self._health.observe(outcomes)
        return outcomes

    async def scan(self, scan: Scan) -> Page:
        """Read a page: of an indexed partition in sort order, else in no particular order."""
        if self._partition_scans is not None and scan.partition is not None and scan.split is None:
            return await self._partition_scans.page(scan, scan.partition)
        return await self._scans.page(scan)

    async def splits(self, count_max: int) -> list[bytes]:
        """Divide the slots of a cluster. A single server is one split."""
        nodes = await self._servers.nodes(math.inf)
        return slot_splits([slots for _, slots in nodes] if self._servers.is_cluster else [], count_max)

    async def _apply_by_kind(self, operations: Sequence[Operation], until: float) -> list[Outcome]:
        outcomes: list[Outcome] = [None] * len(operations)
        kinds: dict[str, list[int]] = {}
        yielder = Yielder()
        for index, operation in enumerate(operations):
            kinds.setdefault(self._kind(operation), []).append(index)
            if yielder.due:
                await yielder.maybe_yield()
        calls = [
            self._apply_kind(kind, [operations[index] for index in indexes], until) for kind, indexes in kinds.items()
        ]
        for indexes, results in zip(kinds.values(), await gather_bounded(calls, len(calls)), strict=True):
            for index, outcome in zip(indexes, results, strict=True):
                outcomes[index] = outcome
        return outcomes

    def _kind(self, operation: Operation) -> str:
        if isinstance(operation, Get):
            return "get"
        if operation.token is not None:
            if not self.capabilities.tokens:
                return "unsupported"
            if is_put_once(operation):
                return "tokened put"
            return "tokened edit" if is_editable(operation) else "tokened"
        if is_editable(operation):
            return "edit"
        return "unconditional" if isinstance(operation, Put | Delete) and is_unconditional(operation) else "conditional"

    async def _apply_kind(self, kind: str, operations: Sequence[Any], until: float) -> Sequence[Outcome]:
        match kind:
            case "get":
                return await self._reads.get([operation.key for operation in operations], until)
            case "unconditional":
                return await self._writes.apply(operations, until)
            case "edit":
                return await self._edits.apply(operations, until)
            case "tokened edit":
                return await self._tokened_edits.apply(operations, until)
            case "tokened put":
                return await self._writes.put_once(operations, self._tokened, until)
            case "conditional":
                return await self._conditional.apply(operations, until)
            case "tokened":
                return await self._tokened.apply(operations, until)
            case _:
                return [Unsupported(_NO_TOKENS) for _ in operations]


async def _are_plain_puts(operations: Sequence[Operation]) -> bool:
    yielder = Yielder()
    for some in chunks_of(operations, CHECKED_PUTS):
        if not are_plain_puts(some):
            return False
        await yielder.maybe_yield()
    return True


_NO_TOKENS = "tokens: this Redis may evict tokens (its maxmemory-policy is not noeviction)"
