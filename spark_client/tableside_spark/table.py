"""`Table`: what a Spark program holds. Reads the caller's arguments; imports Spark only when it is used."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from tableside_spark.batching import ChunkSize
from tableside_spark.connection import Connection
from tableside_spark.credential import Credential
from tableside_spark.facts import table_facts
from tableside_spark.retries import DEFAULT_RETRIES, Retries
from tableside_spark.summary import Totals, WriteStats
from tableside_spark.tls import Tls

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from tableside_spark.asking import Asking
    from tableside_spark.partitioner import Partitioning, StreamPartitioner

URL_VARIABLE = "TABLESIDE_URL"

Given = str | tuple[str, int] | None
"""A token: a writer that writes once, or a writer and a number that rises from write to write."""

OnError: TypeAlias = "Literal['fail', 'collect'] | Callable[[DataFrame, int | None], None] | Table"
"""What becomes of failures: the write fails, they are collected, handled, or kept in a table of dead letters."""

WriteResult: TypeAlias = Any
"""A `WriteSummary` of a batch frame, a `StreamWrite` of a streaming one."""


@dataclass(frozen=True)
class Table:
    """One table of a service, for frames of classic PySpark and of Spark Connect.

    `url` has to be reachable from the driver and from every executor; without it, `TABLESIDE_URL` of the driver
    says where. The bearer token is `token`, or what is in `token_file`, or in `TABLESIDE_TOKEN`; the latter two
    are read on each executor, so that only their names travel with the job. So are `ca_file`, the authorities that an
    https:// service's certificate may come from, and `certificate_file` with its `key_file`, for a service that asks
    for one; else `TABLESIDE_CA_FILE`, `TABLESIDE_CERTIFICATE_FILE` and `TABLESIDE_KEY_FILE` name them there.

    `in_flight_max` bounds the requests in flight over the whole job: each task that may run at once has its
    share, at least one. `chunk` bounds the rows and bytes of one request, and so what a task holds. `timeout_s`
    bounds one attempt, `retries` the attempts and the time of one request.
    """

    name: str
    url: str = ""
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    in_flight_max: int = 32
    chunk: ChunkSize = field(default_factory=ChunkSize)
    timeout_s: float = 30.0
    retries: Retries = DEFAULT_RETRIES
    _totals: Totals = field(default_factory=Totals, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", service_url(self.url))
        self._tls().refuse_plain(self.url)
        if self.in_flight_max < 1:
            raise ValueError(f"in_flight_max is at least 1, not {self.in_flight_max}")

    def join(
        self,
        frame: "DataFrame",
        on: str | Sequence[str],
        schema: "str | StructType | None" = None,
        how: str = "left",
        *,
        on_mismatch: Literal["fail", "null"] = "fail",
        fields: Sequence[str] | None = None,
        partitions: "StreamPartitioner | Partitioning | Column | None" = None,
    ) -> "DataFrame":
        """The frame, batch or streaming, with the members of each row's record as further columns.

        `on` names the key's columns. `how` is `left`, `inner`, `left_semi` or `left_anti`; the last two add no
        columns. `schema` (DDL or a StructType) says which members are wanted and of what type; a value that
        does not fit fails the query, or is null with `on_mismatch="null"`. Without a schema, the JSON text is
        the column `value`. A null key matches nothing and is not asked. `fields` has the service send those
        members only, worth it for large values. Of a partitioned table, `partitions` says in which one a row is looked
        up (see `put`); it has to be exactly one, or the query fails and names the row's key.

        The lookups run when the result is used, and again at each use; a global sort or range partitioning of
        the result uses it twice. Cache what is used more than once.
        """
        from tableside_spark.joins import Joining, joined

        joining = Joining(on, schema, how, on_mismatch, fields, partitions)
        return joined(self._connection(), self.name, frame, joining, self.in_flight_max, self.chunk)

    def put(
        self,
        frame: "DataFrame",
        key: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        value: str | None = None,
        delete_when: "Column | str | None" = None,
        order_by: Any = None,
        partitions: "StreamPartitioner | Partitioning | Column | None" = None,
        ttl_s: float | None = None,
        token: Given = None,
        at_least_once: bool = False,
        nulls: Literal["write", "omit"] = "write",
        decimals: Literal["number", "string"] = "number",
        on_error: OnError = "fail",
    ) -> WriteResult:
        """Store one record per key: its value is all other columns, or `columns`, or `value`.

        A batch frame is written at once, and the `WriteSummary` returned; a streaming frame gives a `StreamWrite`, to
        be started. So do `update` and `delete`.

        `value` names a column that is a struct, a map or JSON text. Of several rows with one key the last by
        `order_by` (columns, ascending, nulls first) is stored; without it, any. Rows of which the condition
        `delete_when` is true delete the record instead, so that a stream of changes is one write; it needs
        `order_by`. Nulls are written as null, unless `nulls="omit"`; dates and times as ISO 8601 in UTC; decimals of
        more than 15 digits are refused unless `decimals="string"`. Rows with a null key, a NaN or an infinity are not
        sent and have failed.

        Of a partitioned table, `partitions` says which partitions a row is for, each of which gets it once: a column of
        arrays of indexes (`[]` is none, null or `[-1]` all, `[null]` the default), or a `StreamPartitioner`, or a
        function like its `partitions`, that is given the table's name, the key, and the row's other columns. Without
        it each row is for the partition that its key's hash says. The summary counts a row once for each partition.

        A put of a batch frame can be repeated without harm, and has no token unless one is given. See `update`.

        Raises `TableWriteError` if rows failed. With `on_error="collect"`, they are `summary.failures` instead (batch
        frames). Where `on_error` is a function of a frame and the micro-batch's number (None in a batch), or a `Table`
        for dead letters, those go there that can never succeed; others still raise.
        """
        from tableside_spark import operations

        ask = self._asking("put", frame, key, partitions, token, at_least_once=at_least_once, on_error=on_error)
        writing = operations.Writing(
            ask.keys, nulls, decimals, order_by, operations.condition(delete_when, order_by), ask.apart
        )
        sent = operations.row_value(frame, ask.keys, columns, value)
        rows = operations.puts(ask.rows(), sent, writing, one_per_key=ask.carries_tokens)
        return ask.result(rows, ("value",), ttl_s)

    def update(
        self,
        frame: "DataFrame",
        key: str | Sequence[str],
        update: "Mapping[str, Any] | Sequence[Mapping[str, Any]] | Column",
        *,
        default: "Mapping[str, Any] | Column | None" = None,
        delete_when: "Column | str | None" = None,
        order_by: Any = None,
        fold: bool = True,
        partitions: "StreamPartitioner | Partitioning | Column | None" = None,
        ttl_s: float | None = None,
        token: Given = None,
        at_least_once: bool = False,
        nulls: Literal["write", "omit"] = "write",
        decimals: Literal["number", "string"] = "number",
        on_error: OnError = "fail",
    ) -> WriteResult:
        """Apply one update per key: `update`'s columns from every row of that key.

        `update` is a mapping of operators (`{"$inc": {"miles": col("distance")}}`) or of members (a merge
        patch), with columns or literals as values, a list of such, or a column of JSON text or a struct.
        `default` is the value to start from where there is no record: a mapping, or a column of JSON text or a
        struct; of several, the first row's by `order_by`, or any. The rows of a key are folded into one update where
        that is exact, else sent as a list, in the order of `order_by`, or any; `fold=False` always sends lists. Rows
        of which the condition `delete_when` is true delete the record; those after them start from the default.

        Each update carries a token, so that a task that runs twice changes nothing a second time. In a batch the
        writer is made for this call; given as `token` ("job/run", another for each call), repeating the whole call
        changes nothing either. In a streaming query, and inside `foreachBatch`, it is the query, and the number is
        the micro-batch's; where Spark does not say which they are, they have to be given:
        `token=("a name that stays", batch_id)`. A write that can have no such token is refused, unless
        `at_least_once`, which sends none.
        """
        from tableside_spark import operations

        ask = self._asking("update", frame, key, partitions, token, at_least_once=at_least_once, on_error=on_error)
        writing = operations.Writing(
            ask.keys, nulls, decimals, order_by, operations.condition(delete_when, order_by), ask.apart
        )
        rows = operations.updates(ask.rows(), update, default, writing, folding=fold)
        return ask.result(rows, ("update",) if default is None else ("update", "default"), ttl_s)

    def delete(
        self,
        frame: "DataFrame",
        key: str | Sequence[str],
        *,
        partitions: "StreamPartitioner | Partitioning | Column | None" = None,
        token: Given = None,
        at_least_once: bool = False,
        on_error: OnError = "fail",
    ) -> WriteResult:
        """Remove the records of the frame's keys; absent ones count as applied. Tokens as in `update`."""
        from tableside_spark import operations

        ask = self._asking("delete", frame, key, partitions, token, at_least_once=at_least_once, on_error=on_error)
        return ask.result(operations.deletes(ask.rows(), operations.Writing(ask.keys, apart=ask.apart)), ())

    @property
    def stats(self) -> WriteStats:
        """The sums over all writes of this `Table` in this process: batches, and classic PySpark's streams."""
        return self._totals.stats

    def _connection(self) -> Connection:
        credential = Credential(self.token, self.token_file)
        return Connection(self.url, credential, self.timeout_s, self.retries, self._tls())

    def _tls(self) -> Tls:
        return Tls(self.ca_file, self.certificate_file, self.key_file)

    def _asking(
        self,
        op: str,
        frame: "DataFrame",
        key: str | Sequence[str],
        partitions: Any,
        token: Given,
        *,
        at_least_once: bool,
        on_error: OnError,
    ) -> "Asking":
        from tableside_spark.asking import Asking
        from tableside_spark.frames import key_names

        connection = self._connection()
        facts = table_facts(connection, self.name)
        keys = key_names(frame, key)
        return Asking(
            self, connection, facts, op, frame, keys, partitions, token, at_least_once, on_error, self._totals
        )


def service_url(given: str) -> str:
    """The service's address: as given, or from the environment of the driver. Never with a password in it."""
    url = (given or os.environ.get(URL_VARIABLE, "")).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"url is an http:// or https:// address; without one, {URL_VARIABLE} has to be set")
    if parts.username or parts.password:
        raise ValueError("url has a user or a password in it, which plans and logs would show; use a token")
    return url
