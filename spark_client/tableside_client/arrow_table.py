"""`ArrowTable`: batches and scans of one table in Arrow."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.batch_retry import Failures, send_with_retries
from tableside_client.calls import Call, CallLimits, CallSettings, Run
from tableside_client.errors import TablesideError
from tableside_client.http1 import Request
from tableside_client.paths import given, joined, table_path
from tableside_client.retries import RequestWindow


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
        self._calls = ArrowCalls(name, settings)
        self._run = run

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._calls.name

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
        that are safe to repeat (reads, writes with a token or an order, puts and deletes without a precondition). A
        batch that is too large for one request is split in halves.

        Args:
            operations: One row per operation, with the columns of the service's Arrow batch.
            op: The kind of all operations, if there is no column `op`.
            writer: The writer's name of the tokens, whose numbers are the column `sequence`.
            return_: Return the new values of writes.
            fields: The members that reads return. Default: all.
            at_least_once: Treat every operation as safe to repeat.
            window: Adapts to the duration and the failures of each request.

        Returns:
            One row per operation, in the same order: the columns of `tableside_client.arrow_table.OUTCOMES`,
            `superseded` if the operations have a column `order`, and `retries`. A failed operation is a row with a
            `code`, also if the service was unreachable.

        Raises:
            TablesideError: The service refused the whole request permanently.
        """
        call = self._calls.batch(
            operations,
            op=op,
            writer=writer,
            return_=return_,
            fields=fields,
            at_least_once=at_least_once,
            window=window,
        )
        return self._run(call)

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
            page, cursor = self._run(self._calls.page(params, cursor))
            yield page
            if cursor is None:
                return


class ArrowCalls:
    """The batches and scans of one table in Arrow as calls, which a client runs."""

    def __init__(self, name: str, settings: CallSettings) -> None:
        self.name = name
        self._settings = settings

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
    ) -> Call[pa.Table]:
        """Send operations as one batch, as `ArrowTable.batch` does."""
        rows = operations if isinstance(operations, pa.Table) else pa.Table.from_batches([operations])
        repeatable = repeatable_rows(rows, op, writer is not None, at_least_once)
        params = given(op=op, writer=writer, fields=joined(fields)) | ({"return": "true"} if return_ else {})
        batch = _Batch(CallLimits(self._settings), self.name, rows, params, window)
        return (yield from batch.send_all(repeatable))

    def page(self, params: Mapping[str, Any], cursor: str | None) -> Call[tuple[pa.Table, str | None]]:
        """Return one page of a scan and the cursor of the next page, None after the last one."""
        path = table_path(self.name, "records")
        request = Request("GET", path, self.name, {**params, **given(cursor=cursor)}, {"Accept": ARROW})
        response = yield from CallLimits(self._settings).send_with_retries(request)
        page = read_stream(response.content)
        metadata: Mapping[bytes, bytes] = page.schema.metadata or {}
        cursor = response.headers.get("tableside-cursor") or metadata.get(b"cursor", b"").decode()
        return page, cursor or None


ARROW = "application/vnd.apache.arrow.stream"

OUTCOMES = pa.schema(
    {
        "status": pa.uint16(),
        "value": pa.binary(),
        "etag": pa.string(),
        "code": pa.string(),
        "detail": pa.string(),
        "retriable": pa.bool_(),
        "applied": pa.string(),
        "replayed": pa.bool_(),
    }
)
"""The columns of a response: one row per operation, in the order of the operations."""

ORDERED_OUTCOMES = OUTCOMES.append(pa.field("superseded", pa.bool_()))
"""The columns of a response to operations with a column `order`."""

_UNCONDITIONAL = {"op", "key", "value", "update", "default", "ttl_s", "sequence", "order", "partitions"}
"""The columns that do not make a put or a delete unsafe to repeat."""


