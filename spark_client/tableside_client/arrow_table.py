"""`ArrowTable`: batches and scans of one table in Arrow."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tableside_client import wire
from tableside_client.arrow_batches import ArrowBatches
from tableside_client.calls import Call, CallSettings, Request, Run
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
        repeatable = wire.repeatable(rows, op, writer is not None, at_least_once)
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
        request = Request("GET", path, self._name, params, {"Accept": wire.ARROW})
        response = yield from self._settings.start().send_with_retries(request)
        page = wire.read_stream(response.content)
        return page, wire.next_cursor(page, response.headers)
