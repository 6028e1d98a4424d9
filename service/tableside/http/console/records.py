"""Single records on pages: their addresses and forms, reads, writes and deletes, and pages of scans.

All of them go through the table like any request.
"""

import difflib
import time
from collections.abc import Mapping
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
import orjson
from starlette.requests import Request

from ...catalog import Catalog, Table
from ...core import (
    Delete,
    Get,
    InvalidOperation,
    Key,
    MalformedRequest,
    Memory,
    Operation,
    Outcome,
    Part,
    PartType,
    Record,
    Scan,
    TableError,
    TableSpec,
    TooLarge,
    part_from_text,
    run_in_thread,
    values,
)
from ...core.errors import PreconditionFailed
from ...core.orders import ALL, EXISTS, EXPIRY
from ...core.transitions import checked_ttl_s
from ..wire import operation_members as members, request_headers
from ..wire.answers import rfc3339
from ..wire.pages import generation_of, open_sealed, seal
from ..wire.problems import CODES, UnsupportedMediaType

SHOWN_CHARACTERS_MAX = 200_000
"""The maximum length of a displayed value. Longer values are displayed in part, and the console cannot edit them."""

ORDERS_SHOWN_MAX = 20
_REGISTERS = {ALL: "all members", EXISTS: "existence", EXPIRY: "expiry"}

PREVIEW_BYTES = 160
PAGE_RECORDS = 25
PAGE_BYTES_MAX = 1 << 20
COMPARED_LINES_MAX = 1000
"""The maximum number of lines of each version in a comparison. Its time grows with their cube at worst."""

FORM_MEDIA_TYPE = "application/x-www-form-urlencoded"
FORM_BYTES_MAX = 1 << 20
FIELDS_MAX = 20

CHANGED_SINCE = "the record was changed after it was loaded"
"""The meaning of `precondition_failed` in the console, whose forms have the etag of the record that they show."""


class DisplayedRecord(msgspec.Struct, frozen=True):
    """A record as a page shows it. `cut` marks a truncated value. `remembered` are the titles, names and
    texts of what it remembers of its writes.
    """

    text: str
    etag: str
    size_bytes: int
    expires_at: str | None
    ttl_s: int | None
    age_s: float | None
    cut: bool
    remembered: list[tuple[str, str, str]]


class Version(msgspec.Struct, frozen=True):
    """One side of a comparison: its lines, each with whether it is missing from the other side."""

    lines: list[tuple[str, bool]]
    etag: str | None


class ErrorMessage(msgspec.Struct, frozen=True):
    """An error as a page shows it: a summary, the error's detail and code, and advice on how to continue."""

    summary: str
    detail: str
    code: str
    advice: str = ""


def describe_error(error: TableError, *, write: bool = False) -> ErrorMessage:
    """Return the message for an error. For a write, the advice states whether it may have been applied."""
    advice = []
    if write and error.applied == "no":
        advice.append("The record is unchanged.")
    elif write:
        advice.append("The write may have been applied: look up the record again.")
    if error.retriable:
        advice.append("A retry may succeed.")
    return ErrorMessage(summary(error.code), error.detail, error.code, " ".join(advice))


def summary(code: str) -> str:
    """Return the meaning of an error code as a sentence."""
    _, meaning = CODES[code]
    text = CHANGED_SINCE if code == PreconditionFailed.code else meaning
    return f"{text[0].upper()}{text[1:]}."