class _Batch:
    """The operations of a batch, and the outcomes of all of its attempts."""

    def __init__(
        self,
        limits: CallLimits,
        table: str,
        operations: pa.Table,
        params: Mapping[str, Any],
        window: RequestWindow | None,
    ) -> None:
        self._limits = limits
        self._table = table
        self._operations = operations
        self._params = params
        self._window = window
        self._schema = ORDERED_OUTCOMES if "order" in operations.column_names else OUTCOMES
        self._attempts: list[tuple[Sequence[int], pa.Table]] = []

    def send_all(self, repeatable: pa.Array) -> Call[pa.Table]:
        """Send the operations, with retries, and return their outcomes with the number of retries of each."""
        yield from send_with_retries(
            len(self._operations), self._send, self._key, lambda at: repeatable[at].as_py(), self._limits.pause
        )
        return self._outcomes()

    def _key(self, position: int) -> str:
        return repr(self._operations["key"][position].as_py())

    def _send(self, positions: Sequence[int]) -> Call[Failures]:
        """Send operations once, and return their failures that a retry may change, or that block later operations."""
        operations = self._operations if not self._attempts else self._operations.take(positions)
        rows, retry_after_s = yield from self._rows(operations)
        self._attempts.append((positions, rows))
        is_unknown = pc.fill_null(pc.equal(rows["applied"], "unknown"), False)
        at = pc.indices_nonzero(pc.or_(pc.fill_null(rows["retriable"], False), is_unknown))
        found = rows.select(["code", "detail", "retriable", "applied"]).take(at).to_pylist() if len(at) else []
        failures = ({**failure, "retry_after_s": retry_after_s} for failure in found)
        return {positions[each]: failure for each, failure in zip(at.to_pylist(), failures, strict=True)}

    def _rows(self, operations: pa.Table) -> Call[tuple[pa.Table, float | None]]:
        """Send operations in one request or, if the service rejects it as too large, in halves.

        Returns their outcomes, and the time to wait before a retry if the whole request failed.
        """
        headers, started_s = {"Content-Type": ARROW, "Accept": ARROW}, time.monotonic()
        request = Request(
            "POST", table_path(self._table, "batch"), self._table, self._params, headers, stream_bytes(operations)
        )
        try:
            response = yield from self._limits.send(request)
        except TablesideError as failure:
            if failure.status == 413 and len(operations) > 1:
                half = len(operations) // 2
                first, _ = yield from self._rows(operations.slice(0, half))
                second, retry_after_s = yield from self._rows(operations.slice(half))
                return pa.concat_tables([first, second]), retry_after_s
            if failure.status != 413 and not failure.retriable:
                raise
            rows, retry_after_s = _failed(failure, self._schema, len(operations)), failure.retry_after_s
        else:
            rows, retry_after_s = read_stream(response.content).select(self._schema.names).cast(self._schema), None
        if self._window is not None:
            position = pc.index(rows["retriable"], True).as_py()
            code = None if position < 0 else rows["code"][position].as_py()
            self._window.observe(time.monotonic() - started_s, code)
        return rows, retry_after_s

    def _outcomes(self) -> pa.Table:
        """Return the last outcome of each operation."""
        [(positions, rows), *later] = self._attempts
        if not later:
            return rows.append_column("retries", pa.repeat(pa.scalar(0, pa.uint16()), len(rows)))
        last, retries = list(positions), [0] * len(positions)
        for at, position in enumerate((each for positions, _ in later for each in positions), len(last)):
            last[position] = at
            retries[position] += 1
        rows = pa.concat_tables([attempted for _, attempted in self._attempts]).take(last)
        return rows.append_column("retries", pa.array(retries, pa.uint16()))


def _failed(error: TablesideError, schema: pa.Schema, count: int) -> pa.Table:
    """Return the outcomes of a request that failed as a whole: the same one for each of its operations."""
    outcome = {
        "status": error.status,
        "code": error.code,
        "detail": error.detail,
        "retriable": error.retriable,
        "applied": error.applied,
        "replayed": False,
        "superseded": False,
    }
    columns = [pa.repeat(pa.scalar(outcome.get(field.name), field.type), count) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


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


def repeatable_rows(operations: pa.Table, op: str | None, tokens: bool, at_least_once: bool) -> pa.Array:
    """A boolean for each operation: whether it is safe to repeat, even if it has already been applied.

    Safe are reads, writes with a token or an order, and puts and deletes without a precondition.
    """
    count = len(operations)
    if at_least_once or op == "get":
        return pa.repeat(True, count)
    names = operations.column_names
    kinds = operations["op"].cast(pa.string()) if "op" in names else pa.chunked_array([pa.repeat(op, count)])
    safe = pc.is_in(kinds, pa.array(["put", "delete"]))
    for name in set(names) - _UNCONDITIONAL:
        option = operations[name]
        is_false = pa.types.is_boolean(option.type)
        safe = pc.and_(safe, pc.invert(pc.fill_null(option, False)) if is_false else pc.is_null(option))
    safe = pc.or_(safe, pc.equal(kinds, "get"))
    for name in (["sequence"] if tokens else []) + ["order"]:
        if name in names:
            safe = pc.or_(safe, pc.is_valid(operations[name]))
    return pc.fill_null(safe, False).combine_chunks()


def raise_first_failure(table: str, outcomes: pa.Table, *, except_codes: Sequence[str] = ()) -> None:
    """Raise the first failure of a batch, ignoring failures with one of the codes `except_codes`."""
    code = outcomes["code"]
    if code.null_count == len(code):
        return
    ignored = pc.is_in(code, pa.array([None, *except_codes], pa.string()))
    failures = outcomes.filter(pc.invert(ignored))
    if len(failures):
        first = failures.slice(0, 1).to_pylist()[0]
        detail = f"{first['detail']} ({len(failures)} of {len(outcomes)} operations sent together)"
        raise TablesideError(table, first["code"], first["status"], detail)
