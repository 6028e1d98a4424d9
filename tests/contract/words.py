"""Short helpers for store tests: key specs, operations and checks of outcomes."""

import weakref
from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

from tableside.core import updates, values
from tableside.core.errors import TableError
from tableside.core.keys import KeyField, KeySchema
from tableside.core.operations import Get, Key, Operation, Outcome, Put, Record, Update, Written
from tableside.core.store import Page, Scan, Store

STRINGS = KeySchema()
INTEGERS = KeySchema((KeyField("id", "integer"),))
COMPOSITE = KeySchema((KeyField("user", "string"), KeyField("day", "integer")))
THREE_PARTS = KeySchema((KeyField("shard", "integer"), KeyField("user", "string"), KeyField("item", "string")))

UNUSUAL_KEYS = [
    "a/b", "ü", "%", "%2F", " ", "a b ", "a?b#c", ".", "..", "x" * 1024, "ü" * 512, "🛫", "\x01", "\x7f", "\n", "'",
    '"', "\\", "*", "{}", "[", ":", "_ts", "$set", "A", "a", "null", "0", "-1", "\u2028", "\ufeff", "\U0010ffff",
]  # fmt: skip


def text(**members: object) -> bytes:
    return values.encode(members)


def put(key: Key, value: dict[str, Any] | None = None, **rest: Any) -> Put:
    return Put(key, values.encode({} if value is None else value), **rest)


def update(key: Key, document: object, default: dict[str, Any] | None = None, **rest: Any) -> Update:
    return Update(key, updates.parse(document), None if default is None else values.encode(default), **rest)


async def one(store: Store, operation: Operation) -> Outcome:
    [outcome] = await store.apply([operation])
    return outcome


async def written(store: Store, operation: Operation) -> Written:
    outcome = await one(store, operation)
    assert isinstance(outcome, Written), outcome
    return outcome


async def record(store: Store, key: Key) -> Record:
    outcome = await one(store, Get(key))
    assert isinstance(outcome, Record), outcome
    return outcome


async def etag(store: Store, key: Key) -> str:
    return (await record(store, key)).etag


async def value(store: Store, key: Key) -> Any:
    return values.decode((await record(store, key)).value)


def same(one_value: object, other: object) -> bool:
    """Whether two values are the same JSON: `1`, `1.0` and `true` differ, and the order of members is ignored."""
    return orjson.dumps(one_value, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)


def refused(outcome: object, kind: type[TableError]) -> bool:
    """Whether the outcome is a non-retriable error of this kind and the write was not applied."""
    assert isinstance(outcome, kind), outcome
    return outcome.applied == "no" and not outcome.retriable and bool(outcome.detail)


def freed_at_once(outcomes: list[Outcome]) -> bool:
    """Empty a list of outcomes. Return whether its errors are gone without a garbage collection.

    An error to which a frame of its own traceback refers keeps the operations of the call in memory until then.
    """
    errors = [weakref.ref(outcome) for outcome in outcomes if isinstance(outcome, TableError)]
    assert errors
    outcomes.clear()
    return not any(error() for error in errors)


async def pages(store: Store, scan: Scan, pages_max: int = 10_000) -> list[Page]:
    """Return all pages of a scan."""
    found = []
    for _ in range(pages_max):
        page = await store.scan(scan)
        found.append(page)
        if page.position is None:
            return found
        scan = msgspec.structs.replace(scan, position=page.position)
    raise AssertionError("the scan does not end")


def distinct_keys(met: Sequence[Key], store: Store) -> list[str]:
    """Return the distinct keys that a scan returned, in order.

    An unordered scan may return a record twice, for example while Redis resizes its hash table.
    """
    keys = sorted(map(str, met))
    return keys if store.capabilities.sorted_scan else sorted({*keys})


async def scanned(store: Store, **scan: Any) -> list[Key]:
    """Return the keys of a scan, page by page."""
    given = Scan(**{"limit": 7, **scan})
    return [key for page in await pages(store, given) for key, _ in page.records]
