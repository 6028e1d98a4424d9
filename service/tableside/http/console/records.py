"""One record, looked up, replaced, made or deleted; and a page of a scan. As any caller would, through the table."""

import difflib
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from ...catalog import Catalog, CatalogEntry, Table
from ...core import Delete, Get, Key, Operation, Outcome, Record, Scan, TableError, values
from ...core.errors import PreconditionFailed
from ..wire import operation_members as members
from ..wire.answers import rfc3339
from ..wire.cursors import open_sealed, seal
from . import forms
from .sentences import Trouble, trouble

SHOWN_CHARACTERS_MAX = 200_000
"""How much of a value is shown; one that is longer is not changed here."""

PREVIEW_BYTES = 160
PAGE_RECORDS = 25
PAGE_BYTES_MAX = 1 << 20
COMPARED_LINES_MAX = 2000


class Shown(msgspec.Struct, frozen=True):
    """A record as it is shown."""

    text: str
    etag: str
    size_bytes: int
    expires_at: str | None
    ttl_s: int | None
    age_s: float | None
    cut: bool


class Version(msgspec.Struct, frozen=True):
    """A version of a record beside another: its lines, each with whether the other has it not."""

    lines: list[tuple[str, bool]]
    etag: str | None


class View(msgspec.Struct, frozen=True):
    """What there is to say of one key: what it holds, what was done or went wrong, and what was typed.

    `typed` and `etag` go back into the form where the change was not made; `versions` are what was typed and what the
    store has, where somebody else was faster.
    """

    key: Key | None
    record: Shown | None = None
    said: str = ""
    trouble: Trouble | None = None
    typed: str | None = None
    versions: tuple[Version, Version] | None = None

    @property
    def query(self) -> str:
        """Return the key as a query."""
        return "" if self.key is None else forms.key_query(self.key)

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts of the key."""
        return tuple(map(str, self.key if isinstance(self.key, tuple) else (self.key,)))


async def look_up(catalog: Catalog, entry: CatalogEntry, key: Key, *, fresh: bool = False, said: str = "") -> View:
    """Look at one record; `fresh` does not take it from a cache."""
    try:
        table = await catalog.table(entry.spec.name)
        outcome = await table.one(Get(key, 0.0 if fresh else None))
    except TableError as error:
        outcome = error
    if isinstance(outcome, TableError):
        return View(key, said=said, trouble=trouble(outcome))
    return View(key, _shown(outcome), said)


async def put(catalog: Catalog, entry: CatalogEntry, key: Key, given: Mapping[str, str]) -> View:
    """Replace the version that was looked up, or, where there is no etag, make the record if there is none."""
    etag, text = given.get("etag"), given.get("value", "")
    said = "The record was made." if etag is None else "Saved."

    def build(table: Table) -> Operation:
        condition: dict[str, Any] = {"if_absent": True} if etag is None else {"if_match": etag}
        condition["ttl_s"] = forms.ttl_s(given.get("ttl_s", ""))
        return members.build(table.spec, "put", key, {"value": values.parse(text), **condition})

    return await _changed(catalog, entry, key, build, said, text)


async def delete(catalog: Catalog, entry: CatalogEntry, key: Key, etag: str) -> View:
    """Delete the version that was looked up."""
    return await _changed(catalog, entry, key, lambda table: Delete(key, (etag,)), "The record was deleted.", None)


async def scan(catalog: Catalog, entry: CatalogEntry, given: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of records, and where the next begins."""
    prefix, partition, cursor = (given.get(name) or None for name in ("prefix", "partition", "cursor"))
    scope = ("console", entry.spec.name, prefix, partition)
    try:
        table = await catalog.table(entry.spec.name)
        position = None if cursor is None else open_sealed(cursor, "cursor", *scope)
        of = None if partition is None else forms.part(partition, table.spec.key.fields[0].type)
        page = await table.scan(Scan(PAGE_RECORDS, prefix, of, None, position, PAGE_BYTES_MAX))
    except TableError as error:
        return {"trouble": trouble(error), "records": [], "next": None}
    return {
        "trouble": None,
        "records": [(View(key), _preview(record), record.etag) for key, record in page.records],
        "next": None if page.position is None else seal(page.position, *scope),
    }


async def _changed(catalog: Catalog, entry: CatalogEntry, key: Key, build: Any, said: str, typed: str | None) -> View:
    outcome: Outcome
    try:
        table = await catalog.table(entry.spec.name)
        outcome = await table.one(build(table))
    except TableError as error:
        outcome = error
    match outcome:
        case PreconditionFailed():
            return _beside(await look_up(catalog, entry, key, fresh=True), trouble(outcome, write=True), typed)
        case TableError():
            now = await look_up(catalog, entry, key, fresh=True)
            return View(key, now.record, trouble=trouble(outcome, write=True), typed=typed)
    return await look_up(catalog, entry, key, fresh=True, said=said)


def _beside(now: View, lost: Trouble, typed: str | None) -> View:
    """Show what was typed beside what is there now."""
    if typed is None or now.trouble is not None:
        return View(now.key, now.record, trouble=lost, typed=typed)
    theirs, etag = ("", None) if now.record is None else (now.record.text, now.record.etag)
    return View(now.key, now.record, trouble=lost, typed=typed, versions=_compared(typed, theirs, etag))


def _compared(typed: str, theirs: str, etag: str | None) -> tuple[Version, Version]:
    yours = _pretty_or_as_it_is(typed).splitlines()[:COMPARED_LINES_MAX]
    other = theirs.splitlines()[:COMPARED_LINES_MAX]
    matcher = difflib.SequenceMatcher(None, yours, other, autojunk=True)
    alike = [block for block in matcher.get_matching_blocks() if block.size]
    same_yours = {block.a + place for block in alike for place in range(block.size)}
    same_other = {block.b + place for block in alike for place in range(block.size)}
    return (
        Version([(line, place not in same_yours) for place, line in enumerate(yours)], None),
        Version([(line, place not in same_other) for place, line in enumerate(other)], etag),
    )


def _shown(outcome: Outcome) -> Shown | None:
    if not isinstance(outcome, Record):
        return None
    text, expires_ms = _pretty(outcome.value), outcome.expires_ms
    return Shown(
        text[:SHOWN_CHARACTERS_MAX],
        outcome.etag,
        len(outcome.value),
        rfc3339(expires_ms) if expires_ms else None,
        max(1, round(expires_ms / 1000 - time.time())) if expires_ms else None,
        outcome.age_s,
        len(text) > SHOWN_CHARACTERS_MAX,
    )


def _pretty(value: bytes | str) -> str:
    return orjson.dumps(orjson.loads(value), option=orjson.OPT_INDENT_2).decode()


def _pretty_or_as_it_is(text: str) -> str:
    try:
        return _pretty(text)
    except orjson.JSONDecodeError:
        return text


def _preview(record: Record) -> str:
    text = record.value[:PREVIEW_BYTES].decode(errors="ignore")
    return text if len(record.value) <= PREVIEW_BYTES else f"{text}…"
