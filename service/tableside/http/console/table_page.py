"""The page of one table except for its records: its health, the activity of its policies, and its settings."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from starlette.requests import Request

from ...catalog import Catalog, CatalogEntry
from ...core import Json, JsonObject
from ..wire.table_description import describe
from . import numbers
from .console import Console
from .counts import FAILURES, REFUSED, SUCCESSES, Change
from .error_messages import SUMMARIES
from .overview import health_of
from .plot_definitions import build_plots
from .table_health import load_shedding


async def live(console: Console, request: Request, entry: CatalogEntry) -> Mapping[str, Any]:
    """Return the values of the page that are refreshed periodically."""
    catalog: Catalog = request.app.state.catalog
    stores = await console.health.stores(catalog.ping)
    name = entry.spec.name
    now = console.history.now(name)
    return {
        "health": health_of(entry, now, stores),
        "shedding": load_shedding(console.history.now()),
        "plots_shown": build_plots(console.history, name),
        "seconds": None if now is None else now.seconds,
        "policies": [] if now is None else list(_policies(now, entry)),
        "outcomes": [] if now is None else list(_outcomes(now)),
    }


class Row(msgspec.Struct, frozen=True):
    """A row of a table of numbers: its name, the number with its unit, a remark, and an explanation of the number."""

    name: str
    number: str
    remark: str
    explanation: str


_OUTCOMES = {
    "found": "Gets that found a record",
    "absent": "Gets that found no record",
    "written": "Writes that were applied",
    "created": "Writes that created a record by if_absent or by a default",
    "replayed": "Repeated writes, recognized by their token and not applied again",
    "dropped": "Writes to no partition",
    REFUSED: "Operations that were rejected because of the request, for example 412 or 422",
    **SUMMARIES,
}


def settings(request: Request, entry: CatalogEntry) -> list[tuple[str, str]]:
    """Return the settings and capabilities of a table, by path."""
    described = describe(entry, request.app.state.settings.limits)
    shown = [(path, text) for path, text in _flat(described) if not path.startswith(("name", "store."))]
    return [(path.removeprefix("policies."), text) for path, text in shown]


def _policies(now: Change, entry: CatalogEntry) -> Iterator[Row]:
    """Yield the rows on store calls and policies."""
    calls, concurrency_max = now["calls"], entry.settings.concurrency_max
    mean_s = now["calls seconds"] / calls if calls else None
    yield Row("Store calls", _rate(now, "calls"), f"mean {numbers.seconds(mean_s)}", "Calls to the store")
    yield Row(
        "Concurrent store calls",
        numbers.count(now.per_s("calls seconds")),
        f"of {concurrency_max}",
        "Mean number of store calls in progress, and the limit concurrency_max",
    )
    yield Row("Failed store calls", _rate(now, "calls failed"), "", "Store calls with at least one failed operation")
    exhausted = f"{_rate(now, 'given up')} exhausted"
    yield Row("Retries", _rate(now, "retries"), exhausted, "Retries of operations, and operations out of retries")
    throttled = _rate(now, "read limit", "write limit")
    yield Row("Throttled operations", throttled, _limits(entry), "Operations that exceeded a rate limit of the table")
    rejected = f"{_rate(now, 'crowded out')} rejected"
    yield Row("Queued store calls", _rate(now, "waited"), rejected, "Store calls that exceeded concurrency_max")
    yield Row("Attempt timeouts", _rate(now, "timeouts"), "", "Operations whose attempt exceeded timeout_s")


def _rate(now: Change, *names: str) -> str:
    return numbers.rate(now.per_s(*names))


def _limits(entry: CatalogEntry) -> str:
    read, write = entry.settings.read.rate_per_s, entry.settings.write.rate_per_s
    if read is None and write is None:
        return "no rate limit"
    return f"limits: {numbers.rate(read)} reads, {numbers.rate(write)} writes"


def _outcomes(now: Change) -> Iterator[Row]:
    for code in (*FAILURES, REFUSED, *SUCCESSES):
        if now[code]:
            yield Row(code, _rate(now, code), "", _OUTCOMES[code])


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
