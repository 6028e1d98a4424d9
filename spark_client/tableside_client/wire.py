"""Batches in Arrow: bodies, outcomes, cursors, and which operations are safe to repeat."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.batch_retry import OUTCOMES

ARROW = "application/vnd.apache.arrow.stream"


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
    """Read the response to a batch: exactly the columns of `OUTCOMES`. Other columns are dropped."""
    return read_stream(body).select(OUTCOMES.names).cast(OUTCOMES)


def next_cursor(page: pa.Table, headers: Mapping[str, str]) -> str | None:
    """The cursor of the page after this one, or None after the last page."""
    metadata: Mapping[bytes, bytes] = page.schema.metadata or {}
    return headers.get("tableside-cursor") or metadata.get(b"cursor", b"").decode() or None


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
