"""The records of one table in Redis: how each operation goes."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...core import (
    Capabilities,
    CompareAndSet,
    Delete,
    Get,
    Operation,
    Outcome,
    Page,
    Put,
    Scan,
    TableSpec,
    Unsupported,
    gather_bounded,
    is_unconditional,
)
from .compare_and_set import RedisExchange
from .keys import Names
from .reads import Reads
from .scans import Scans
from .topology import Servers, splits
from .writes import Writes


class RedisStore:
    """The records of one table."""

    def __init__(self, servers: Servers, spec: TableSpec, names: Names, *, tokens: bool) -> None:
        self.spec = spec
        self.capabilities = Capabilities(tokens=tokens, sorted_scan=False)
        self._servers = servers
        self._reads = Reads(servers, names)
        self._writes = Writes(servers, names, spec)
        self._scans = Scans(servers, names, self._reads)
        # Expiry is by the server's clock: with a clock that stands at 0, times are times to live.
        decided = partial(CompareAndSet, spec, clock=lambda: 0)
        self._plain = decided(RedisExchange(servers, names, self._reads, tokened=False))
        self._tokened = decided(RedisExchange(servers, names, self._reads, tokened=True))

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Do the operations: of each kind together, and the kinds side by side."""
        if set(map(type, operations)) <= {Get}:
            return await self._reads.get([operation.key for operation in operations], until)
        outcomes: list[Outcome] = [None] * len(operations)
        kinds: dict[str, list[int]] = {}
        for index, operation in enumerate(operations):
            kinds.setdefault(self._kind(operation), []).append(index)
        works = [self._done(kind, [operations[index] for index in indexes], until) for kind, indexes in kinds.items()]
        for indexes, answers in zip(kinds.values(), await gather_bounded(works, len(works)), strict=True):
            for index, answer in zip(indexes, answers, strict=True):
                outcomes[index] = answer
        return outcomes

    async def scan(self, scan: Scan) -> Page:
        """Read a page, in no order."""
        return await self._scans.page(scan)

    async def splits(self, count_max: int) -> list[bytes]:
        """Divide the slots of a cluster; a single server is one part."""
        nodes = await self._servers.nodes(math.inf)
        return splits([slots for _, slots in nodes] if self._servers.several else [], count_max)

    def _kind(self, operation: Operation) -> str:
        if isinstance(operation, Get):
            return "get"
        if operation.token is not None:
            return "tokened" if self.capabilities.tokens else "refused"
        return "write" if isinstance(operation, Put | Delete) and is_unconditional(operation) else "decided"

    async def _done(self, kind: str, operations: Sequence[Any], until: float) -> list[Outcome]:
        match kind:
            case "get":
                return await self._reads.get([operation.key for operation in operations], until)
            case "write":
                return await self._writes.apply(operations, until)
            case "decided":
                return await self._plain.apply(operations, until)
            case "tokened":
                return await self._tokened.apply(operations, until)
            case _:
                return [Unsupported(_NO_TOKENS) for _ in operations]


_NO_TOKENS = "tokens: this Redis may evict what it should remember (its maxmemory-policy is not noeviction)"
