"""Calls that send batches in Arrow, with retries by position."""

import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tableside_client import batch_retry, wire
from tableside_client.calls import Call, CallLimits, CallSettings, Request
from tableside_client.errors import TablesideError
from tableside_client.paths import table_path
from tableside_client.request_window import RequestWindow


class ArrowBatches:
    """Sends batches of one table. `params` are the parameters of the requests."""

    def __init__(
        self, settings: CallSettings, table: str, params: Mapping[str, Any], window: RequestWindow | None
    ) -> None:
        self._settings = settings
        self._table = table
        self._params = params
        self._window = window

    def send(self, operations: pa.Table, repeatable: pa.Array) -> Call[pa.Table]:
        """Send operations, and retry them by position. A batch that is too large for one request is split.

        An operation that is too large for a separate request has the outcome `too_large`.
        """
        limits = self._settings.start()
        try:
            return (
                yield from batch_retry.send_with_retries(
                    operations, lambda pending: self._send_observed(limits, pending), repeatable, limits.pause
                )
            )
        except TablesideError as failure:
            if failure.status != 413:
                raise
            if len(operations) < 2:  # the operation itself is too large: the others have separate outcomes
                rows = batch_retry.failed_response(failure, len(operations)).rows
                return rows.append_column("retries", pa.repeat(pa.scalar(0, pa.uint16()), len(rows)))
        half = len(operations) // 2
        first = yield from self.send(operations.slice(0, half), repeatable.slice(0, half))
        return pa.concat_tables([first, (yield from self.send(operations.slice(half), repeatable.slice(half)))])

    def _send_observed(self, limits: CallLimits, operations: pa.Table) -> Call[batch_retry.BatchResponse]:
        started_s = time.monotonic()
        response = yield from self._send_once(limits, operations)
        if self._window is not None:
            code = batch_retry.first_retriable_code(response.rows)
            self._window.observe(time.monotonic() - started_s, code)
        return response

    def _send_once(self, limits: CallLimits, operations: pa.Table) -> Call[batch_retry.BatchResponse]:
        headers = {"Content-Type": wire.ARROW, "Accept": wire.ARROW}
        content = wire.stream_bytes(operations)
        path = table_path(self._table, "batch")
        try:
            response = yield from limits.send(Request("POST", path, self._table, self._params, headers, content))
        except TablesideError as failure:
            if not failure.retriable:
                raise
            return batch_retry.failed_response(failure, len(operations))
        return batch_retry.BatchResponse(wire.read_outcomes(response.content))
