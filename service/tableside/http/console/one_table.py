"""The page of one table except for its records: its state, the activity of its policies, and its settings."""

from collections.abc import Iterator, Mapping
from typing import Any

from starlette.requests import Request

from ...catalog import Catalog, CatalogEntry
from ...core import Json, JsonObject
from ..wire.table_description import describe
from . import numbers
from .console import Console
from .counts import FAILURES, REFUSED, SUCCESSES, Change
from .drawn import build_plots
from .overview import verdict_of


async def live(console: Console, request: Request, entry: CatalogEntry) -> Mapping[str, Any]:
    """Return the values of the page that are refreshed periodically."""
    catalog: Catalog = request.app.state.catalog
    stores = await console.health.stores(catalog.ping)
    name = entry.spec.name
    now = console.history.now(name)
    return {
        "verdict": verdict_of(entry, now, stores),
        "plots_shown": build_plots(console.history, name),
        "seconds": None if now is None else now.seconds,
        "policies": [] if now is None else list(_policies(now, entry)),
        "outcomes": [] if now is None else [(code, now.per_s(code)) for code in _outcomes(now)],
    }


def settings(request: Request, entry: CatalogEntry) -> list[tuple[str, str]]:
    """Return the settings and capabilities of a table, by path."""
    described = describe(entry, request.app.state.settings.limits)
    shown = [(path, text) for path, text in _flat(described) if not path.startswith(("name", "store."))]
    return [(path.removeprefix("policies."), text) for path, text in shown]


def _policies(now: Change, entry: CatalogEntry) -> Iterator[tuple[str, str, str]]:
    """Yield the rows on policies: a name, a number, and a remark."""
    calls = now["calls"]
    called_s = now["calls seconds"] / calls if calls else None
    yield "Store calls", f"{numbers.count(now.per_s('calls'))} /s", f"{numbers.seconds(called_s)} each"
    yield "Calls under way", numbers.count(now.per_s("calls seconds")), f"mean, of {entry.settings.concurrency_max}"
    yield "Calls that failed", f"{numbers.count(now.per_s('calls failed'))} /s", ""
    yield "Tried again", f"{numbers.count(now.per_s('retries'))} /s", f"{_rate(now, 'given up')} given up"
    limited = now.per_s("read limit", "write limit")
    yield "Throttled here", f"{numbers.count(limited)} /s", _limits(entry)
    waited = f"{_rate(now, 'crowded out')} turned away"
    yield "Calls that waited their turn", f"{numbers.count(now.per_s('waited'))} /s", waited
    yield "Attempts out of time", f"{numbers.count(now.per_s('timeouts'))} /s", ""


def _rate(now: Change, name: str) -> str:
    return f"{numbers.count(now.per_s(name))} /s"


def _limits(entry: CatalogEntry) -> str:
    read, write = entry.settings.read.rate_per_s, entry.settings.write.rate_per_s
    if read is None and write is None:
        return "no rate limit"
    return f"limits: {numbers.count(read)} reads, {numbers.count(write)} writes /s"


def _outcomes(now: Change) -> Iterator[str]:
    return (code for code in (*FAILURES, REFUSED, *SUCCESSES) if now[code])


def _flat(described: JsonObject, path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in described.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield path + name, _text(value)


def _text(value: Json) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list():
            return ", ".join(_field(field) for field in value)
    return str(value)


def _field(field: Json) -> str:
    assert isinstance(field, dict)
    return f"{field['name']}: {field['type']}" if field["name"] is not None else str(field["type"])
