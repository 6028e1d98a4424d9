"""One partition's store, opened when it is first asked: one that is away must not keep the others from answering."""

import asyncio
import math
from collections.abc import Sequence

from ...core import (
    Backend,
    Capabilities,
    Operation,
    Outcome,
    Page,
    Scan,
    Store,
    StoreUnavailable,
    TableError,
    TableSpec,
    Unsupported,
)


class Opening:
    """The records of a table in one backend, which need not be there yet; `family` are those of all partitions."""

    def __init__(self, backend: Backend, spec: TableSpec, family: Sequence["Opening"] = ()) -> None:
        self._backend = backend
        self._asked = spec
        self._family = family
        self._store: Store | None = None
        self._lock = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether the backend has been asked for it."""
        return self._store is not None

    @property
    def spec(self) -> TableSpec:
        """Return what the table is, as far as that is known."""
        return self._asked if self._store is None else self._store.spec

    @property
    def capabilities(self) -> Capabilities:
        """Return what can be done beyond the four operations; everything while that is not known."""
        return Capabilities() if self._store is None else self._store.capabilities

    async def opened(self, until: float = math.inf) -> Store:
        """Return the store, opened now if it is not yet. Raise what `Backend.store` raises, or if it takes too long."""
        if self._store is None:
            try:
                async with asyncio.timeout_at(None if until == math.inf else until), self._lock:
                    if self._store is None:
                        self._store = self._checked(await self._backend.store(self._asked))
            except TimeoutError:
                raise StoreUnavailable(f"table {self._asked.name!r}: its store does not answer") from None
        return self._store

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Do the operations; where the store cannot be opened, that is what becomes of each."""
        store = self._store
        if store is None:
            try:
                store = await self.opened(until)
            except TableError as error:
                return [error] * len(operations)
        return await store.apply(operations, until)

    async def scan(self, scan: Scan) -> Page:
        """Read a page of records. Raise a TableError if it cannot be read."""
        return await (await self.opened()).scan(scan)

    async def splits(self, count_max: int) -> list[bytes]:
        """Return disjoint parts that together cover the partition."""
        return await (await self.opened()).splits(count_max)

    def _checked(self, store: Store) -> Store:
        if store.spec.ttl_s is not None and not store.capabilities.ttl:
            raise Unsupported("ttl: its store keeps no expiry for this table, and ttl_s is set")
        if any(other.is_open and other.spec.key != store.spec.key for other in self._family):
            raise Unsupported("partitions: the key that the table has in its store is not that of the others")
        return store
