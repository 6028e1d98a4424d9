"""Batches by their options: the plainest one, with keys and values only, and one for each option that callers use.

`CASES` lists the measured ones. A new option of an operation belongs there, so that a slow path is noticed.
"""

import io
import json
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias
from urllib.parse import urlencode

import orjson
import pyarrow as pa

from . import records
from .load import Request, answer

Op: TypeAlias = Literal["get", "put", "update"]
Form: TypeAlias = Literal["Arrow", "JSON"]

ARROW = "application/vnd.apache.arrow.stream"
INCREMENT = {"$inc": {"seats": 1}}
COMPOSITE = {"tail": "string", "number": "integer"}
WRITER = "bench"
SEQUENCE = 1 << 60
"""The sequence in a prepared body. Each sending replaces it by the time in nanoseconds, so no write is a repetition."""

BAD = "bad"
"""The value or update of an invalid row. In Arrow it is not JSON."""

ROWS_FOR_A_BAD_ONE = 1000


@dataclass(frozen=True)
class Case:
    """The options of a batch. `ratio_min` is the lowest acceptable ratio of its rate to that of the plainest batch.

    `sets`: an update sets a member instead of adding to it, which an ordered update cannot. `own`: each update has its
    own operand. `composite`: the key has a second part. `doubles`: values have a double that equals an integer.
    """

    name: str
    ratio_min: float | None = None
    key_name: str = ""
    ttl_s: int | None = None
    value_bytes: int = 0
    fields: Sequence[str] = ()
    default: bool = False
    token: bool = False
    order: bool = False
    sets: bool = False
    own: bool = False
    composite: bool = False
    doubles: bool = False
    op_column: bool = False
    bad_rows: bool = False

    @property
    def table(self) -> str:
        """Return the name of the table that only this case uses."""
        return "".join(each if each.isalnum() else "-" for each in self.name)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the settings of its table, without the store."""
        if self.composite:
            return {"key": COMPOSITE}
        return {"key": {self.key_name: "string"}} if self.key_name else {}

    def value(self, key: str) -> bytes:
        """Return the value of the record with this key."""
        value = records.value(int(key[1:]), self.value_bytes)
        return value.replace(b'"speed":12.5', b'"speed":120.0') if self.doubles else value

    def failures(self, op: Op, rows: int) -> int:
        """Return the number of invalid rows in a batch of this size."""
        return rows // ROWS_FOR_A_BAD_ONE if self.bad_rows and op != "get" else 0


PLAIN = Case("key and value")
NAMED = Case("named key", 0.85, key_name="tailnum")
OP_COLUMN = Case("op column", 0.85, op_column=True)
REALISTIC = Case("named key, ttl_s", 0.85, key_name="tailnum", ttl_s=86_400)
REALISTIC_LARGE = Case("named key, ttl_s, 1 KB", 0.35, key_name="tailnum", ttl_s=86_400, value_bytes=1000)

_WRITES = (
    PLAIN,
    NAMED,
    Case("ttl_s", 0.85, ttl_s=86_400),
    Case("token", 0.85, token=True),
    Case("1 KB", 0.35, value_bytes=1000),
    Case("1 bad row in 1,000", 0.85, bad_rows=True),
    OP_COLUMN,
    Case("composite key", 0.2, composite=True),
    Case("whole doubles", 0.5, doubles=True),
    REALISTIC,
    REALISTIC_LARGE,
)
CASES: Mapping[Op, Sequence[Case]] = {
    "put": _WRITES,
    "get": (
        PLAIN,
        replace(NAMED, ratio_min=0.95),
        Case("fields", 0.5, fields=("seats", "year")),
        Case("1 KB", 0.35, value_bytes=1000),
        OP_COLUMN,
        Case("composite key", 0.2, composite=True),
        REALISTIC,
        REALISTIC_LARGE,
    ),
    "update": (
        *_WRITES,
        Case("named key, default", 0.85, key_name="tailnum", default=True),
        Case("own operands", 0.5, own=True),
    ),
}
"""The measured cases of each operation, the baseline first. Cases with one name use one table."""


def batch(op: Op, keys: Sequence[str], table: str = records.TABLE, case: Case = PLAIN, form: Form = "Arrow") -> Request:
    """Return a batch with one operation for each key. Updates add 1 to the member `seats` of each record."""
    path, operations = f"/v1/tables/{table}/batch", _operations(op, keys, case)
    if form == "Arrow":
        request, packed = _arrow(operations, path, op_column=case.op_column), struct.Struct("<q").pack
    else:
        request, packed = Request("POST", path, orjson.dumps({"operations": operations})), b"%d".__mod__
    return replace(request, renewed=partial(_renewed, packed)) if case.token or case.order else request


def puts(count: int, table: str = records.TABLE, case: Case = PLAIN, rows: int = 5000) -> list[Request]:
    """Return requests that fill a table. All of their rows are valid."""
    keys, valid = [records.key(index) for index in range(count)], replace(case, bad_rows=False)
    return [batch("put", keys[start : start + rows], table, valid) for start in range(0, count, rows)]


def check(url: str, request: Request, rows: int, failures: int = 0) -> None:
    """Send a batch once. Raise unless exactly so many of its operations fail, which the response's status hides."""
    body = answer(url, request)
    if request.media_type == ARROW:
        statuses = pa.ipc.open_stream(io.BytesIO(body)).read_all()["status"].to_pylist()
    else:
        statuses = [result["status"] for result in json.loads(body)["results"]]
    failed = sum(status >= 300 for status in statuses)
    if (len(statuses), failed) != (rows, failures):
        raise RuntimeError(f"{request.path}: {failed} of {len(statuses)} operations failed, expected {failures}")


