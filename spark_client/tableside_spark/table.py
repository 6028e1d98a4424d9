"""`Table`: what a Spark program holds. Reads the caller's arguments; imports Spark only when it is used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tableside_client.address import service_url
from tableside_client.connection import Connection
from tableside_client.credential import Credential
from tableside_client.retries import DEFAULT_RETRIES, Retries
from tableside_client.tls import Tls
from tableside_spark.executor.chunks import ChunkSize
from tableside_spark.plan.table_schema import table_facts
from tableside_spark.write.summary import Totals, WriteStats

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from tableside_spark.partitioning.partitioner import Partitioning, StreamPartitioner
    from tableside_spark.write.failures import OnError
    from tableside_spark.write.request import WriteRequest
    from tableside_spark.write.tokens import Given

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
        self._tls().require_https(self.url)
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
        from tableside_spark.plan.join import Joining, joined

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
        token: "Given" = None,
        at_least_once: bool = False,
        nulls: Literal["write", "omit"] = "write",
        decimals: Literal["number", "string"] = "number",
        on_error: "OnError" = "fail",
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
        from tableside_spark.plan import rows as operations

        request = self._request("put", frame, key, partitions, token, at_least_once=at_least_once, on_error=on_error)
        writing = operations.Writing(
            request.keys, nulls, decimals, order_by, operations.condition(delete_when, order_by), request.apart
        )
        sent = operations.row_value(frame, request.keys, columns, value)
        rows = operations.puts(request.rows(), sent, writing, one_per_key=request.carries_tokens)
        return request.result(rows, ("value",), ttl_s)

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
        token: "Given" = None,
        at_least_once: bool = False,
        nulls: Literal["write", "omit"] = "write",
        decimals: Literal["number", "string"] = "number",
        on_error: "OnError" = "fail",
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
        from tableside_spark.plan import rows as operations

        request = self._request("update", frame, key, partitions, token, at_least_once=at_least_once, on_error=on_error)
        writing = operations.Writing(
            request.keys, nulls, decimals, order_by, operations.condition(delete_when, order_by), request.apart
        )
        rows = operations.updates(request.rows(), update, default, writing, folding=fold)
        return request.result(rows, ("update",) if default is None else ("update", "default"), ttl_s)

    def delete(
        self,
        frame: "DataFrame",
        key: str | Sequence[str],
        *,
        partitions: "StreamPartitioner | Partitioning | Column | None" = None,
        token: "Given" = None,
        at_least_once: bool = False,
        on_error: "OnError" = "fail",
    ) -> WriteResult:
        """Remove the records of the frame's keys; absent ones count as applied. Tokens as in `update`."""
        from tableside_spark.plan import rows as operations

        request = self._request("delete", frame, key, partitions, token, at_least_once=at_least_once, on_error=on_error)
        return request.result(
            operations.deletes(request.rows(), operations.Writing(request.keys, apart=request.apart)), ()
        )

    @property
    def stats(self) -> WriteStats:
        """The sums over all writes of this `Table` in this process: batches, and classic PySpark's streams."""
        return self._totals.stats

    def _connection(self) -> Connection:
        credential = Credential(self.token, self.token_file)
        return Connection(self.url, credential, self.timeout_s, self.retries, self._tls())

    def _tls(self) -> Tls:
        return Tls(self.ca_file, self.certificate_file, self.key_file)

    def _request(
        self,
        op: str,
        frame: "DataFrame",
        key: str | Sequence[str],
        partitions: Any,
        token: "Given",
        *,
        at_least_once: bool,
        on_error: "OnError",
    ) -> "WriteRequest":
        from tableside_spark.plan.frames import key_names
        from tableside_spark.write.request import WriteRequest

        connection = self._connection()
        facts = table_facts(connection, self.name)
        keys = key_names(frame, key)
        return WriteRequest(
            connection=connection,
            table=self.name,
            facts=facts,
            op=op,
            frame=frame,
            keys=keys,
            partitions=partitions,
            token=token,
            at_least_once=at_least_once,
            on_error=on_error,
            in_flight_max=self.in_flight_max,
            chunk=self.chunk,
            totals=self._totals,
        )
