"""Opens stores and tables of the catalog and handles the failures."""

import asyncio
import logging

from .. import stores
from ..core import Backend, StoreUnavailable, TableError
from ..settings import Fault, SettingsError, StoreSettings
from .open_table import CatalogEntry

log = logging.getLogger(__name__)

RELOAD_OPEN_MAX_S = 2.0
"""How long a reload waits for its new tables. Slower ones open when they are first used."""


async def open_backend(name: str, store: StoreSettings) -> Backend:
    """Open a store. An error names it."""
    try:
        return await stores.backend_type(store.kind).open(store.options)
    except TableError as error:
        raise type(error)(f"store {name!r}: {error.detail}") from error


async def open_or_defer(entry: CatalogEntry) -> None:
    """Open a table. If its store cannot be reached, log that and leave the opening to the first request."""
    try:
        await entry.opened()
    except StoreUnavailable as error:
        log.warning("table %s will be opened when it is first used: %s", entry.spec.name, error.detail)
    except TableError as error:
        raise type(error)(f"table {entry.spec.name!r}, in store {entry.store!r}: {error.detail}") from error


async def open_all_or_none(entries: list[CatalogEntry]) -> None:
    """Open the tables of changed settings, as far as their stores answer in time.

    If a store rejects a table, close all of them and raise SettingsError.
    """
    results = await asyncio.gather(*map(_open_in_time, entries), return_exceptions=True)
    failures = {entry.spec.name: result for entry, result in zip(entries, results, strict=True) if result is not None}
    if not failures:
        return
    await asyncio.gather(*(entry.close() for entry in entries))
    for failure in failures.values():
        if not isinstance(failure, TableError):
            raise failure
    raise SettingsError(
        [
            Fault(f"tables.{name}", failure.detail)
            for name, failure in failures.items()
            if isinstance(failure, TableError)
        ]
    )


async def _open_in_time(entry: CatalogEntry) -> None:
    try:
        async with asyncio.timeout(RELOAD_OPEN_MAX_S):
            await open_or_defer(entry)
    except TimeoutError:
        log.warning("table %s will be opened when it is first used: its store has not answered yet", entry.spec.name)
