"""Removes or estimates all records of a table, by the store's own means if it has them."""

from .errors import TableError
from .operations import Delete
from .store import Drops, Estimate, Estimates, Scan, Store

DELETED_AT_ONCE = 1000
"""How many records one call deletes."""


async def drop(store: Store) -> None:
    """Remove a table's records. Raise a TableError if that fails: a second call removes the rest."""
    if isinstance(store, Drops):
        await store.drop()
        return
    position: bytes | None = b""
    while position is not None:
        page = await store.scan(Scan(DELETED_AT_ONCE, position=position or None))
        deletes = [Delete(key, forget=True) for key, _ in page.records]
        outcomes = await store.apply(deletes) if deletes else []
        if failed := next((outcome for outcome in outcomes if isinstance(outcome, TableError)), None):
            raise failed
        position = page.position


async def estimate(store: Store) -> Estimate:
    """Return about the number and the size of a table's records, as far as the store can tell them cheaply."""
    return await store.estimate() if isinstance(store, Estimates) else Estimate()
