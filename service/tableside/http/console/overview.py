"""The overview: all tables with their health, worst first, and the service as a whole."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request

from ...catalog import Catalog, CatalogEntry
from ...settings import LimitSettings
from . import plots
from .console import Console
from .counts import Change
from .guard import allowed
from .health import Stores
from .history import History
from .plot_definitions import build_plots
from .plots import Spark
from .table_health import Health, load_shedding, table_health

TABLES_SHOWN_MAX = 50
SPARK_STEP_S = 20.0


class Row(msgspec.Struct, frozen=True):
    """The row of one table."""

    name: str
    store: str
    kind: str
    health: Health
    now: Change | None
    spark: Spark | None = None


async def live(console: Console, request: Request, name: str) -> Mapping[str, Any]:
    """Return the values of the page that are refreshed periodically, for tables whose name contains `name`."""
    catalog: Catalog = request.app.state.catalog
    stores = await console.health.stores(catalog.ping)
    entries = [entry for entry in catalog.entries() if allowed(request, entry.spec.name, "read")]
    rows = sorted((_row(entry, console.history, stores) for entry in entries), key=_worst_first)
    found = [row for row in rows if name.lower() in row.name.lower()]
    now = console.history.now()
    return {
        "stores": [
            {"name": store, "known": store in stores, "error": stores.get(store)}
            for store in sorted({entry.store for entry in entries} | set(stores))
        ],
        "tables": len(entries),
        "hidden": len(catalog.entries()) - len(entries),
        "alerts": [row for row in rows if row.health.level != "ok"],
        "shedding": load_shedding(now),
        "rows": [_with_spark(row, console.history) for row in found[:TABLES_SHOWN_MAX]],
        "left_out": max(0, len(found) - TABLES_SHOWN_MAX),
        "plots_shown": build_plots(console.history),
        "seconds": None if now is None else now.seconds,
        "in_flight": _in_flight(console, request.app.state.settings.limits),
    }


def health_of(entry: CatalogEntry, now: Change | None, stores: Stores) -> Health:
    """Return the health of a table."""
    return table_health(now, stores.get(entry.store), entry.settings.deadline_s)


def _in_flight(console: Console, limits: LimitSettings) -> list[tuple[str, float, int]]:
    """Return the name, amount and limit of each resource in flight. Each worker process has separate limits."""
    if (latest := console.history.latest) is None:
        return []
    limit_of = {
        "requests": limits.in_flight_max,
        "operations": limits.operations_in_flight_max,
        "bytes": limits.bytes_in_flight_max,
    }
    amounts = latest.reading.in_flight
    return [(what, amounts.get(what, 0), limit * console.workers) for what, limit in limit_of.items()]


def _row(entry: CatalogEntry, history: History, stores: Stores) -> Row:
    name = entry.spec.name
    now = history.now(name)
    return Row(name, entry.store, entry.kind, health_of(entry, now, stores), now)


def _worst_first(row: Row) -> tuple[int, float, str]:
    return row.health.rank, 0.0 if row.now is None else -row.now.operations, row.name


def _with_spark(row: Row, history: History) -> Row:
    points = [
        (ago_s, change.per_s("reads", "writes")) for ago_s, change in history.changes(row.name, step_s=SPARK_STEP_S)
    ]
    return msgspec.structs.replace(row, spark=plots.spark(points))