def _operations(op: Op, keys: Sequence[str], case: Case) -> list[dict[str, Any]]:
    """Return the operations with their members."""
    members: dict[str, Any] = {}
    if op == "get" and case.fields:
        members["fields"] = case.fields
    if op == "update":
        members["update"] = {"$set": {"seats": 1}} if case.sets else INCREMENT
    if op == "update" and case.default:
        members["default"] = {"seats": 0}
    if op != "get" and case.ttl_s:
        members["ttl_s"] = case.ttl_s
    if op != "get" and case.token:
        members["token"] = {"writer": WRITER, "sequence": SEQUENCE}
    if op != "get" and case.order:
        members["order"] = SEQUENCE
    numbers = [int(key[1:]) for key in keys]
    operations: list[dict[str, Any]] = [{"op": op, "key": key, **members} for key in keys]
    for operation, key, number in zip(operations, keys, numbers, strict=True):
        if case.composite:
            operation["key"] = [key, number]
        if op == "put":
            operation["value"] = orjson.Fragment(case.value(key))
        if op == "update" and case.own:
            operation["update"] = {"$inc": {"seats": number}}
    for index in range(case.failures(op, len(keys))):
        operations[index * ROWS_FOR_A_BAD_ONE]["value" if op == "put" else "update"] = BAD
    return operations


def _arrow(operations: Sequence[Mapping[str, Any]], path: str, *, op_column: bool) -> Request:
    """Return a batch in which members that the interface allows as parameters are parameters."""
    columns = {name: [operation[name] for operation in operations] for name in operations[0]}
    parameters = {} if op_column else {"op": columns.pop("op")[0]}
    if "fields" in columns:
        parameters["fields"] = ",".join(columns.pop("fields")[0])
    if "token" in columns:
        columns["sequence"] = [token["sequence"] for token in columns.pop("token")]
        parameters["writer"] = WRITER
    if isinstance(columns["key"][0], list):
        columns["key"] = [dict(zip(COMPOSITE, key, strict=True)) for key in columns["key"]]
    for name in columns.keys() & {"value", "update", "default"}:
        columns[name] = ["{" if document == BAD else orjson.dumps(document).decode() for document in columns[name]]
    return Request("POST", f"{path}?{urlencode(parameters)}", _stream(columns), ARROW)


def _renewed(packed: Callable[[int], bytes], body: bytes) -> bytes:
    return body.replace(packed(SEQUENCE), packed(time.time_ns()))


def _stream(columns: Mapping[str, Sequence[Any]]) -> bytes:
    rows = pa.record_batch([pa.array(column) for column in columns.values()], names=list(columns))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue()
