"""Encodes pages of scans as JSON and as Arrow."""

from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa
from msgspec.structs import replace

from ...core import Key, Page, Part, Record, TableSpec, chunks_of
from ...core.columns import KeyedRecords
from ...core.concurrency import Pieces
from . import arrow_answers, arrow_parts
from .answers import PIECE_OPERATIONS, rfc3339
from .body_parts import Encoded, joined
from .projections import project_outcomes


def project_page(page: Page, fields: frozenset[str]) -> Pieces[Page]:
    """Reduce the values of a page to the given top-level members."""
    records = [record for _, record in page.records]
    reduced = yield from project_outcomes(records, [fields] * len(records), lambda: False)
    pairs = zip(page.records, reduced, strict=True)
    return replace(page, records=[(key, record) for (key, _), record in pairs if isinstance(record, Record)])


def encode_json(page: Page, cursor: str | None) -> Pieces[Encoded]:
    """Encode a page as an object with the members `records` and `cursor`."""
    parts, separator = [b'{"records":['], b'{"key":'
    for start in range(0, len(page.records), PIECE_OPERATIONS):
        for index, (key, record) in enumerate(page.records[start : start + PIECE_OPERATIONS], start):
            parts += (separator, orjson.dumps(key), b',"value":', record.value, b',"etag":"', record.etag.encode())
            parts.append(
                b'"' if not record.expires_ms else b'","expires_at":"%b"' % rfc3339(record.expires_ms).encode()
            )
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
    if in_columns := isinstance(records, KeyedRecords):
        columns = [records.keys, records.records.values, records.records.etags]
    else:
        columns = yield from _columns(records, spec)
    schema = pa.schema([("key", key_type(spec)), ("value", pa.binary()), ("etag", pa.utf8())])
    if not in_columns and any(record.expires_ms for _, record in page.records):
        columns.append(arrow_answers.expiry_column([record.expires_ms for _, record in page.records]))
        schema = schema.append(arrow_answers.EXPIRES_AT)
        yield
    if spec.partitions:
        columns.append(pa.array(page.partitions or [], pa.int32()))
        schema = schema.append(pa.field("partition", pa.int32()))
    metadata = {} if cursor is None else {"cursor": cursor}
    return arrow_parts.encode_stream(pa.record_batch(columns, schema=schema.with_metadata(metadata)))


def _columns(records: Sequence[tuple[Key, Record]], spec: TableSpec) -> Pieces[list[pa.Array]]:
    """Return the columns of keys, values and etags."""
    columns = [(yield from _key_column([key for key, _ in records], spec))]
    columns.append((yield from arrow_parts.binary_column([record.value for _, record in records])))
    yield
    columns.append(pa.array([record.etag for _, record in records], pa.utf8()))
    yield
    return columns


def _key_column(keys: Sequence[Any], spec: TableSpec) -> Pieces[pa.Array]:
    kind, pieces = key_type(spec), [pa.array([], key_type(spec))]
    for some in chunks_of(keys, PIECE_OPERATIONS):
        pieces.append(pa.array(_structs(some, spec) if spec.key.composite else some, kind))
        yield
    return pa.concat_arrays(pieces)


def key_type(spec: TableSpec) -> pa.DataType:
    """Return the Arrow type of a table's keys. The fields of a composite key have their names or numbers from 0."""
    kinds = {"string": pa.utf8(), "integer": pa.int64()}
    if not spec.key.composite:
        return kinds[spec.key.fields[0].type]
    return pa.struct([(_part_name(spec, index), kinds[field.type]) for index, field in enumerate(spec.key.fields)])


def _structs(keys: Sequence[tuple[Part, ...]], spec: TableSpec) -> list[dict[str, Part]]:
    names = [_part_name(spec, index) for index in range(len(spec.key.fields))]
    return [dict(zip(names, key, strict=True)) for key in keys]


def _part_name(spec: TableSpec, index: int) -> str:
    return spec.key.fields[index].name or str(index)