class Address(msgspec.Struct, frozen=True):
    """The location of a record: its key, and its partition in a partitioned table. None is the partition of the key."""

    key: Key
    partition: int | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts of the key."""
        return tuple(map(str, self._parts))

    @property
    def query(self) -> str:
        """Return the address as a query string, which `parse_address` can decode."""
        parts = {f"k{index}": part for index, part in enumerate(self._parts)}
        return urlencode(parts if self.partition is None else {**parts, "partitions": self.partition})

    @property
    def partitions(self) -> tuple[int, ...] | None:
        """Return the partitions of an operation on the record."""
        return None if self.partition is None else (self.partition,)

    @property
    def _parts(self) -> tuple[Part, ...]:
        return self.key if isinstance(self.key, tuple) else (self.key,)


def parse_address(spec: TableSpec, given: Mapping[str, str]) -> Address:
    """Return the address from the parameters k0, k1 and so on, and `partitions`. Raise InvalidOperation if invalid."""
    texts = [given.get(f"k{index}") for index in range(len(spec.key.fields))]
    if not any(text is not None for text in texts):
        raise InvalidOperation("the request has no key")
    parts = tuple(parse_part(text or "", field.type) for text, field in zip(texts, spec.key.fields, strict=True))
    key = parts if spec.key.composite else parts[0]
    if not (text := given.get("partitions")):
        return Address(key)
    partitions = members.choose_partitions(spec, members.parse_partitions_query(text))
    if partitions is None or len(partitions) != 1:
        raise InvalidOperation("partitions must be the index of one partition")
    return Address(key, partitions[0])


def parse_part(text: str, kind: PartType) -> Part:
    """Parse one part of a key. A percent sign in the text is not an escape."""
    try:
        return part_from_text(text.strip().encode() if kind == "integer" else text.replace("%", "%25").encode(), kind)
    except UnicodeEncodeError:
        raise InvalidOperation("a key contains a lone surrogate") from None


def parse_ttl_s(text: str) -> float | None:
    """Return the seconds to live, or None for the table's default. Raise InvalidOperation if the text is invalid."""
    try:
        return checked_ttl_s(request_headers.number(text.strip(), "TTL")) if text.strip() else None
    except MalformedRequest as error:
        raise InvalidOperation(error.detail) from None


class View(msgspec.Struct, frozen=True):
    """The display of one record, and the result of the last action.

    `message` reports success and `error` a failure. If a change failed, `typed` goes back into the form. If the record
    changed in the store before that, `versions` compares the typed value with the stored one.
    """

    address: Address | None
    record: DisplayedRecord | None = None
    message: str = ""
    error: ErrorMessage | None = None
    typed: str | None = None
    versions: tuple[Version, Version] | None = None


async def look_up(
    catalog: Catalog, name: str, address: Address, caller: str, *, fresh: bool = False, message: str = ""
) -> View:
    """Read one record. `fresh` bypasses the cache."""
    try:
        table = await catalog.table(name)
        get = Get(address.key, 0.0 if fresh else None, address.partitions, memory=True)
        outcome = await table.one(get, table.budget(caller))
    except TableError as error:
        outcome = error
    if isinstance(outcome, TableError):
        return View(address, message=message, error=describe_error(outcome))
    return View(address, _display(outcome), message)


async def put(catalog: Catalog, name: str, address: Address, caller: str, fields: Mapping[str, str]) -> View:
    """Replace the version with the form's etag, or create the record if the form has no etag."""
    etag, text = fields.get("etag"), fields.get("value", "")
    message = "The record was created." if etag is None else "Saved."

    def build(table: Table) -> Operation:
        if len(text) > SHOWN_CHARACTERS_MAX:
            raise TooLarge(f"the console can change values of at most {SHOWN_CHARACTERS_MAX} characters")
        condition: dict[str, Any] = {"if_absent": True} if etag is None else {"if_match": etag}
        condition["ttl_s"] = parse_ttl_s(fields.get("ttl_s", ""))
        if address.partition is not None:
            condition["partitions"] = [address.partition]
        return members.build(table.spec, "put", address.key, {"value": values.parse(text), **condition})

    return await _change(catalog, name, address, caller, build, message, text)


async def delete(catalog: Catalog, name: str, address: Address, caller: str, etag: str) -> View:
    """Delete the record if it still has the version `etag`."""
    operation = Delete(address.key, (etag,), partitions=address.partitions)
    return await _change(catalog, name, address, caller, lambda table: operation, "The record was deleted.", None)


