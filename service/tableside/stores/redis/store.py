"""The Redis store: one table's operations, scans and splits."""

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import cast

from ...core import (
    NO_DEADLINE,
    Batch,
    Budget,
    Capabilities,
    Delete,
    Get,
    Operation,
    Outcome,
    Page,
    Put,
    Scan,
    TableSpec,
    Unsupported,
    Update,
    Write,
    WriteHealth,
    apply_by_kind,
    apply_in_groups,
    is_remembered,
    shared,
)
from .edits import RecordEditor
from .errors import expected
from .keys import ALL_SLOTS, KeyNames, PartitionIndex, format_slots, slot_splits
from .records import RecordReader, is_simple
from .scans import COUNT_MAX, COUNT_SPARSE_MAX, Keyspace, PartitionScanner, Position, read_page
from .scripts import Command
from .servers import Servers
from .writes import RecordWriter

UNLINK_MAX_S = 5.0
"""How long the removal of the names from one SCAN may take."""


class RedisStore:
    """The records of one table.

    `never_evicts`: Redis keeps the data of tokens and of the indexes of partitions. `evicts_all`: it may lose which
    generation is current.
    """

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
        evicts_all: bool = False,
    ) -> None:
        exclusive = index is not None and index.exclusive
        self.spec = spec
        self.capabilities = Capabilities(
            tokens=never_evicts, sorted_scan=False, partition_scan=exclusive, generations=not evicts_all
        )
        self._servers = servers
        self._names = names
        self._health = health
        self._reads = RecordReader(servers)
        self._writes = RecordWriter(servers, names, index, self._reads, spec)
        self._edits = RecordEditor(self._writes, spec)
        self._partition_scans: PartitionScanner | None = None
        if index is not None:
            self._partition_scans = PartitionScanner(servers, names, index, self._reads, self._writes)

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Apply the operations: those of each kind together, and the kinds concurrently."""
        return await apply_by_kind(operations, partial(self._apply_batch, until=budget.until))

    async def _apply_batch(self, batch: Batch, until: float) -> Sequence[Outcome]:
        if batch.kind is Get:
            return await self._reads.get(self._names.for_keys(batch.keys), until)
        outcomes = await apply_in_groups(batch, self._ways(batch), partial(self._write, until=until))
        self._health.observe(outcomes)
        return outcomes

    def _ways(self, batch: Batch) -> Sequence[str]:
        """Return how to apply each write: by a script in one round trip, by compare-and-set, or not at all."""
        way = "script" if batch.has_only(*_SCRIPTED[batch.kind]) else "compare and set"
        if not self.capabilities.tokens:
            return ["no memory" if is_remembered(cast("Write", write)) else way for write in batch]
        if not batch.has("token"):
            return [way] * len(batch)
        tokens = shared(batch.cells("token"))
        scripted = [token is None or (batch.kind is not Delete and is_simple(token)) for token in tokens]
        return [way if one else "compare and set" for one in scripted] * (len(batch) // len(tokens))

    async def _write(self, way: str, batch: Batch, until: float) -> Sequence[Outcome]:
        if way == "no memory":
            return [Unsupported(_NO_MEMORY)] * len(batch)
        if way == "compare and set":
            return await self._writes.compare_and_set.apply(batch, until)
        if batch.kind is Delete:
            return await self._writes.delete(batch, until)
        return await (self._writes.put if batch.kind is Put else self._edits.apply)(batch, until)

    async def scan(self, scan: Scan) -> Page:
        """Read a page: of an indexed partition in sort order, else in no particular order."""
        if self._partition_scans is not None and scan.partition is not None and scan.split is None:
            return await self._partition_scans.page(scan, scan.partition)
        return await read_page(scan, self._servers, self._names, self._reads)

    async def splits(self, count_max: int) -> list[bytes]:
        """Divide the slots of a cluster. A single server is one split."""
        nodes = await self._servers.nodes(math.inf)
        return slot_splits([slots for _, slots in nodes] if self._servers.is_cluster else [], count_max)

    async def drop(self) -> None:
        """Remove the records, side keys and indexes. Raise a TableError if that fails.

        One SCAN finds all of them, because their names contain the table's prefix. A drop that was interrupted leaves
        a smaller table, which another drop removes.
        """
        keyspace = Keyspace(self._servers, self._names.every_pattern, Position(format_slots(ALL_SLOTS)))
        count = COUNT_MAX
        while keyspace.position is not None:
            if (found := await keyspace.scan(count)) is None:
                continue
            owned = [name.decode() for name in found[1] if self._names.owns(name)]
            groups = self._servers.groups(owned)
            commands = [Command(("UNLINK", *(owned[at] for at in group)), slot) for group, slot in groups]
            for reply in await self._servers.run(commands, time.monotonic() + UNLINK_MAX_S, writes=True):
                expected(reply, int, "unknown")
            count = COUNT_MAX if owned else min(count * 2, COUNT_SPARSE_MAX)
            await keyspace.advance()


_SCRIPTED: dict[type, set[str]] = {
    Put: {"key", "value", "ttl_s", "token", "order", "returning"},
    Update: {"key", "changes", "default", "token", "returning"},
    Delete: {"key", "token", "forget"},
}
"""The members of writes that scripts understand."""

_NO_MEMORY = "tokens, order: this Redis may evict what records remember (its maxmemory-policy is not noeviction)"
