"""The records that the benchmarks read and write: about 120 bytes each, with keys of 7 characters."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from .load import Request

ARROW = "application/vnd.apache.arrow.stream"
TABLE = "bench"
INCREMENT = {"$inc": {"seats": 1}}


def key(index: int) -> str:
    """Return the key of a record."""
    return f"N{index:06d}"


def value(index: int) -> bytes:
    """Return the value of a record as JSON text."""
    seats, year = index % 300, 1970 + index % 50
    document = {
        "manufacturer": "BOEING",
        "model": f"737-{index}",
        "seats": seats,
        "speed": 12.5,
        "year": year,
        "type": "Fixed wing multi engine",
    }
    return json.dumps(document, separators=(",", ":")).encode()


def value_of(key: str) -> bytes:
    """Return the value of the record with this key."""
    return value(int(key[1:]))


def puts(count: int, rows: int = 5000, table: str = TABLE) -> Iterator[Request]:
    """Return requests that fill a table."""
    for start in range(0, count, rows):
        yield puts_as_arrow([key(index) for index in range(start, min(start + rows, count))], table)


def puts_as_arrow(keys: Sequence[str], table: str = TABLE) -> Request:
    """Return a batch of puts in Arrow."""
    columns: dict[str, Sequence[Any]] = {"key": keys, "value": [value_of(each) for each in keys]}
    return Request("POST", f"/v1/tables/{table}/batch?op=put", stream(columns), ARROW)


def puts_as_json(keys: Sequence[str]) -> Request:
    """Return a batch of puts in JSON."""
    return _as_json([{"op": "put", "key": each, "value": json.loads(value_of(each))} for each in keys])


def increments_as_arrow(keys: Sequence[str]) -> Request:
    """Return a batch of updates in Arrow that add 1 to the member `seats` of each record."""
    columns = {"key": keys, "update": [json.dumps(INCREMENT)] * len(keys)}
    return Request("POST", f"/v1/tables/{TABLE}/batch?op=update", stream(columns), ARROW)


def increments_as_json(keys: Sequence[str], **members: Any) -> Request:
    """Return the same in JSON. `members` are added to each operation."""
    return _as_json([{"op": "update", "key": each, "update": INCREMENT, **members} for each in keys])


def gets_as_arrow(keys: Sequence[str], table: str = TABLE) -> Request:
    """Return a batch of gets in Arrow."""
    return Request("POST", f"/v1/tables/{table}/batch?op=get", stream({"key": keys}), ARROW)


def gets_with_op_column(keys: Sequence[str]) -> Request:
    """Return the same with the operation in a column."""
    return Request("POST", f"/v1/tables/{TABLE}/batch", stream({"op": ["get"] * len(keys), "key": keys}), ARROW)


def gets_as_json(keys: Sequence[str]) -> Request:
    """Return a batch of gets in JSON."""
    return _as_json([{"op": "get", "key": each} for each in keys])


def stream(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Return columns as an Arrow stream."""
    batch = pa.record_batch([pa.array(column) for column in columns.values()], names=list(columns))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _as_json(operations: Sequence[Mapping[str, Any]]) -> Request:
    body = json.dumps({"operations": operations})
    return Request("POST", f"/v1/tables/{TABLE}/batch", body.encode())
