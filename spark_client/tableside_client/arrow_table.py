"""`ArrowTable`: batches and scans of one table in Arrow, and rows divided into the chunks of requests."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.calls import Batch, Call, CallLimits, CallSettings, Failures, Run
from tableside_client.errors import TablesideError, error
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
        params = given(op=op, writer=writer, fields=joined(fields), **{"return": "true" if return_ else None})
        return self._run(self._calls.batch(operations, at_least_once=at_least_once, window=window, **params))

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
        self.name, self._settings = name, settings

    def batch(
        self,
        operations: pa.Table | pa.RecordBatch,
        *,
        at_least_once: bool = False,
        window: RequestWindow | None = None,
        **params: str,
    ) -> Call[pa.Table]:
        """Send operations as one batch, as `ArrowTable.batch` does. `params` are those of the request."""
        rows = operations if isinstance(operations, pa.Table) else pa.Table.from_batches([operations])
        repeatable = repeatable_rows(rows, params.get("op"), "writer" in params, at_least_once)
        batch = _ArrowBatch(CallLimits(self._settings), self.name, rows, params, repeatable, window)
        yield from batch.send_all()
        return batch.outcomes()

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

_UNCONDITIONAL = {"op", "key", "value", "update", "default", "ttl_s", "sequence", "order", "partitions"}
"""The columns that do not make a put or a delete unsafe to repeat."""


class _ArrowBatch(Batch):
    def __init__(
        self,
        limits: CallLimits,
        table: str,
        operations: pa.Table,
        params: Mapping[str, Any],
        repeatable: pa.Array,
        window: RequestWindow | None,
    ) -> None:
        super().__init__(limits, len(operations))
        self._table, self._operations, self._params = table, operations, params
        self._repeatable, self._window = repeatable, window
        ordered = "order" in operations.column_names
        self._schema = OUTCOMES.append(pa.field("superseded", pa.bool_())) if ordered else OUTCOMES
        self._attempts: list[tuple[Sequence[int], pa.Table]] = []

    def _key(self, position: int) -> str:
        return repr(self._operations["key"][position].as_py())

    def _is_repeatable(self, position: int) -> bool:
        return bool(self._repeatable[position].as_py())

    def _send(self, positions: Sequence[int]) -> Call[Failures]:
        operations = self._operations
        if len(positions) < len(operations):
            operations = operations.take(pa.array(positions, pa.int64()))
        headers, started_s = {"Content-Type": ARROW, "Accept": ARROW}, time.monotonic()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, operations.schema) as writer:
            writer.write_table(operations)
        path, content = table_path(self._table, "batch"), bytes(sink.getvalue())
        response = yield from self._limits.send(Request("POST", path, self._table, self._params, headers, content))
        rows = read_stream(response.content).select(self._schema.names).cast(self._schema)
        return self._keep(positions, rows, time.monotonic() - started_s)

    def _fail(self, positions: Sequence[int], failure: TablesideError) -> Failures:
        columns = []
        for field in self._schema:  # The columns for successes are null or false.
            value = getattr(failure, field.name, False if pa.types.is_boolean(field.type) else None)
            columns.append(pa.repeat(pa.scalar(value, field.type), len(positions)))
        return self._keep(positions, pa.Table.from_arrays(columns, schema=self._schema), 0.0, failure.retry_after_s)

    def _keep(
        self, positions: Sequence[int], rows: pa.Table, duration_s: float, retry_after_s: float | None = None
    ) -> Failures:
        """Keep outcomes, and return the failures that a retry may change, or that block later operations."""
        self._attempts.append((positions, rows))
        is_unknown = pc.fill_null(pc.equal(rows["applied"], "unknown"), False)
        at = pc.indices_nonzero(pc.or_(pc.fill_null(rows["retriable"], False), is_unknown))
        found = rows.select(["code", "detail", "retriable", "applied"]).take(at).to_pylist() if len(at) else []
        if self._window is not None:
            self._window.observe(duration_s, next((each["code"] for each in found if each["retriable"]), None))
        failures = ({**failure, "retry_after_s": retry_after_s} for failure in found)
        return {positions[each]: failure for each, failure in zip(at.to_pylist(), failures, strict=True)}

    def outcomes(self) -> pa.Table:
        rows = pa.concat_tables([attempted for _, attempted in self._attempts])
        if len(self._attempts) == 1:
            return rows.append_column("retries", pa.repeat(pa.scalar(0, pa.uint16()), len(rows)))
        last, retries = [0] * self._count, [-1] * self._count
        for at, position in enumerate(each for positions, _ in self._attempts for each in positions):
            last[position] = at
            retries[position] += 1
        return rows.take(last).append_column("retries", pa.array(retries, pa.uint16()))


def read_stream(body: bytes) -> pa.Table:
    """Read an Arrow IPC stream without copying its buffers."""
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return reader.read_all()


def repeatable_rows(operations: pa.Table, op: str | None, tokens: bool, at_least_once: bool) -> pa.Array:
    """Return whether each operation is safe to repeat, even if it has already been applied."""
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
        raise error(table, first["code"], first["status"], detail)


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """The maximum size of one request.

    Attributes:
        rows_max: The maximum number of rows.
        bytes_max: The maximum size in bytes, as Arrow buffers. A single row may exceed it.
    """

    rows_max: int = 5_000
    bytes_max: int = 4 * 1024 * 1024


def chunks(batches: Iterable[pa.RecordBatch], size: ChunkSize) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `batches` in their order, in chunks as large as `size` allows. Slices are not copied."""
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, size.rows_max - rows)
            pending.append(piece)
            start += piece.num_rows
            rows += piece.num_rows
            if rows == size.rows_max or sum(part.nbytes for part in pending) >= size.bytes_max:
                yield from _split_by_bytes(_merge(pending), size.bytes_max)
                pending, rows = [], 0
    if pending:
        yield from _split_by_bytes(_merge(pending), size.bytes_max)


def _merge(pending: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(pending) == 1:
        return pending[0]
    return pa.Table.from_batches(pending).combine_chunks().to_batches()[0]


def _split_by_bytes(chunk: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    if chunk.nbytes <= bytes_max or chunk.num_rows < 2:
        yield chunk
        return
    half = chunk.num_rows // 2
    yield from _split_by_bytes(chunk.slice(0, half), bytes_max)
    yield from _split_by_bytes(chunk.slice(half), bytes_max)