async def scan(catalog: Catalog, name: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of records, and the cursor of the next page."""
    prefix, partition, cursor = (fields.get(field) or None for field in ("prefix", "partition", "cursor"))
    scope = ("console", name, prefix, partition)
    try:
        table = await catalog.table(name, generation_of(cursor))
        position = None if cursor is None else open_sealed(cursor, "cursor", *scope)
        first_part = None if partition is None else parse_part(partition, table.spec.key.fields[0].type)
        page = await table.scan(Scan(PAGE_RECORDS, prefix, first_part, None, position, PAGE_BYTES_MAX))
    except TableError as error:
        return {"error": describe_error(error), "records": [], "next": None}
    return {
        "error": None,
        "records": [
            (Address(key, partition), _preview(record))
            for (key, record), partition in zip(page.records, page.partitions or repeat(None), strict=False)
        ],
        "next": None if page.position is None else seal(page.position, table.spec.generation, *scope),
    }


async def _change(
    catalog: Catalog,
    name: str,
    address: Address,
    caller: str,
    build: Any,
    message: str,
    typed: str | None,
) -> View:
    outcome: Outcome
    try:
        table = await catalog.table(name)
        outcome = catalog.sealed(name) or await table.one(build(table), table.budget(caller))
    except TableError as error:
        outcome = error
    match outcome:
        case PreconditionFailed():
            return await _compare_with_current(
                await look_up(catalog, name, address, caller, fresh=True), describe_error(outcome, write=True), typed
            )
        case TableError():
            current = await look_up(catalog, name, address, caller, fresh=True)
            return View(address, current.record, error=describe_error(outcome, write=True), typed=typed)
    return await look_up(catalog, name, address, caller, fresh=True, message=message)


async def _compare_with_current(current: View, error: ErrorMessage, typed: str | None) -> View:
    """Show the typed value next to the current record."""
    if typed is None or current.error is not None:
        return View(current.address, current.record, error=error, typed=typed)
    stored, etag = ("", None) if current.record is None else (current.record.text, current.record.etag)
    versions = await run_in_thread(partial(_compare, typed, stored, etag))
    return View(current.address, current.record, error=error, typed=typed, versions=versions)


def _compare(typed: str, stored: str, etag: str | None) -> tuple[Version, Version]:
    typed_lines = _pretty_or_raw(typed).splitlines()[:COMPARED_LINES_MAX]
    stored_lines = stored.splitlines()[:COMPARED_LINES_MAX]
    matcher = difflib.SequenceMatcher(None, typed_lines, stored_lines, autojunk=True)
    matches = [block for block in matcher.get_matching_blocks() if block.size]
    typed_matches = {block.a + index for block in matches for index in range(block.size)}
    stored_matches = {block.b + index for block in matches for index in range(block.size)}
    return (
        Version([(line, index not in typed_matches) for index, line in enumerate(typed_lines)], None),
        Version([(line, index not in stored_matches) for index, line in enumerate(stored_lines)], etag),
    )


def _display(outcome: Outcome) -> DisplayedRecord | None:
    if not isinstance(outcome, Record):
        return None
    text, expires_ms = _shown(outcome.value), outcome.expires_ms
    return DisplayedRecord(
        text[:SHOWN_CHARACTERS_MAX],
        outcome.etag,
        len(outcome.value),
        rfc3339(expires_ms) if expires_ms else None,
        max(1, round(expires_ms / 1000 - time.time())) if expires_ms else None,
        outcome.age_s,
        max(len(text), len(outcome.value)) > SHOWN_CHARACTERS_MAX,
        _remembered(outcome.memory),
    )


def _remembered(memory: Memory) -> list[tuple[str, str, str]]:
    """Return what writes with an order have written, and their orders, the newest first."""
    orders: dict[str, int] = orjson.loads(memory.orders or b"{}")
    newest = sorted(orders.items(), key=itemgetter(1), reverse=True)[:ORDERS_SHOWN_MAX]
    text = ", ".join(f"{_REGISTERS.get(name, name)} {order}" for name, order in newest)
    return [("The newest ordered writes that a later write must not be older than", "Orders", text)] if text else []


def _shown(value: bytes) -> str:
    """Return a value's text: indented, or without line breaks if it is too long to display in full."""
    if len(value) <= SHOWN_CHARACTERS_MAX:
        return _pretty(value)
    return value[:SHOWN_CHARACTERS_MAX].decode(errors="ignore")


def _pretty(value: bytes | str) -> str:
    return orjson.dumps(orjson.loads(value), option=orjson.OPT_INDENT_2).decode()


def _pretty_or_raw(text: str) -> str:
    try:
        return _pretty(text)
    except orjson.JSONDecodeError:
        return text


def _preview(record: Record) -> str:
    text = record.value[:PREVIEW_BYTES].decode(errors="ignore")
    return text if len(record.value) <= PREVIEW_BYTES else f"{text}…"


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of the request's form. Raise TooLarge, UnsupportedMediaType or MalformedRequest."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_MEDIA_TYPE:
        raise UnsupportedMediaType(f"a form must have the media type {FORM_MEDIA_TYPE}")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise TooLarge(f"a form may have at most {FORM_BYTES_MAX} bytes; use the HTTP interface for larger records")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX))
    except ValueError:
        raise MalformedRequest("the form cannot be read") from None
