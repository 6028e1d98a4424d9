"""The contents of pages except for records: the overview of all tables, and the activity and settings of one.

A table has a health: a level, a label and the reason, so that an operator sees immediately where to look.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
from starlette.requests import Request

from ...catalog import Catalog, CatalogEntry
from ...core import Json, JsonObject, StoreUnavailable
from ...settings import LimitSettings
from ..endpoints.service import describe
from ..request_context import context_of
from ..wire.members import OUTCOME_MEMBERS
from . import numbers
from .console import FAILURES, REFUSED, SHED, SUCCESSES, Change, Console, History
from .plots import Spark, build_plots, spark
from .records import summary

TABLES_SHOWN_MAX = 50
SPARK_STEP_S = 20.0

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

    `total` is the change of all tables together. Rejected requests have no outcome in any table.
    """
    if total is None or not total[SHED]:
        return None
    reason = f"{numbers.rate(total.per_s(SHED))} requests rejected with 503, because a limit in flight was reached"
    return Health("warning", "load shedding", reason)


class TableRow(msgspec.Struct, frozen=True):
    """The row of one table in the overview."""

    name: str
    store: str
    kind: str
    health: Health
    now: Change | None
    spark: Spark | None = None


async def overview(console: Console, request: Request, name: str) -> Mapping[str, Any]:
    """Return the values of the overview, which are refreshed periodically. It shows tables whose name has `name`."""
    catalog: Catalog = request.app.state.catalog
    stores, caller = await catalog.recent_ping(), context_of(request.scope).permissions
    entries = [entry for entry in catalog.entries() if caller.may("read", entry.spec.name)]
    rows = sorted((_table_row(entry, console.history, stores) for entry in entries), key=_worst_first)
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


def _table_row(entry: CatalogEntry, history: History, stores: Mapping[str, StoreUnavailable | None]) -> TableRow:
    name = entry.spec.name
    now = history.now(name)
    health = table_health(now, stores.get(entry.store), entry.settings.deadline_s)
    return TableRow(name, entry.store, entry.kind, health, now)


def _worst_first(row: TableRow) -> tuple[int, float, str]:
    return LEVELS.index(row.health.level), 0.0 if row.now is None else -row.now.operations, row.name


def _with_spark(row: TableRow, history: History) -> TableRow:
    changes = history.changes(row.name, step_s=SPARK_STEP_S)
    points = [(ago_s, change.per_s("reads", "writes")) for ago_s, change in changes]
    return msgspec.structs.replace(row, spark=spark(points))


async def activity(console: Console, request: Request, entry: CatalogEntry) -> Mapping[str, Any]:
    """Return the values of the page of a table that are refreshed periodically."""
    catalog: Catalog = request.app.state.catalog
    stores = await catalog.recent_ping()
    name = entry.spec.name
    now = console.history.now(name)
    return {
        "health": table_health(now, stores.get(entry.store), entry.settings.deadline_s),
        "shedding": load_shedding(console.history.now()),
        "plots_shown": build_plots(console.history, name),
        "seconds": None if now is None else now.seconds,
        "policies": [] if now is None else list(_policies(now, entry)),
        "outcomes": [] if now is None else list(_outcomes(now)),
    }


class NumberRow(msgspec.Struct, frozen=True):
    """A row of a table of numbers: its name, the number with its unit, a remark, and an explanation of the number."""

    name: str
    number: str
    remark: str
    explanation: str


def _policies(now: Change, entry: CatalogEntry) -> Iterator[NumberRow]:
    """Yield the rows on store calls and policies."""
    calls, concurrency_max = now["calls"], entry.settings.concurrency_max
    mean = f"mean {numbers.seconds(now['calls seconds'] / calls if calls else None)}"
    yield NumberRow("Store calls", _rate(now, "calls"), mean, "Calls to the store")
    yield NumberRow(
        "Concurrent store calls",
        numbers.count(now.per_s("calls seconds")),
        f"of {concurrency_max}",
        "Mean number of store calls in progress, and the limit concurrency_max",
    )
    failed = _rate(now, "calls failed")
    yield NumberRow("Failed store calls", failed, "", "Store calls with at least one failed operation")
    exhausted = f"{_rate(now, 'given up')} exhausted"
    retries = "Retries of operations, and operations out of retries"
    yield NumberRow("Retries", _rate(now, "retries"), exhausted, retries)
    throttled = _rate(now, "read limit", "write limit")
    limited = "Operations that exceeded a rate limit of the table"
    yield NumberRow("Throttled operations", throttled, _limits(entry), limited)
    rejected = f"{_rate(now, 'crowded out')} rejected"
    yield NumberRow("Queued store calls", _rate(now, "waited"), rejected, "Store calls that exceeded concurrency_max")
    yield NumberRow("Attempt timeouts", _rate(now, "timeouts"), "", "Operations whose attempt exceeded timeout_s")


def _rate(now: Change, *names: str) -> str:
    return numbers.rate(now.per_s(*names))


def _limits(entry: CatalogEntry) -> str:
    read, write = entry.settings.read.rate_per_s, entry.settings.write.rate_per_s
    if read is None and write is None:
        return "no rate limit"
    return f"limits: {numbers.rate(read)} reads, {numbers.rate(write)} writes"


_OUTCOMES = {
    "found": "Gets that found a record",
    "absent": "Gets that found no record",
    "written": "Writes that were applied",
    "created": "Writes that created a record by if_absent or by a default",
    **{member.name: member.counted for member in OUTCOME_MEMBERS},
    "dropped": "Writes to no partition",
    REFUSED: "Operations that were rejected because of the request, for example 412 or 422",
    **{code: summary(code) for code in FAILURES},
}


def _outcomes(now: Change) -> Iterator[NumberRow]:
    for code in (*FAILURES, REFUSED, *SUCCESSES):
        if now[code]:
            yield NumberRow(code, _rate(now, code), "", _OUTCOMES[code])


def settings(request: Request, entry: CatalogEntry) -> list[tuple[str, str]]:
    """Return the settings and capabilities of a table, by path."""
    described = describe(entry, request.app.state.settings.limits)
    shown = [(path, text) for path, text in _flat(described) if not path.startswith(("name", "store."))]
    return [(path.removeprefix("policies."), text) for path, text in shown]


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
