"""Send batches: in Arrow with retries by position, or a single operation in JSON."""

import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client import batch_retry, wire
from tableside_client.errors import TableError, from_problem
from tableside_client.paths import Key, table_path
from tableside_client.request_window import RequestWindow
from tableside_client.transport import Transport


def send_batch(
    transport: Transport,
    table: str,
    operations: pa.Table,
    repeatable: pa.Array,
    params: Mapping[str, Any],
    window: RequestWindow | None = None,
) -> pa.Table:
    """Send operations in Arrow, with retries by position. A batch that is too large for one request is split.

    An operation that is too large for a request of its own has the outcome `too_large`.
    """
    outcomes = _send_halves(transport, table, operations, repeatable, params, window)
    transport.count_retries(int(pc.sum(outcomes["retries"]).as_py() or 0))
    return outcomes


def _send_halves(
    transport: Transport,
    table: str,
    operations: pa.Table,
    repeatable: pa.Array,
    params: Mapping[str, Any],
    window: RequestWindow | None,
) -> pa.Table:
    try:
        return batch_retry.send_with_retries(
            operations,
            lambda pending: _send_observed(transport, table, pending, params, window),
            repeatable,
            transport.new_budget(),
        )
    except TableError as error:
        if error.status != 413:
            raise
        if len(operations) < 2:  # the operation itself is too large: the others have outcomes of their own
            rows = batch_retry.failed_response(error, len(operations)).rows
            return rows.append_column("retries", pa.repeat(pa.scalar(0, pa.uint16()), len(rows)))
        half = len(operations) // 2
        parts = [
            (operations.slice(0, half), repeatable.slice(0, half)),
            (operations.slice(half), repeatable.slice(half)),
        ]
        return pa.concat_tables([_send_halves(transport, table, *part, params, window) for part in parts])


def _send_observed(
    transport: Transport, table: str, operations: pa.Table, params: Mapping[str, Any], window: RequestWindow | None
) -> batch_retry.BatchResponse:
    started_s = time.monotonic()
    response = _send_once(transport, table, operations, params)
    if window is not None:
        code = batch_retry.first_retriable_code(response.rows)
        window.observe(time.monotonic() - started_s, code)
    return response


def _send_once(
    transport: Transport, table: str, operations: pa.Table, params: Mapping[str, Any]
) -> batch_retry.BatchResponse:
    try:
        response = transport.send(
            "POST",
            table_path(table, "batch"),
            table=table,
            params=params,
            content=wire.stream_bytes(operations),
            headers={"Content-Type": wire.ARROW, "Accept": wire.ARROW},
        )
    except TableError as error:
        if not error.retriable:
            raise
        return batch_retry.failed_response(error, len(operations))
    return batch_retry.BatchResponse(wire.read_outcomes(response.content))


def send_get(transport: Transport, table: str, key: Key, members: Mapping[str, Any]) -> dict[str, Any]:
    """Send one get as a batch, and return its result. Raises `TableError` if it failed."""
    return _send_one(transport, table, {"op": "get", "key": key, **members}, repeatable=True)


def send_write(
    transport: Transport,
    table: str,
    op: str,
    key: Key,
    members: Mapping[str, Any],
    token: tuple[str, int] | None,
    return_: bool,
) -> dict[str, Any]:
    """Send one write as a batch, and return its result. Raises `TableError` if it failed."""
    operation = {"op": op, "key": key, **members} | ({"return": True} if return_ else {})
    if token is not None:
        operation["token"] = {"writer": token[0], "sequence": token[1]}
    conditional = "if_match" in members or "if_absent" in members
    return _send_one(transport, table, operation, repeatable=token is not None or (op != "update" and not conditional))


def _send_one(transport: Transport, table: str, operation: Mapping[str, Any], *, repeatable: bool) -> dict[str, Any]:
    def attempt() -> dict[str, Any]:
        body = {"operations": [operation]}
        response = transport.send("POST", table_path(table, "batch"), table=table, json=body)
        result: dict[str, Any] = response.json()["results"][0]
        if "error" in result:
            raise from_problem(table, int(result["status"]), result["error"], None)
        return result

    return transport.retry(attempt, repeatable=repeatable)
