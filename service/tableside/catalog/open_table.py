"""A table of the catalog: where its records are, and the policies around its store, which can become others."""

import asyncio

from ..core import Backend, Store, StoreUnavailable, TableSpec, Unsupported
from ..settings import TableLocation, TableSettings
from .admission import InFlightLimit
from .stack import Stack, StackContext, build_stack
from .table import Table
from .table_metrics import TableMetrics


class CatalogEntry:
    """A table of the catalog: where its records are, and the open table from when its store could first be asked."""

    def __init__(
        self,
        spec: TableSpec,
        settings: TableSettings,
        backend: Backend,
        around: StackContext,
        operations: InFlightLimit | None,
        locations: frozenset[TableLocation],
    ) -> None:
        self.spec = spec
        self.settings = settings
        self.locations = locations
        self.table: Table | None = None
        self._backend = backend
        self._around = around
        self._operations = operations
        self._found: Store | None = None
        self._stack: Stack | None = None
        self._ending: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._left = False

    @property
    def store(self) -> str:
        """Return the name of the store that holds it."""
        return self.settings.store

    @property
    def kind(self) -> str:
        """Return the kind of that store."""
        return self._around.kind

    async def opened(self) -> Table:
        """Return the table, opened now if it is not yet; callers that come meanwhile wait for the one opening.

        Raise what `Backend.store` raises, and StoreUnavailable too if it takes longer than an operation may, or if the
        table has been closed meanwhile.
        """
        if self.table is None:
            try:
                async with asyncio.timeout(self.settings.deadline_s), self._opening:
                    if self.table is None:
                        self._open(await self._backend.store(self.spec))
                    self._check_stays()
            except TimeoutError:
                raise StoreUnavailable(f"table {self.spec.name!r}: its store does not answer") from None
        assert self.table is not None
        return self.table

    def change(self, settings: TableSettings) -> None:
        """Put other policies around the same store: at once for whoever asks from now on.

        What is under way ends as it began. Until it has, a new cache keeps nothing: what goes through the old policies
        could make it stale.
        """
        old_table, old = self.table, self._stack
        self.settings = settings
        if old_table is None or old is None or self._found is None:
            return
        new = self._wrap(self._found)
        new.suspend()
        self._ending = asyncio.get_running_loop().create_task(_replaced(self._ending, old_table, old, new))

    def disable_cache_until(self, before: "asyncio.Task[None]") -> None:
        """Keep nothing until another table has ended whose records these were: what it writes is not seen here."""
        self._ending = before
        if self._stack is not None:
            self._keep_after(before, self._stack)

    async def close(self) -> None:
        """Finish what was accepted."""
        self._left = True
        if self._ending is not None:
            await self._ending
        if self.table is not None and self._stack is not None:
            await _ended(self.table, self._stack)

    def _check_stays(self) -> None:
        if self._left:
            raise StoreUnavailable(f"table {self.spec.name!r} was closed while it was being opened")

    def _open(self, store: Store) -> None:
        self._check_stays()
        if store.spec.ttl_s is not None and not store.capabilities.ttl:
            raise Unsupported("ttl: its store keeps no expiry for this table, and ttl_s is set")
        self.spec = store.spec
        self._found = store
        policies = self._wrap(store)
        if self._ending is not None:
            self._keep_after(self._ending, policies)

    def _keep_after(self, before: "asyncio.Task[None]", policies: Stack) -> None:
        policies.suspend()
        self._ending = asyncio.get_running_loop().create_task(_warmed(before, policies))

    def _wrap(self, store: Store) -> Stack:
        self._stack = build_stack(store, self.settings, self._around)
        self.table = Table(
            self._stack.top,
            deadline_s=self.settings.deadline_s,
            measure=TableMetrics(self._around.metrics.measure, self.spec.name),
            operations=self._operations,
        )
        return self._stack


async def _replaced(before: "asyncio.Task[None] | None", table: Table, old: Stack, new: Stack) -> None:
    """Let policies end that others stand in for, and those before them; then the new cache can keep what it reads."""
    if before is not None:
        await before
    await _ended(table, old)
    new.resume()


async def _warmed(before: "asyncio.Task[None]", policies: Stack) -> None:
    await before
    policies.resume()


async def _ended(table: Table, policies: Stack) -> None:
    """Return when nothing is under way in these."""
    await table.drained()
    await policies.close()
