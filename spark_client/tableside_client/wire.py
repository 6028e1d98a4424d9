"""Request parts: Arrow and JSON bodies, paths, headers, and which operations are safe to repeat."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.batch_retry import OUTCOMES

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"

Key = str | int | Sequence[str | int]


def stream_bytes(table: pa.Table) -> bytes:
    """Serialize a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read_stream(body: bytes) -> pa.Table:
    """Read an Arrow IPC stream without copying its buffers."""
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return reader.read_all()


def read_outcomes(body: bytes) -> pa.Table:
    """Read the response to a batch: exactly the columns of `OUTCOMES`; other columns are dropped."""
    return read_stream(body).select(OUTCOMES.names).cast(OUTCOMES)


def next_cursor(page: pa.Table, headers: Mapping[str, str]) -> str | None:
    """The cursor of the page after this one, or None after the last page."""
    metadata: Mapping[bytes, bytes] = page.schema.metadata or {}
    return headers.get("tableside-cursor") or metadata.get(b"cursor", b"").decode() or None


def json_bytes(document: Any) -> bytes:
    """Serialize a document as JSON. Raises `ValueError` for NaN and infinities, which JSON does not have."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def key_path(key: Key) -> str | None:
    """The key as path segments, or None if a path cannot represent it (an empty segment, `.` or `..`)."""
    parts = [str(part) for part in ([key] if isinstance(key, str | int) else key)]
    if not parts or any(part in ("", ".", "..") for part in parts):
        return None
    return "/".join(quote(part, safe="") for part in parts)


def repeatable(operations: pa.Table, op: str | None, tokens: bool, at_least_once: bool) -> pa.Array:
    """A boolean for each operation: whether it is safe to repeat, even if it has already been applied.

    Safe are reads, writes with a token, and puts and deletes without a precondition.
    """
    count = len(operations)
    if at_least_once or op == "get":
        return pa.repeat(True, count)
    names = operations.column_names
    kinds = operations["op"].cast(pa.string()) if "op" in names else pa.chunked_array([pa.repeat(op, count)])
    safe = pc.and_(pc.is_in(kinds, pa.array(["put", "delete"])), _unconditional(operations))
    safe = pc.or_(safe, pc.equal(kinds, "get"))
    if tokens and "sequence" in names:
        safe = pc.or_(safe, pc.is_valid(operations["sequence"]))
    return pc.fill_null(safe, False).combine_chunks()


def _unconditional(operations: pa.Table) -> pa.Array:
    mask = pa.repeat(True, len(operations))
    if "if_match" in operations.column_names:
        mask = pc.and_(mask, pc.is_null(operations["if_match"]))
    if "if_absent" in operations.column_names:
        mask = pc.and_(mask, pc.invert(pc.fill_null(operations["if_absent"], False)))
    return mask


def table_path(table: str, *rest: str) -> str:
    """The path of a table, or of a resource below it."""
    return "/".join(["/v1/tables", key_path(table) or table, *rest])


def record_path(table: str, key: Key, token: tuple[str, int] | None) -> str | None:
    """The path of a record, or None if a path cannot represent the key, or a header cannot represent the token."""
    path = key_path(key)
    portable = token is None or (token[0].isascii() and token[0].isprintable())
    return table_path(table, "records", path) if path is not None and portable else None


def write_headers(if_match: str | None, token: tuple[str, int] | None, return_: bool) -> dict[str, str]:
    """The headers of a single write: precondition, token, and whether to return the new value."""
    quoted = None if if_match is None else "*" if if_match == "*" else f'"{if_match}"'
    return given(
        **{
            "If-Match": quoted,
            "Tableside-Token": None if token is None else f"{token[0]}/{token[1]}",
            "Prefer": "return=representation" if return_ else None,
        }
    )


def joined(fields: Sequence[str] | None) -> str | None:
    """The value of the parameter `fields`."""
    return None if fields is None else ",".join(fields)


def given(**members: Any) -> dict[str, Any]:
    """The members that are not None: a request omits the others."""
    return {name: member for name, member in members.items() if member is not None}
