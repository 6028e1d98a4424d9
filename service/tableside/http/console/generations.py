"""The generations of a table on its page: a list of them, and the changes of which one is current."""

import msgspec

from ...catalog import Catalog, CatalogEntry, Generation
from ...core import Estimate, TableError
from ...core.errors import PreconditionFailed
from ..wire.answers import rfc3339
from .records import ErrorMessage, describe_error

CHANGED_SINCE = "Another generation became current after the page was loaded."
"""The meaning of `precondition_failed` here: buttons name the generation that was current when the page showed it."""


class Row(msgspec.Struct, frozen=True):
    """One generation. `action` is what activating it means, empty for the current one."""

    number: int
    state: str
    created_at: str | None
    activated_at: str | None
    size: Estimate
    note: str
    action: str


class Shown(msgspec.Struct, frozen=True):
    """The generations, the newest first, the number of the current one, and the result of the last action."""

    rows: list[Row]
    current: int = 0
    message: str = ""
    error: ErrorMessage | None = None


def has_generations(entry: CatalogEntry, name: str) -> bool:
    """Return whether the page of a table of this name shows generations. That of one generation does not."""
    return name == entry.spec.name and entry.settings.generations and not entry.spec.partitions


async def listed(catalog: Catalog, name: str, message: str = "") -> Shown:
    """Return the generations of a table, or the error of reading them."""
    try:
        found = await (await catalog.generations(name)).listed()
    except TableError as error:
        return Shown([], message=message, error=describe_error(error))
    current = next(one.number for one, _ in found if one.state == "current")
    return Shown([_row(one, size, current) for one, size in reversed(found)], current, message)


async def activate(catalog: Catalog, name: str, number: int, expected: int) -> Shown:
    """Make a generation current if `expected` still is."""
    try:
        await (await catalog.generations(name)).activate(number, expected)
    except TableError as error:
        return await _failed(catalog, name, error)
    return await listed(catalog, name, f"Generation {number} is current in every process.")


async def remove(catalog: Catalog, name: str, number: int) -> Shown:
    """Remove a generation that is not current."""
    try:
        await (await catalog.generations(name)).remove(number)
    except TableError as error:
        return await _failed(catalog, name, error)
    return await listed(catalog, name, f"Generation {number} was deleted.")


async def _failed(catalog: Catalog, name: str, error: TableError) -> Shown:
    described = describe_error(error)
    if isinstance(error, PreconditionFailed):
        described = msgspec.structs.replace(described, summary=CHANGED_SINCE)
    return msgspec.structs.replace(await listed(catalog, name), error=described)


def _row(one: Generation, size: Estimate, current: int) -> Row:
    return Row(
        one.number,
        one.state,
        rfc3339(one.created_ms) if one.created_ms else None,
        rfc3339(one.activated_ms) if one.activated_ms else None,
        size,
        one.note or "",
        "" if one.state == "current" else "Roll back" if one.number < current else "Activate",
    )
