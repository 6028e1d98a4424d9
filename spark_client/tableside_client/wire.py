"""Arrow and JSON on the wire: bodies, paths and what may be sent twice. Knows no HTTP library and no Spark."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.batch_retry import ANSWER

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"

Key = str | int | Sequence[str | int]


def stream_bytes(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read_stream(body: bytes) -> pa.Table:
    """The table in an Arrow IPC stream, without copying it."""
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return reader.read_all()


def read_answer(body: bytes) -> pa.Table:
    """A batch's answer with exactly the columns of `ANSWER`, whatever else the service adds."""
    return read_stream(body).select(ANSWER.names).cast(ANSWER)


def json_bytes(document: Any) -> bytes:
    """The document as JSON; NaN and infinities are refused, since JSON cannot hold them."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def key_path(key: Key) -> str | None:
    """The key as path segments, or None where a path cannot carry it (`.`, `..`, nothing)."""
    parts = [str(part) for part in ([key] if isinstance(key, str | int) else key)]
    if not parts or any(part in ("", ".", "..") for part in parts):
        return None
    return "/".join(quote(part, safe="") for part in parts)


def repeatable(operations: pa.Table, op: str | None, tokens: bool, at_least_once: bool) -> pa.Array:
    """Of each operation, whether sending it again is harmless even if it has been applied.

    Reads always are; writes with a token; puts and deletes without a precondition.
    """
    count = len(operations)
    if at_least_once or op == "get":
        return pa.repeat(True, count)
    names = operations.column_names
    kinds = operations["op"].cast(pa.string()) if "op" in names else pa.chunked_array([pa.repeat(op, count)])
    harmless = pc.and_(pc.is_in(kinds, pa.array(["put", "delete"])), _unconditional(operations))
    harmless = pc.or_(harmless, pc.equal(kinds, "get"))
    if tokens and "sequence" in names:
        harmless = pc.or_(harmless, pc.is_valid(operations["sequence"]))
    return pc.fill_null(harmless, False).combine_chunks()


def _unconditional(operations: pa.Table) -> pa.Array:
    mask = pa.repeat(True, len(operations))
    if "if_match" in operations.column_names:
        mask = pc.and_(mask, pc.is_null(operations["if_match"]))
    if "if_absent" in operations.column_names:
        mask = pc.and_(mask, pc.invert(pc.fill_null(operations["if_absent"], False)))
    return mask


def without_nothing(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members that are given: None is "not given" among a request's parameters."""
    return {name: member for name, member in members.items() if member is not None}
