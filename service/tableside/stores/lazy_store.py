"""A store that is opened when it is first used, because its backend may be unavailable at first."""

import asyncio
from collections.abc import Sequence

from ..core import (
    NO_DEADLINE,
    Backend,
    Budget,
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


class LazyStore:
    """A table's records in one backend, which may be unavailable at first.

    `siblings` are the stores of all partitions of the table, including this one. Their keys must have one schema.
    """

    def __init__(self, backend: Backend, spec: TableSpec, siblings: Sequence["LazyStore"] = ()) -> None:
        self._backend = backend
        self._requested_spec = spec
        self._siblings = siblings
        self._store: Store | None = None
        self._lock = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether the backend has opened the table."""
        return self._store is not None

    @property
    def spec(self) -> TableSpec:
        """Return the table's spec, or the requested one before the store is open."""
        return self._requested_spec if self._store is None else self._store.spec

    @property
    def capabilities(self) -> Capabilities:
        """Return the store's capabilities, or the defaults before it is open."""
        return Capabilities() if self._store is None else self._store.capabilities

    async def ensure_open(self, budget: Budget = NO_DEADLINE) -> Store:
        """Return the store, and open it first if necessary.

        Raise the errors of `Backend.store`. Raise StoreUnavailable if the store is not open at the deadline, and
        Unsupported if it does not fit the table or the other partitions.
        """
        if self._store is None:
            try:
                async with budget.timeout(), self._lock:
                    if self._store is None:
                        store = await self._backend.store(self._requested_spec)
                        if store.spec.ttl_s is not None and not store.capabilities.ttl:
                            raise Unsupported("ttl: its store keeps no expiry for this table, and ttl_s is set")
                        if any(other.is_open and other.spec.key != store.spec.key for other in self._siblings):
                            raise Unsupported(
                                "partitions: the table's key in this store differs from its key in the other partitions"
                            )
                        self._store = store
            except TimeoutError:
                raise StoreUnavailable(f"table {self._requested_spec.name!r}: its store does not respond") from None
        return self._store

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Apply the operations. If the store cannot be opened, its error is the outcome of each operation."""
        try:
            store = await self.ensure_open(budget)
        except TableError as error:
            return [error] * len(operations)
        return await store.apply(operations, budget)

    async def scan(self, scan: Scan) -> Page:
        """Read a page of records. Raise a TableError if it cannot be read."""
        return await (await self.ensure_open()).scan(scan)

    async def splits(self, count_max: int) -> list[bytes]:
        """Return disjoint parts that together cover the partition."""
        return await (await self.ensure_open()).splits(count_max)
