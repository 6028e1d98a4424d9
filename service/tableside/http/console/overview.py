"""The first page: all tables with their state, worst first, and the service as a whole."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request

from ...catalog import Catalog, CatalogEntry
from . import plots
from .console import Console
from .counts import Change
from .drawn import build_plots
from .guard import allowed
from .health import Stores
from .history import History
from .verdicts import Verdict, verdict

TABLES_SHOWN_MAX = 50
SPARK_STEP_S = 20.0


class Row(msgspec.Struct, frozen=True):
    """The row of one table."""

    name: str
    store: str
    kind: str
    verdict: Verdict
    now: Change | None
    spark: str = ""


async def live(console: Console, request: Request, name: str) -> Mapping[str, Any]:
    """Return the values of the page that are refreshed periodically, for tables whose name contains `name`."""
    catalog: Catalog = request.app.state.catalog
    stores = await console.health.stores(catalog.ping)
    entries = [entry for entry in catalog.entries() if allowed(request, entry.spec.name, "read")]
    rows = sorted((_row(entry, console.history, stores) for entry in entries), key=_worst_first)
    found = [row for row in rows if name.lower() in row.name.lower()]
    latest = console.history.latest
    return {
        "stores": [
            {"name": store, "known": store in stores, "error": stores.get(store)}
            for store in sorted({entry.store for entry in entries} | set(stores))
        ],
        "tables": len(entries),
        "ill": [row for row in rows if row.verdict.level == "ill"],
        "strained": [row for row in rows if row.verdict.level == "strained"],
        "rows": [_with_spark(row, console.history) for row in found[:TABLES_SHOWN_MAX]],
        "left_out": max(0, len(found) - TABLES_SHOWN_MAX),
        "plots_shown": build_plots(console.history),
        "seconds": None if (now := console.history.now()) is None else now.seconds,
        "in_flight": {} if latest is None else latest.reading.in_flight,
    }


def verdict_of(entry: CatalogEntry, now: Change | None, stores: Stores) -> Verdict:
    """Return the verdict on a table."""
    return verdict(now, stores.get(entry.store), entry.settings.deadline_s)


def _row(entry: CatalogEntry, history: History, stores: Stores) -> Row:
    name = entry.spec.name
    now = history.now(name)
    return Row(name, entry.store, entry.kind, verdict_of(entry, now, stores), now)


def _worst_first(row: Row) -> tuple[int, float, str]:
    return row.verdict.rank, 0.0 if row.now is None else -row.now.operations, row.name


def _with_spark(row: Row, history: History) -> Row:
    points = [
        (ago_s, change.per_s("reads", "writes")) for ago_s, change in history.changes(row.name, step_s=SPARK_STEP_S)
    ]
    return msgspec.structs.replace(row, spark=plots.spark(points))
