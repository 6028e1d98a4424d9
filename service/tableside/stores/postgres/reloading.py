"""A store that reads the definition of its table again when the table has changed, for example by a migration."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ...core import (
    Capabilities,
    DeadlineExceeded,
    InvalidOperation,
    Operation,
    Outcome,
    Page,
    Scan,
    TableError,
    TableNotFound,
    TableSpec,
    Unsupported,
)
from .errors import SchemaChanged
from .store import PostgresStore

Result = TypeVar("Result")


class ReloadingStore:
    """The store of one table. It replaces its PostgresStore, whose statements and columns never change.

    If a statement no longer fits the table, nothing was applied. An operation whose value does not fit the columns was
    not sent. Both are repeated once if the definition is another one now.
    """

    def __init__(self, store: PostgresStore, open_again: Callable[[], Awaitable[PostgresStore]]) -> None:
        self._store = store
        self._open_again = open_again
        self._suspicious = {SchemaChanged, TableNotFound, *([InvalidOperation] if store.has_typed_columns else [])}

    @property
    def spec(self) -> TableSpec:
        """Return the table's description."""
        return self._store.spec

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities beyond the four operations."""
        return self._store.capabilities

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
        """Apply operations. Repeat those that failed because the table has changed."""
        used = self._store
        outcomes = await used.apply(operations, until)
        if self._suspicious.isdisjoint(map(type, outcomes)):
            return outcomes
        failed = [index for index, outcome in enumerate(outcomes) if type(outcome) in self._suspicious]
        final = [*outcomes]
        try:
            if await self._reload(used, until):
                again = await self._store.apply([operations[index] for index in failed], until)
                for index, outcome in zip(failed, again, strict=True):
                    final[index] = outcome
        except TableError as error:
            return [error if type(outcome) is SchemaChanged else outcome for outcome in outcomes]
        return final

    async def scan(self, scan: Scan) -> Page:
        """Read a page in key order."""
        return await self._repeated(lambda store: store.scan(scan))

    async def splits(self, count_max: int) -> list[bytes]:
        """Split the table into key ranges with similar numbers of records."""
        return await self._repeated(lambda store: store.splits(count_max))

    async def sweep(self) -> None:
        """Delete some expired records. Raise a TableError if that fails."""
        await self._repeated(lambda store: store.sweep())

    async def _repeated(self, call: Callable[[PostgresStore], Awaitable[Result]]) -> Result:
        used = self._store
        try:
            return await call(used)
        except (SchemaChanged, TableNotFound):
            if not await self._reload(used, math.inf):
                raise
        return await call(self._store)

    async def _reload(self, used: PostgresStore, until: float) -> bool:
        """Read the definition again. Return whether it differs from the one used."""
        try:
            async with asyncio.timeout_at(until if until < math.inf else None):
                current = await self._open_again()
        except TimeoutError:
            raise DeadlineExceeded(f"table {self.spec.name!r}: the deadline was exceeded") from None
        if current.spec.key != used.spec.key:
            raise Unsupported("the key of the table has changed: restart the service")
        self._store = current
        return current.table != used.table
