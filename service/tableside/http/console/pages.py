"""The contents of pages except for records: the overview of all tables, and the activity and settings of one.

A table has a health: a level, a label and the reason, so that an operator sees immediately where to look.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
import orjson
from starlette.requests import Request

from ...catalog import Catalog, CatalogEntry
from ...core import StoreUnavailable
from ..endpoints.service import describe
from ..request_context import context_of
from ..wire.members import OUTCOME_MEMBERS
from ..wire.problems import CODES
from . import numbers
from .console import FAILURES, REFUSED, SHED, SUCCESSES, Change, Console

TABLES_SHOWN_MAX = 50

ERROR_RATE_CRITICAL = 0.05
ERROR_RATE_WARNING = 0.001

LATENCY_SHARE_WARNING = 0.25
"""From this share of a table's deadline on, the 99th percentile of the latency is a warning."""

Level = Literal["critical", "warning", "ok"]

LEVELS: tuple[Level, ...] = ("critical", "warning", "ok")


class Health(msgspec.Struct, frozen=True):
    """The level, a label for it, and the reason, which is empty if the level is ok."""

    level: Level
    label: str
    reason: str = ""


def table_health(change: Change | None, unreachable: StoreUnavailable | None, deadline_s: float) -> Health:
    """Judge a table by its recent counters, and by whether its store can be reached."""
    if unreachable is not None:
        return Health("critical", "store unreachable", unreachable.detail)
    if change is None or not change.operations:
        return Health("ok", "idle")
    error_rate = change.failed_share or 0.0
    if error_rate >= ERROR_RATE_WARNING:
        most_frequent = max(FAILURES, key=lambda code: change[code])
        reason = f"{numbers.share(error_rate)} of operations failed; most frequent error: {most_frequent}"
        critical = error_rate >= ERROR_RATE_CRITICAL
        return Health("critical", "high error rate", reason) if critical else Health("warning", "errors", reason)
    p99_s = change.latency_s(0.99) or 0.0
    if p99_s >= deadline_s * LATENCY_SHARE_WARNING:
        reason = f"p99 latency is {numbers.seconds(p99_s)}, the deadline is {numbers.seconds(deadline_s)}"
        return Health("warning", "high latency", reason)
    return Health("ok", "OK")


def load_shedding(total: Change | None) -> Health | None:
    """Return the health of a service that rejects requests because it is overloaded, None if it rejects none.

    `total` is the change of what no table has. Rejected requests have no outcome in any table.
    """
    if total is None or not total[SHED]:
        return None
    reason = f"{numbers.rate(total.per_s(SHED))} requests rejected with 503, because a limit in flight was reached"
    return Health("warning", "load shedding", reason)


class TableRow(msgspec.Struct, frozen=True):
    """One table in the overview."""

    name: str
    store: str
    kind: str
    health: Health
    now: Change | None


async def overview(console: Console, request: Request, name: str) -> Mapping[str, Any]:
    """Return the values of the overview. It shows tables whose name has `name`."""
    catalog: Catalog = request.app.state.catalog
    stores, caller = await catalog.reachability.recent(), context_of(request.scope).permissions
    entries = [entry for entry in catalog.entries() if caller.may("read", entry.spec.name)]
    rows = sorted((_table_row(entry, console, stores) for entry in entries), key=_worst_first)
    found = [row for row in rows if name.lower() in row.name.lower()]
    limits = request.app.state.settings.limits
    limit_of = {
        "requests": limits.in_flight_max,
        "operations": limits.operations_in_flight_max,
        "bytes": limits.bytes_in_flight_max,
    }
    now = console.now()
    return {
        "name": name,
        "stores": sorted(stores.items()),
        "tables": len(entries),
        "alerts": [row for row in rows if row.health.level != "ok"],
        "shedding": load_shedding(now),
        "rows": found[:TABLES_SHOWN_MAX],
        "left_out": max(0, len(found) - TABLES_SHOWN_MAX),
        "seconds": None if now is None else now.seconds,
        # Each worker process has separate limits.
        "in_flight": [(what, console.in_flight.get(what, 0), limit_of[what] * console.workers) for what in limit_of],
    }


def _table_row(entry: CatalogEntry, console: Console, stores: Mapping[str, StoreUnavailable | None]) -> TableRow:
    name = entry.spec.name
    now = console.now(name)
    health = table_health(now, stores.get(entry.store.name), entry.settings.deadline_s)
    return TableRow(name, entry.store.name, entry.store.kind, health, now)


def _worst_first(row: TableRow) -> tuple[int, float, str]:
    return LEVELS.index(row.health.level), 0.0 if row.now is None else -row.now.operations, row.name


async def activity(console: Console, request: Request, entry: CatalogEntry) -> Mapping[str, Any]:
    """Return the values of the page of a table."""
    catalog: Catalog = request.app.state.catalog
    stores = await catalog.reachability.recent()
    now = console.now(entry.spec.name)
    described = describe(entry, request.app.state.settings.limits)
    return {
        "health": table_health(now, stores.get(entry.store.name), entry.settings.deadline_s),
        "shedding": load_shedding(console.now()),
        "now": now,
        "outcomes": [] if now is None else list(_outcomes(now)),
        "settings": orjson.dumps(described, option=orjson.OPT_INDENT_2).decode(),
    }


_OUTCOMES = {
    "found": "gets that found a record",
    "absent": "gets that found no record",
    "written": "writes that were applied",
    "created": "writes that created a record by if_absent or by a default",
    **{member.name: member.counted for member in OUTCOME_MEMBERS},
    "dropped": "writes to no partition",
    REFUSED: "operations that were rejected because of the request, for example 412 or 422",
    **{code: CODES[code][1] for code in FAILURES},
}


def _outcomes(now: Change) -> Iterator[tuple[str, float, str]]:
    """Yield the name, the rate per second and the meaning of each outcome that occurred."""
    for code in (*FAILURES, REFUSED, *SUCCESSES):
        if now[code]:
            yield code, now.per_s(code), _OUTCOMES[code]
