"""`enrich` and `scan_frame` as plans."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tableside_client.arrow_table import ArrowCalls, raise_first_failure
from tableside_client.calls import Call
from tableside_client.concurrency import REQUESTS_IN_FLIGHT_MAX, Plan
from tableside_client.frames.kinds import FrameKeys, key_names, kind_named, kind_of, plain, require_unique
from tableside_client.frames.schemas import FrameSchema, SchemaInference, arrow_schema, value_reader
from tableside_client.json_reader import NullMembers, OnMismatch, require_known
from tableside_client.key_columns import distinct_keys, without_invalid_texts
from tableside_client.paths import given, names as checked_names
from tableside_client.table_calls import TableCalls
from tableside_client.table_schema import PARTITION_COLUMN, TableSchema

KEYS_PER_REQUEST = 5_000
RECORDS_PER_PAGE = 10_000


def enrich(
    calls: TableCalls[Any],
    frame: Any,
    on: str | Sequence[str],
    columns: Sequence[str] | None,
    schema: FrameSchema | None,
    on_mismatch: OnMismatch,
) -> Plan[Any]:
    """Return the frame with members of the record of each row's key, as `Table.enrich` describes it."""
    _require_schema(on_mismatch, schema)
    if (columns is None) == (schema is None):
        raise ValueError("give either columns=, the names of the members to add, or schema=, with their types")
    wanted = checked_names(columns, "columns") if columns is not None else arrow_schema(schema)
    if not len(wanted):
        raise ValueError("no member to add is named")
    kind = kind_of(frame)
    names = kind.names(frame)
    require_unique([*names, *(wanted.names if isinstance(wanted, pa.Schema) else wanted)])
    on = key_names(on, names)
    [description] = yield [calls.describe()]
    table_schema = TableSchema.from_description(description)
    keys = FrameKeys.of_frame(kind, frame, on, table_schema)
    distinct = distinct_keys(list(map(without_invalid_texts, keys.columns.values())), keys.fields)
    absent = ("record_not_found", *(["invalid_operation"] if keys.is_typed else []))
    size = min(KEYS_PER_REQUEST, table_schema.limits.operations_max)
    chunks = [distinct.keys.slice(start, size) for start in range(0, len(distinct.keys), size)]
    source = ArrowCalls(table_schema.pinned(calls.name), calls.settings)
    texts = yield (_values(source, chunk, absent) for chunk in chunks)
    pages = list(zip(chunks, texts, strict=True))
    added = pa.table(read_values(calls.name, pages, wanted, on_mismatch))
    return kind.with_columns(frame, added if distinct.is_identity else added.take(distinct.positions))


def _values(calls: ArrowCalls, keys: pa.Array, absent: Sequence[str]) -> Call[pa.Array]:
    outcomes = yield from calls.batch(pa.table({"key": keys}), op="get")
    raise_first_failure(calls.name, outcomes, except_codes=absent)
    return outcomes["value"].combine_chunks()


def scan_frame(
    calls: TableCalls[Any],
    schema: FrameSchema | None,
    kind: str,
    prefix: str | None,
    partition: str | int | None,
    on_mismatch: OnMismatch,
) -> Plan[Any]:
    """Return the records of a table as a frame, as `Table.scan_frame` describes it."""
    _require_schema(on_mismatch, schema)
    target, wanted = kind_named(kind), None if schema is None else arrow_schema(schema)
    [description] = yield [calls.describe()]
    table_schema = TableSchema.from_description(description)
    key_fields = [name or "key" for name in table_schema.key_names]
    require_unique([*key_fields, *([] if wanted is None else wanted.names)])
    parts = [given(prefix=prefix, partition=partition)]
    if not parts[0]:
        [splits] = yield [calls.splits(REQUESTS_IN_FLIGHT_MAX)]
        parts = [{"split": split} for split in splits]
    found = yield (_pages(ArrowCalls(calls.name, calls.settings), part) for part in parts)
    pages = [page for pages in found for page in pages]
    keys = _key_columns(pages, key_fields, table_schema)
    texts = [(plain(page["key"]), plain(page["value"])) for page in pages]
    members = read_values(calls.name, texts, wanted, on_mismatch)
    require_unique([*keys, *members])
    return target.from_arrow(pa.table(keys | members))


def _require_schema(on_mismatch: str, schema: FrameSchema | None) -> None:
    require_known(on_mismatch)
    if on_mismatch != "fail" and schema is None:
        raise ValueError("on_mismatch needs schema=: without a schema, a type is chosen that all values fit")


def _pages(calls: ArrowCalls, params: Mapping[str, Any]) -> Call[list[pa.Table]]:
    pages: list[pa.Table] = []
    cursor: str | None = None
    while True:
        page, cursor = yield from calls.page({**params, "limit": RECORDS_PER_PAGE}, cursor)
        pages += [page] if len(page) else []
        if cursor is None:
            return pages


def _key_columns(pages: Sequence[pa.Table], names: Sequence[str], schema: TableSchema) -> dict[str, pa.ChunkedArray]:
    types = [pa.int64() if kind == "integer" else pa.string() for kind in schema.key_types]
    keys = [plain(page["key"]) for page in pages]
    parts = [key.flatten() if pa.types.is_struct(key.type) else [key] for key in keys]
    columns = {
        name: pa.chunked_array([part[at].cast(kind) for part in parts], kind)
        for at, (name, kind) in enumerate(zip(names, types, strict=True))
    }
    if schema.partitions is not None:
        indexes = [plain(page[PARTITION_COLUMN]).cast(pa.int32()) for page in pages]
        columns[PARTITION_COLUMN] = pa.chunked_array(indexes, pa.int32())
    return columns


def read_values(
    table: str,
    pages: Sequence[tuple[pa.Array, pa.Array]],
    wanted: pa.Schema | Sequence[str] | None,
    on_mismatch: OnMismatch,
) -> dict[str, pa.Array]:
    """Return the members of JSON texts as one array for each, in the order of the pages of keys and texts.

    `wanted` are the members with their types, or their names, or None for all. Raises `ValueError`, with column and
    key, if a value does not fit, or there is no common type.
    """
    if isinstance(wanted, pa.Schema):
        schema = wanted
    else:
        inference = SchemaInference(table, wanted)
        for keys, texts in pages:
            inference.see(keys, texts)
        schema = inference.schema()
    reader = value_reader(schema)
    nulls, columns = NullMembers(table, schema.names), list[list[pa.Array]]([] for _ in schema)
    for keys, texts in pages:
        members = reader.read_fitting(table, keys, texts, on_mismatch)
        nulls.see(members, len(texts) - texts.null_count)
        for column, member, kind in zip(columns, members, schema.types, strict=True):
            column.append(member.cast(kind))
    nulls.log()
    return {
        field.name: pa.chunked_array(column, field.type).combine_chunks()
        for field, column in zip(schema, columns, strict=True)
    }
