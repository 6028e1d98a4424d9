"""The records that the benchmarks read and write: about 120 bytes each, under keys of 7 characters."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from .load import Request

ARROW = "application/vnd.apache.arrow.stream"
TABLE = "bench"


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


def puts(count: int, rows: int = 5000) -> Iterator[Request]:
    """Return requests that fill the table."""
    for start in range(0, count, rows):
        indexes = range(start, min(start + rows, count))
        columns: dict[str, Sequence[Any]] = {
            "key": [key(index) for index in indexes],
            "value": [value(index) for index in indexes],
        }
        yield Request("POST", f"/v1/tables/{TABLE}/batch?op=put", stream(columns), ARROW)


def gets_as_arrow(keys: Sequence[str]) -> Request:
    """Return a batch of gets in Arrow."""
    return Request("POST", f"/v1/tables/{TABLE}/batch?op=get", stream({"key": keys}), ARROW)


def gets_as_json(keys: Sequence[str]) -> Request:
    """Return a batch of gets in JSON."""
    body = json.dumps({"operations": [{"op": "get", "key": each} for each in keys]})
    return Request("POST", f"/v1/tables/{TABLE}/batch", body.encode())


def stream(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Return columns as an Arrow stream."""
    batch = pa.record_batch([pa.array(column) for column in columns.values()], names=list(columns))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
