"""The values that the pages of the console show: the overview of all tables, and the activity and records of one.

A table has a health: a level, a label and the reason, so that an operator sees immediately where to look. Reads of
records go through the table like any request.
"""

from collections.abc import Mapping
from itertools import repeat
from typing import Any, Literal, get_args
from urllib.parse import urlencode

import msgspec
import orjson
from starlette.requests import Request

from ...catalog import Catalog, CatalogEntry
from ...core import InvalidOperation, Scan, StoreUnavailable, TableError
from ...core.keys import PartType, part_from_text
from ...core.operations import Get, Part, Record
from ..endpoints.service import describe
from ..request_context import context_of
from ..wire.answers import rfc3339
from ..wire.members import OUTCOME_MEMBERS
from ..wire.operation_members import choose_partitions, parse_partitions_query
from ..wire.pages import generation_of, open_sealed, seal
from ..wire.problems import CODES
from . import numbers
from .console import FAILURES, REFUSED, SHED, Change, Console

TABLES_SHOWN_MAX = 50

ERROR_RATE_CRITICAL = 0.05
ERROR_RATE_WARNING = 0.001

LATENCY_SHARE_WARNING = 0.25
"""From this share of a table's deadline on, the 99th percentile of the latency is a warning."""

SHOWN_CHARACTERS_MAX = 200_000
"""The maximum length of a displayed value. Longer values are displayed in part."""

PREVIEW_BYTES = 160
PAGE_RECORDS = 25
PAGE_BYTES_MAX = 1 << 20

Level = Literal["critical", "warning", "ok"]


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
    rows = []
    for entry in catalog.entries():
        if caller.may("read", entry.spec.name):
            change = console.now(entry.spec.name)
            health = table_health(change, stores.get(entry.store.name), entry.settings.deadline_s)
            rows.append(TableRow(entry.spec.name, entry.store.name, entry.store.kind, health, change))
    levels = get_args(Level)
    rows.sort(key=lambda row: (levels.index(row.health.level), -row.now.operations if row.now else 0.0, row.name))
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
        "tables": len(rows),
        "alerts": [row for row in rows if row.health.level != "ok"],
        "shedding": load_shedding(now),
        "rows": found[:TABLES_SHOWN_MAX],
        "left_out": max(0, len(found) - TABLES_SHOWN_MAX),
        "seconds": None if now is None else now.seconds,
        # Each worker process has separate limits.
        "in_flight": [(what, console.in_flight.get(what, 0), limit_of[what] * console.workers) for what in limit_of],
    }


# The values of the pages of a table: `name` is the table in the path, which may be one generation of the entry's table.


_OUTCOMES = {
    **{code: CODES[code][1] for code in FAILURES},
    REFUSED: "operations that were rejected because of the request, for example 412 or 422",
    "found": "gets that found a record",
    "absent": "gets that found no record",
    "written": "writes that were applied",
    "created": "writes that created a record by if_absent or by a default",
    **{member.name: member.counted for member in OUTCOME_MEMBERS},
    "dropped": "writes to no partition",
}


async def activity(console: Console, request: Request, entry: CatalogEntry, name: str) -> Mapping[str, Any]:
    """Return the health of a table, its outcomes with their rates and meanings, and its settings."""
    catalog: Catalog = request.app.state.catalog
    stores = await catalog.reachability.recent()
    now = console.now(entry.spec.name)
    described = describe(entry, request.app.state.settings.limits)
    return {
        "health": table_health(now, stores.get(entry.store.name), entry.settings.deadline_s),
        "shedding": load_shedding(console.now()),
        "now": now,
        "outcomes": [(code, now.per_s(code), text) for code, text in _OUTCOMES.items() if now[code]] if now else [],
        "settings": orjson.dumps(described, option=orjson.OPT_INDENT_2).decode(),
    }


async def generations(console: Console, request: Request, entry: CatalogEntry, name: str) -> Mapping[str, Any]:
    """Return the generations of a table, the newest first."""
    catalog: Catalog = request.app.state.catalog
    return {"generations": [*reversed(await (await catalog.generations(name)).listed())]}


def _parse_part(text: str, kind: PartType) -> Part:
    """Parse one part of a key. A percent sign in the text is not an escape."""
    return part_from_text(text.strip().encode() if kind == "integer" else text.replace("%", "%25").encode(), kind)


async def record(console: Console, request: Request, entry: CatalogEntry, name: str) -> Mapping[str, Any]:
    """Return the record with the key k0, k1 and so on in the query, or None. `fresh` bypasses the cache."""
    catalog: Catalog = request.app.state.catalog
    context, given, spec = context_of(request.scope), request.query_params, entry.spec
    context.operations = 1
    parts = tuple(_parse_part(given.get(f"k{index}", ""), field.type) for index, field in enumerate(spec.key.fields))
    partitions = None
    if text := given.get("partitions"):
        partitions = choose_partitions(spec, parse_partitions_query(text))
        if partitions is None or len(partitions) != 1:
            raise InvalidOperation("partitions must be the index of one partition")
    table = await catalog.table(name)
    get = Get(parts if spec.key.composite else parts[0], 0.0 if "fresh" in given else None, partitions)
    outcome = await table.one(get, table.budget(context.caller or ""))
    if isinstance(outcome, TableError):
        raise outcome
    if not isinstance(outcome, Record):
        return {"scan": None, "record": None}
    shown = outcome.value[:SHOWN_CHARACTERS_MAX].decode(errors="ignore")
    cut = len(outcome.value) > SHOWN_CHARACTERS_MAX
    displayed = {
        "text": shown if cut else orjson.dumps(orjson.loads(shown), option=orjson.OPT_INDENT_2).decode(),
        "etag": outcome.etag,
        "size_bytes": len(outcome.value),
        "expires_at": rfc3339(outcome.expires_ms) if outcome.expires_ms else None,
        "age_s": outcome.age_s,
        "cut": cut,
    }
    return {"scan": None, "record": displayed}


async def scan(console: Console, request: Request, entry: CatalogEntry, name: str) -> Mapping[str, Any]:
    """Return a page of records, and the cursor of the next page."""
    catalog: Catalog = request.app.state.catalog
    prefix, partition, cursor = (request.query_params.get(name) or None for name in ("prefix", "partition", "cursor"))
    scope = ("console", name, prefix, partition)
    table = await catalog.table(name, generation_of(cursor))
    position = None if cursor is None else open_sealed(cursor, "cursor", *scope)
    first_part = None if partition is None else _parse_part(partition, table.spec.key.fields[0].type)
    page = await table.scan(Scan(PAGE_RECORDS, prefix, first_part, None, position, PAGE_BYTES_MAX))
    records = []
    for (key, record), place in zip(page.records, page.partitions or repeat(None), strict=False):
        parts = key if isinstance(key, tuple) else (key,)
        address = {f"k{index}": part for index, part in enumerate(parts)}
        query = urlencode(address if place is None else {**address, "partitions": place})
        preview = record.value[:PREVIEW_BYTES].decode(errors="ignore")
        records.append({"parts": parts, "partition": place, "query": query, "preview": preview})
    following = None if page.position is None else seal(page.position, table.spec.generation, *scope)
    return {"scan": {"records": records, "next": following}}
