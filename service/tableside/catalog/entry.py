"""One content of a table: opens it, replaces its policies when the settings change, and closes it."""

import asyncio
import contextlib
from typing import Any

import msgspec

from ..core import Estimate, KeySchema, Scan, Store, StoreUnavailable, TableNotFound, TableSpec, Unsupported
from ..core.store import Policy, drop_records
from ..policies import Cache
from ..settings import TableLocation, TableSettings
from .open_stores import OpenStore
from .stack import Limits, Stack, build_stack
from .table import Table

CREATE_MAX_S = 60.0
"""How long a store may take to create the table of a generation."""


class CatalogEntry:
    """One generation of a table: its spec, its settings and the locations of its records.

    `table` is None until the store could first be reached. The generations of a table share `limits`.
    """

    def __init__(
        self,
        spec: TableSpec,
        settings: TableSettings,
        store: OpenStore,
        locations: frozenset[TableLocation] = frozenset(),
        limits: Limits | None = None,
    ) -> None:
        self.spec = spec
        self.settings = settings
        self.store = store
        self.locations = locations
        self.table: Table | None = None
        self._limits = {} if limits is None else limits
        self._stack: Stack | None = None
        self._cache_enabled: asyncio.Future[Any] | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    def of_generation(self, number: int, *, loading: bool) -> "CatalogEntry":
        """Return an entry of another generation of the table."""
        spec = msgspec.structs.replace(self.spec, generation=number, loading=loading, create=False)
        entry = CatalogEntry(spec, self.settings, self.store, self.locations, self._limits)
        entry._cache_enabled = self._cache_enabled
        return entry

    async def opened(self) -> Table:
        """Return the table. Open it if necessary. Concurrent calls wait for one opening.

        Raise the errors of `Backend.store`. Raise StoreUnavailable if opening takes longer than an operation may, or
        if the table is closed in the meantime.
        """
        if self.table is not None:
            return self.table
        try:
            async with asyncio.timeout(self.settings.deadline_s), self._opening:
                table: Table | None = self.table
                while table is None:
                    spec = self.spec
                    store = await self.store.backend.store(spec)
                    if self.spec is spec:  # else `release` has changed it in the meantime
                        table = self._open(store)
                self._check_not_closed()
                return table
        except TimeoutError:
            raise StoreUnavailable(f"table {self.spec.name!r}: its store does not answer") from None

    async def created(self, key: KeySchema) -> None:
        """Create the table with this key in its store, and open it. Raise the errors of `opened`."""
        spec = msgspec.structs.replace(self.spec, key=key, key_given=True, create=True)
        try:
            async with asyncio.timeout(CREATE_MAX_S):
                await self.store.backend.store(spec)
        except TimeoutError:
            raise StoreUnavailable(f"table {spec.name!r}: its store takes long to create a generation") from None
        await self.opened()

    async def estimate(self) -> Estimate:
        """Return about the number and the size of the records."""
        await self.opened()
        if self._stack is None or not hasattr(self._stack.store, "estimate"):
            return Estimate()
        found: Estimate = await self._stack.store.estimate()
        return found

    async def is_empty(self) -> bool:
        """Return whether the store has no records under the table's name there, or none that it finds at once."""
        try:
            store = await self.store.backend.store(msgspec.structs.replace(self.spec, create=False))
        except TableNotFound:
            return True
        return not (await store.scan(Scan(1))).records

    async def drop(self) -> None:
        """Remove the records from the store, and the table if it has one. Raise a TableError if that fails."""
        self.release()
        with contextlib.suppress(TableNotFound):
            await drop_records(await self.store.backend.store(msgspec.structs.replace(self.spec, create=False)))

    def release(self) -> None:
        """Close the policies when the operations in flight have finished. A later operation opens the table again."""
        self.spec = msgspec.structs.replace(self.spec, loading=False)
        if self._stack is not None:
            self._replace(self._stack, [])
        self.table = self._stack = None

    def change(self, settings: TableSettings, limits: Limits) -> None:
        """Put other policies, with these limits, around the same store. Later operations use them.

        Operations in flight finish with the old policies. Until then the new cache is suspended, because their writes
        could make it stale.
        """
        self.settings, self._limits = settings, limits
        if (old := self._stack) is not None:
            self._replace(old, self._wrap(old.store).policies)

    def disable_cache_until(self, previous_closed: asyncio.Future[Any]) -> None:
        """Suspend the cache until a previous table with the same records is closed: its writes bypass this cache."""
        self._cache_enabled = previous_closed
        if self._stack is not None:
            self._replace(None, self._stack.policies)

    async def close(self) -> None:
        """Wait for the operations in flight, and close the policies."""
        self._closed = True
        if self._cache_enabled is not None:
            await self._cache_enabled
        if self._stack is not None:
            await self._stack.close()

    def _check_not_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"table {self.spec.name!r} was closed while it was being opened")

    def _open(self, store: Store) -> Table:
        self._check_not_closed()
        if store.spec.ttl_s is not None and not store.capabilities.ttl:
            raise Unsupported("ttl: its store keeps no expiry for this table, and ttl_s is set")
        self.spec = store.spec
        stack = self._wrap(store)
        if self._cache_enabled is not None:
            self._replace(None, stack.policies)
        return stack.table

    def _wrap(self, store: Store) -> Stack:
        self._stack = stack = build_stack(store, self.settings, self.store, self._limits)
        self.table = stack.table
        return stack

    def _replace(self, old: Stack | None, new: list[Policy]) -> None:
        """Close the old policies in the background, after still older ones, and suspend the new caches until then."""
        earlier, caches = self._cache_enabled, [policy for policy in new if isinstance(policy, Cache)]

        async def replaced() -> None:
            if earlier is not None:
                await earlier
            if old is not None:
                await old.close()
            for cache in caches:
                cache.resume()

        for cache in caches:
            cache.suspend()
        self._cache_enabled = asyncio.get_running_loop().create_task(replaced())
