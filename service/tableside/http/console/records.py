"""Single records on pages: their addresses, reads, and pages of scans. They go through the table like any request."""

from collections.abc import Mapping
from itertools import repeat
from typing import Any
from urllib.parse import urlencode

import msgspec
import orjson

from ...catalog import Catalog
from ...core import (
    Get,
    InvalidOperation,
    Key,
    Part,
    PartType,
    Record,
    Scan,
    TableError,
    TableSpec,
    part_from_text,
)
from ..wire import operation_members as members
from ..wire.answers import rfc3339
from ..wire.pages import generation_of, open_sealed, seal

SHOWN_CHARACTERS_MAX = 200_000
"""The maximum length of a displayed value. Longer values are displayed in part."""

PREVIEW_BYTES = 160
PAGE_RECORDS = 25
PAGE_BYTES_MAX = 1 << 20


class Address(msgspec.Struct, frozen=True):
    """The location of a record: its key, and its partition in a partitioned table. None is the partition of the key."""

    key: Key
    partition: int | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return the parts of the key."""
        return self.key if isinstance(self.key, tuple) else (self.key,)

    @property
    def query(self) -> str:
        """Return the address as a query string, which `parse_address` can decode."""
        parts = {f"k{index}": part for index, part in enumerate(self.parts)}
        return urlencode(parts if self.partition is None else {**parts, "partitions": self.partition})


def parse_address(spec: TableSpec, given: Mapping[str, str]) -> Address:
    """Return the address from the parameters k0, k1 and so on, and `partitions`. Raise InvalidOperation if invalid."""
    texts = [given.get(f"k{index}", "") for index in range(len(spec.key.fields))]
    parts = tuple(_parse_part(text, field.type) for text, field in zip(texts, spec.key.fields, strict=True))
    key = parts if spec.key.composite else parts[0]
    if not (text := given.get("partitions")):
        return Address(key)
    partitions = members.choose_partitions(spec, members.parse_partitions_query(text))
    if partitions is None or len(partitions) != 1:
        raise InvalidOperation("partitions must be the index of one partition")
    return Address(key, partitions[0])


def _parse_part(text: str, kind: PartType) -> Part:
    """Parse one part of a key. A percent sign in the text is not an escape."""
    try:
        return part_from_text(text.strip().encode() if kind == "integer" else text.replace("%", "%25").encode(), kind)
    except UnicodeEncodeError:
        raise InvalidOperation("a key contains a lone surrogate") from None


class DisplayedRecord(msgspec.Struct, frozen=True):
    """A record as a page shows it. `cut` marks a truncated value."""

    text: str
    etag: str
    size_bytes: int
    expires_at: str | None
    age_s: float | None
    cut: bool


async def look_up(
    catalog: Catalog, name: str, spec: TableSpec, caller: str, given: Mapping[str, str]
) -> DisplayedRecord | None:
    """Read the record with the address in `given`, from the store if it has `fresh`. Raise a TableError."""
    address = parse_address(spec, given)
    partitions = None if address.partition is None else (address.partition,)
    table = await catalog.table(name)
    get = Get(address.key, 0.0 if "fresh" in given else None, partitions)
    outcome = await table.one(get, table.budget(caller))
    if isinstance(outcome, TableError):
        raise outcome
    return _display(outcome) if isinstance(outcome, Record) else None


def _display(record: Record) -> DisplayedRecord:
    text = record.value[:SHOWN_CHARACTERS_MAX].decode(errors="ignore")
    cut = len(record.value) > SHOWN_CHARACTERS_MAX
    return DisplayedRecord(
        text if cut else orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2).decode(),
        record.etag,
        len(record.value),
        rfc3339(record.expires_ms) if record.expires_ms else None,
        record.age_s,
        cut,
    )


async def scan(catalog: Catalog, name: str, given: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of records, and the cursor of the next page. Raise a TableError."""
    prefix, partition, cursor = (given.get(field) or None for field in ("prefix", "partition", "cursor"))
    scope = ("console", name, prefix, partition)
    table = await catalog.table(name, generation_of(cursor))
    position = None if cursor is None else open_sealed(cursor, "cursor", *scope)
    first_part = None if partition is None else _parse_part(partition, table.spec.key.fields[0].type)
    page = await table.scan(Scan(PAGE_RECORDS, prefix, first_part, None, position, PAGE_BYTES_MAX))
    return {
        "records": [
            (Address(key, partition), record.value[:PREVIEW_BYTES].decode(errors="ignore"))
            for (key, record), partition in zip(page.records, page.partitions or repeat(None), strict=False)
        ],
        "next": None if page.position is None else seal(page.position, table.spec.generation, *scope),
    }
