"""Reads pages of a table: a Query for a partition, in sort order, or a Scan of the table or of one segment.

A position is the key of the last item read, in DynamoDB's notation. A split is a segment.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ...core import (
    PAGE_SEARCH_S,
    Clock,
    InvalidOperation,
    MalformedRequest,
    Page,
    PageBuilder,
    RecordUnreadable,
    Scan,
    TableSpec,
    Yielder,
    live_record,
)
from .calls import TableCalls
from .items import Item, ItemLayout
from .updates import Placeholders

SEGMENTS_MAX = 1024

CALLS_MAX = 8
"""How many calls one page makes at most. If a filter removes most items, pages are short. See PAGE_SEARCH_S, too."""

_POSITION = msgspec.json.Decoder(list[str])


async def read_page(scan: Scan, calls: TableCalls, spec: TableSpec, layout: ItemLayout, clock: Clock) -> Page:
    """Read a page. Raise a TableError if it cannot be read."""
    verb, parameters = _request(scan, spec, layout)
    start = None if scan.position is None else _start(scan.position, layout)
    page, ends_at = PageBuilder(scan), time.monotonic() + PAGE_SEARCH_S
    for _ in range(CALLS_MAX):
        if "FilterExpression" not in parameters:  # a limit would count removed items too
            parameters["Limit"] = scan.limit - len(page.records)
        if start is not None:
            parameters["ExclusiveStartKey"] = start
        try:
            response: dict[str, Any] = await calls.call(verb, parameters, math.inf)
        except InvalidOperation:
            if start is None:
                raise
            raise MalformedRequest("not a position of this scan") from None
        start = await _add(page, response["Items"], layout, clock()) or response.get("LastEvaluatedKey")
        if start is None or page.complete or time.monotonic() >= ends_at:
            break
    return Page(page.records, None if start is None else msgspec.json.encode(layout.key_texts(start)))


async def _add(page: PageBuilder, items: Sequence[Item], layout: ItemLayout, now_ms: int) -> Item | None:
    """Add live records until the page is complete. Return its last item if others are left."""
    yielder, last = Yielder(), None
    for item in items:
        await yielder.maybe_yield()
        if page.complete:
            return last
        texts = layout.key_texts(item)
        key: Any = texts if len(texts) > 1 else texts[0]
        try:
            key = layout.key_of(item)
        except RecordUnreadable as error:
            raise error.of_scan(key) from None
        stored = await layout.stored(item, now_ms)
        page.add(key, stored if isinstance(stored, RecordUnreadable) else live_record(stored, now_ms))
        last = item
    return None


def segments(count_max: int) -> list[bytes]:
    """Return `count_max` segments as splits, up to SEGMENTS_MAX. DynamoDB splits a table by key hashes."""
    count = min(count_max, SEGMENTS_MAX)
    return [f"{segment}/{count}".encode() for segment in range(count)]


def _request(scan: Scan, spec: TableSpec, layout: ItemLayout) -> tuple[str, dict[str, Any]]:
    spec.key.bounds(scan.partition, scan.prefix)  # rejects a prefix of an integer
    verb, expression = "scan", "FilterExpression"
    parameters: dict[str, Any] = {"ConsistentRead": spec.consistency == "strong"}
    if scan.split is not None:
        segment, slash, count = scan.split.partition(b"/")
        if not (slash and segment.isdigit() and count.isdigit() and int(segment) < int(count) <= SEGMENTS_MAX):
            raise MalformedRequest("not a split of this table")
        parameters |= {"Segment": int(segment), "TotalSegments": int(count)}
    elif scan.partition is not None:
        verb, expression = "query", "KeyConditionExpression"
    keys, placeholders, conditions = layout.keys, Placeholders(), list[str]()
    if scan.partition is not None:
        partition = {keys[0].kind: str(scan.partition)}
        conditions.append(f"{placeholders.name(keys[0].name)} = {placeholders.value(partition)}")
    if scan.prefix:
        name = keys[-1 if scan.partition is not None else 0].name
        conditions.append(f"begins_with({placeholders.name(name)}, {placeholders.value({'S': scan.prefix})})")
    if conditions:
        condition = placeholders.parameters([], [], conditions) or {}
        parameters |= {expression: condition.pop("ConditionExpression"), **condition}
    return verb, parameters


def _start(position: bytes, layout: ItemLayout) -> Item:
    """Return the key to start after. Raise MalformedRequest if the position is not one of this table."""
    try:
        texts = _POSITION.decode(position)
        item = {key.name: {key.kind: text} for key, text in zip(layout.keys, texts, strict=True)}
        layout.key_of(item)
    except (msgspec.DecodeError, ValueError, RecordUnreadable):
        raise MalformedRequest("not a position of this table") from None
    return item
