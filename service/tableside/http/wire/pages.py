"""Encodes pages of scans as JSON and as Arrow, and seals their cursors."""

import base64
import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import orjson
import pyarrow as pa
from msgspec.structs import replace

from ...core import NO_DEADLINE, KeyedRecords, MalformedRequest, Page, Record, Results, TableSpec, chunks_of
from ...core.concurrency import PIECE_OPERATIONS, Pieces
from .answers import Encoded, binary_column, encode_stream, expiry_column, expiry_members, joined
from .projections import project_outcomes


def project_page(page: Page, fields: frozenset[str]) -> Pieces[Page]:
    """Reduce the values of a page to the given top-level members."""
    keys, records = [key for key, _ in page.records], [record for _, record in page.records]
    reduced = yield from project_outcomes(records, [fields] * len(records), NO_DEADLINE)
    pairs = zip(keys, reduced, strict=True)
    return replace(page, records=[(key, record) for key, record in pairs if isinstance(record, Record)])


def encode_json(page: Page, cursor: str | None) -> Pieces[Encoded]:
    """Encode a page as an object with the members `records` and `cursor`."""
    parts, separator = [b'{"records":['], b'{"key":'
    for some in chunks_of(list(enumerate(page.records)), PIECE_OPERATIONS):
        expiries = expiry_members([record.expires_ms for _, (_, record) in some])
        for (index, (key, record)), expiry in zip(some, expiries, strict=True):
            parts += (separator, orjson.dumps(key), b',"value":', record.value, b',"etag":"%b"' % record.etag.encode())
            parts.append(expiry)
            if page.partitions is not None:
                parts.append(b',"partition":%d' % page.partitions[index])
            separator = b'},{"key":'
        yield
    parts.append(b'%b],"cursor":%b}' % (b"}" if page.records else b"", orjson.dumps(cursor)))
    return joined(parts)


def encode_arrow(page: Page, cursor: str | None, spec: TableSpec) -> Pieces[Encoded]:
    """Encode a page as an Arrow stream of key, value and etag, with the cursor in the schema's metadata.

    If any record expires, a column `expires_at` follows. A partitioned table has `partition` as the last column.
    """
    records = page.records
    if not isinstance(records, KeyedRecords):
        results = Results.of([record for _, record in records])
        assert results is not None  # They are all records.
        records = KeyedRecords([key for key, _ in records], results)
    columns, given = {"key": _key_column(records.keys, spec)}, records.records.columns
    columns["value"] = yield from binary_column(given["value"])
    yield
    columns["etag"] = records.records.array("etag", pa.utf8())
    if "expires_ms" in given:
        columns["expires_at"] = expiry_column(given["expires_ms"])
        yield
    if spec.partitions:
        columns["partition"] = pa.array(page.partitions or [], pa.int32())
    metadata = {} if cursor is None else {"cursor": cursor}
    return encode_stream(pa.record_batch(columns).replace_schema_metadata(metadata))


def _key_column(keys: Sequence[Any], spec: TableSpec) -> pa.Array:
    """Return a column of keys. The fields of a composite key have their names or numbers from 0."""
    kinds = [{"string": pa.utf8(), "integer": pa.int64()}[field.type] for field in spec.key.fields]
    if not spec.key.composite:
        return pa.array(keys, kinds[0])
    names = [field.name or str(index) for index, field in enumerate(spec.key.fields)]
    structs = [dict(zip(names, key, strict=True)) for key in keys]
    return pa.array(structs, pa.struct([*zip(names, kinds, strict=True)]))


_DIGEST_BYTES = 8
_GENERATION = re.compile(r"\.([2-9]|[1-9][0-9]{1,17})\Z")


def seal(position: bytes, generation: int, *scope: object) -> str:
    """Return a position in a generation as opaque text that is bound to the scan described by `scope`."""
    text = base64.urlsafe_b64encode(_digest(position, scope) + position).decode().rstrip("=")
    return text if generation == 1 else f"{text}.{generation}"


def generation_of(text: str | None) -> int | None:
    """Return the generation of a sealed position, None without one."""
    if text is None:
        return None
    match = _GENERATION.search(text)
    return 1 if match is None else int(match[1])


def open_sealed(text: str, what: str, *scope: object) -> bytes:
    """Return the sealed position. Raise MalformedRequest if the text was not sealed for this scope."""
    text = _GENERATION.sub("", text)
    with suppress(ValueError):
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        digest, position = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
        if digest == _digest(position, scope):
            return position
    raise MalformedRequest(f"not a {what} of this scan")


def _digest(position: bytes, scope: tuple[object, ...]) -> bytes:
    # The digest detects mistakes and needs no secret: a cursor gives access to nothing that its caller cannot scan.
    return hashlib.blake2b(repr((scope, position)).encode(), digest_size=_DIGEST_BYTES).digest()
