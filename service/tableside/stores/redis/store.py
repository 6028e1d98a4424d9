"""The Redis store: one table's operations, scans and splits."""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, cast

from ...core import (
    NO_DEADLINE,
    Applying,
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

Way: TypeAlias = Callable[[Batch, float], Applying]
"""How to apply writes by a deadline."""


class RedisStore:
    """The records of one table."""

    writes_per_call_max = 100
    """Redis runs nothing else while a script writes so many records: about a millisecond."""

    def __init__(
        self,
        servers: Servers,
        spec: TableSpec,
        names: KeyNames,
        index: PartitionIndex | None,
        health: WriteHealth,
        capabilities: Capabilities,
    ) -> None:
        self.spec = spec
        self.capabilities = capabilities
        self._servers = servers
        self._names = names
        self._health = health
        self._reads = RecordReader(servers)
        self._writes = RecordWriter(servers, names, index, self._reads, spec)
        edits = RecordEditor(self._writes, spec)
        self._scripts: dict[type, Way] = {Put: self._writes.put, Update: edits.apply, Delete: self._writes.delete}
        self._partition_scans: PartitionScanner | None = None
        if index is not None:
            self._partition_scans = PartitionScanner(servers, names, index, self._reads, self._writes)

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Apply the operations: those of each kind together, and the kinds concurrently."""
        return await apply_by_kind(operations, partial(self._apply_batch, until=budget.until))

    async def _apply_batch(self, batch: Batch, until: float) -> Sequence[Outcome]:
        if batch.kind is Get:
            return await self._reads.get(self._names.for_keys(batch.keys), until)
        outcomes = await apply_in_groups(batch, self._ways(batch), lambda way, writes: way(writes, until))
        self._health.observe(outcomes)
        return outcomes

    def _ways(self, batch: Batch) -> Sequence[Way]:
        """Return how to apply each write, or all: by a script in one round trip, by compare-and-set, or not at all."""
        compare_and_set = self._writes.compare_and_set.apply
        way = self._scripts[batch.kind] if batch.has_only(*_SCRIPTED[batch.kind]) else compare_and_set
        if not self.capabilities.tokens:
            return [self._reject if is_remembered(cast("Write", write)) else way for write in batch]
        if not batch.has("token"):
            return [way] if len(batch) else []
        tokens = shared(batch.cells("token"))
        scripted = [token is None or (batch.kind is not Delete and is_simple(token)) for token in tokens]
        return [way if one else compare_and_set for one in scripted]

    async def _reject(self, writes: Batch, until: float) -> Sequence[Outcome]:
        detail = "tokens, order: this Redis may evict what records remember (its maxmemory-policy is not noeviction)"
        return [Unsupported(detail)] * len(writes)

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
    Update: {"key", "changes", "default", "ttl_s", "token", "returning"},
    Delete: {"key", "token", "forget"},
}
"""The members of writes that scripts understand."""
