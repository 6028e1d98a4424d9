"""`ArrowTable`: batches and scans of one table in Arrow."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client import batch_retry
from tableside_client.batch_retry import OUTCOMES
from tableside_client.calls import Call, CallLimits, CallSettings, Request, Run
from tableside_client.errors import TablesideError
from tableside_client.paths import given, joined, table_path
from tableside_client.request_window import RequestWindow


class ArrowTable:
    """A table whose batches and scans are Arrow tables, for many records. `Client.arrow_table` creates it.

    Its methods are thread-safe, and raise `TablesideError` if the service refuses a request or stays unavailable.

    Example:
        ```python
        with Client("http://127.0.0.1:8080") as client:
            users = client.arrow_table("users")
            users.batch(pa.table({"key": ["ada"], "value": ['{"name": "Ada"}']}), op="put")
            for page in users.scan():
                page["value"]  # JSON text
        ```
    """

    def __init__(self, name: str, settings: CallSettings, run: Run) -> None:
        self._name = name
        self._settings = settings
        self._run = run

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._name

    def batch(
        self,
        operations: pa.Table | pa.RecordBatch,
        *,
        op: str | None = None,
        writer: str | None = None,
        return_: bool = False,
        fields: Sequence[str] | None = None,
        at_least_once: bool = False,
        window: RequestWindow | None = None,
    ) -> pa.Table:
        """Send operations as one batch.

        Only operations that may still succeed are retried: operations that were certainly not applied, and operations
        that are safe to repeat (reads, writes with a token, puts and deletes without a precondition). A batch that
        is too large for one request is split in halves.

        Args:
            operations: One row per operation, with the columns of the service's Arrow batch.
            op: The kind of all operations, if there is no column `op`.
            writer: The writer's name of the tokens, whose numbers are the column `sequence`.
            return_: Return the new values of writes.
            fields: The members that reads return. Default: all.
            at_least_once: Treat every operation as safe to repeat.
            window: Adapts to the duration and the failures of each request.

        Returns:
            One row per operation, in the same order: the columns of `tableside_client.batch_retry.OUTCOMES`, and
            `retries`. A failed operation is a row with a `code`, also if the service was unreachable.

        Raises:
            TablesideError: The service refused the whole request permanently.
        """
        rows = operations if isinstance(operations, pa.Table) else pa.Table.from_batches([operations])
        repeatable = repeatable_rows(rows, op, writer is not None, at_least_once)
        params = given(op=op, writer=writer, fields=joined(fields)) | ({"return": "true"} if return_ else {})
        return self._run(ArrowBatches(self._settings, self._name, params, window).send(rows, repeatable))

    def scan(
        self,
        *,
        split: str | None = None,
        prefix: str | None = None,
        partition: str | None = None,
        partitions: Sequence[int] | None = None,
        fields: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.Table]:
        """Read all records of the table, or a part of them, page by page.

        A record that exists during the whole scan is returned at least once.

        Args:
            split: Read one part, as `Table.splits` returned it.
            prefix: Read only the keys that begin with this text.
            partition: Read only the composite keys with this first part.
            partitions: Read only the partitions with these indexes. For partitioned tables.
            fields: The members to return. Default: all.
            limit: The maximum number of records per page.

        Yields:
            Pages with the columns `key`, `value` (JSON text) and `etag`, and `partition` if the table is partitioned. A
            page may be short or empty.
        """
        indexes = None if partitions is None else joined([str(index) for index in partitions])
        params = given(
            split=split, prefix=prefix, partition=partition, partitions=indexes, fields=joined(fields), limit=limit
        )
        cursor: str | None = None
        while True:
            page, cursor = self._run(self._page(params | given(cursor=cursor)))
            yield page
            if cursor is None:
                return

    def _page(self, params: Mapping[str, Any]) -> Call[tuple[pa.Table, str | None]]:
        """Return one page of a scan and the cursor of the next page, None after the last one."""
        path = table_path(self._name, "records")
        request = Request("GET", path, self._name, params, {"Accept": ARROW})
        response = yield from self._settings.start().send_with_retries(request)
        page = read_stream(response.content)
        return page, next_cursor(page, response.headers)


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
        headers = {"Content-Type": ARROW, "Accept": ARROW}
        content = stream_bytes(operations)
        path = table_path(self._table, "batch")
        try:
            response = yield from limits.send(Request("POST", path, self._table, self._params, headers, content))
        except TablesideError as failure:
            if not failure.retriable:
                raise
            return batch_retry.failed_response(failure, len(operations))
        return batch_retry.BatchResponse(read_outcomes(response.content))


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


def repeatable_rows(operations: pa.Table, op: str | None, tokens: bool, at_least_once: bool) -> pa.Array:
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
