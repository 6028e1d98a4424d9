"""`Table`, the main class of the package. It imports Spark only when a method is called."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tableside_client.arrow_table import ChunkSize
from tableside_client.retries import DEFAULT_RETRIES, Retries
from tableside_spark.executor.task_client import Connection, Target, fetch_table_schema
from tableside_spark.write.summary import WriteStats, WriteSummary, WriteTotals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from tableside_client.json_batch import TokenArgument
    from tableside_client.json_reader import OnMismatch
    from tableside_spark.partitioning import PartitionFunction, StreamPartitioner
    from tableside_spark.write.job import OnError
    from tableside_spark.write.request import WriteRequest
    from tableside_spark.write.run_memory import Resume

WriteResult: TypeAlias = Any
"""A `WriteSummary` for a batch DataFrame, a `StreamWrite` for a streaming one."""


@dataclass(frozen=True)
class Table:
    """A table of a service, for DataFrames of classic PySpark and of Spark Connect.

    Executors read the token and TLS files themselves. A job contains only their paths. A `token` given as a text is
    part of the job.

    Attributes:
        name: The name of the table.
        url: The address of the service, `http://` or `https://`. The driver and every executor must be able to reach
            it. Default: the variable `TABLESIDE_URL` of the driver.
        token: The bearer token. Default: the content of `token_file`, or of the variable `TABLESIDE_TOKEN`.
        token_file: A file with the bearer token, on the driver and every executor.
        ca_file: PEM file of the authorities that may sign the service's certificate. Default: `TABLESIDE_CA_FILE`.
        certificate_file: PEM file of the client's certificate, if the service requires one.
            Default: `TABLESIDE_CERTIFICATE_FILE`.
        key_file: PEM file of the certificate's key, if it is not in `certificate_file`. Default: `TABLESIDE_KEY_FILE`.
        in_flight_max: The maximum number of requests in flight over the whole job, divided among its concurrent tasks,
            at least one for each. Tasks use fewer if the service has lower limits or is busy.
        chunk: The maximum size of one request, which also limits the memory of a task. Requests are smaller if the
            service's limits require it.
        timeout_s: The timeout of one attempt, in seconds.
        retries: The limits on the retries of one request.
        runs_memory_s: How long the table remembers a run (a batch write with a text as its token) after its last
            change, in seconds. Use the same time for all jobs that write a table.

    Raises:
        ValueError: `url` is not a valid address, there are TLS files for an `http://` address, or a number is too low.

    Example:
        ```python
        users = Table("users", "http://tableside:8080")
        users.put(frame, "user_id")
        users.enrich(events, on="user_id", schema="name string, country string")
        ```
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
    runs_memory_s: float = 400 * 86_400.0
    _totals: WriteTotals = field(default_factory=WriteTotals, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", self._connection().url)
        if self.in_flight_max < 1:
            raise ValueError(f"in_flight_max is at least 1, not {self.in_flight_max}")
        if not 0 < self.runs_memory_s < float("inf"):
            raise ValueError(f"runs_memory_s is a number of seconds above 0, not {self.runs_memory_s}")

    def enrich(
        self,
        frame: "DataFrame",
        on: str | Sequence[str],
        schema: "str | StructType | None" = None,
        how: str = "left",
        *,
        on_mismatch: "OnMismatch" = "fail",
        fields: Sequence[str] | None = None,
        partitions: "StreamPartitioner | PartitionFunction | Column | None" = None,
    ) -> "DataFrame":
        """Look up the key of each row of `frame`, and add the members of the record as columns.

        The result has rows of `frame` only, also with `how="left"`: it is Spark's `frame.join(table, on, how)`.

        The lookups run when the result is used, and again each time it is used. A global sort or range partitioning of
        the result uses it twice. Cache a result that is used more than once.

        Args:
            frame: A batch or streaming DataFrame.
            on: The key columns.
            schema: The members to add and their types, as DDL or a `StructType`. Without a schema, the value is added
                as JSON text in the column `value`.
            how: `left` (or `left_outer`) keeps every row of `frame`. `inner` and `left_semi` (or `semi`) keep the rows
                that have a record, `left_anti` (or `anti`) the rows that have none. The last two kinds add no columns.
            on_mismatch: If a value does not fit the schema, `"fail"` fails the query with the column, the key and the
                types, and `"null"` returns null.
            fields: The members that the service sends. Useful for large values. Default: all.
            partitions: For a partitioned table, the partition where each row is looked up, as in `put`. A row with
                no partition or several fails the query. The error names the row's key.

        Returns:
            The DataFrame with the added columns. A null key matches no record and is not looked up.

        Raises:
            ValueError: A column is missing, has an invalid type, or would exist twice, or `how` is another kind of
                join, which would need all records of the table.
            TableNotFound: No table has this name.
        """
        from tableside_spark.plan.join import join

        return join(
            self._target(), frame, on, schema, how=how, on_mismatch=on_mismatch, fields=fields, partitions=partitions
        )

    join = enrich
    """Another name of `enrich`. `table.join(frame, …)` also returns rows of `frame`, not of the table."""

    def put(
        self,
        frame: "DataFrame",
        key: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        value: str | None = None,
        delete_when: "Column | str | None" = None,
        order_by: Any = None,
        sequence_by: "Column | str | None" = None,
        partitions: "StreamPartitioner | PartitionFunction | Column | None" = None,
        ttl_s: "float | Column | str | None" = None,
        expires_at: "Column | str | None" = None,
        token: "TokenArgument" = None,
        resume: "Resume" = "exact",
        at_least_once: bool = False,
        nulls: Literal["write", "omit"] = "write",
        decimals: Literal["number", "string"] = "number",
        on_error: "OnError" = "fail",
    ) -> WriteResult:
        """Store one record per key.

        A batch DataFrame is written immediately. For a streaming DataFrame, call `start` on the result. The same
        applies to `update` and `delete`. Repeating a put of a batch DataFrame is harmless. It carries no token unless
        one is given.

        A row with a null key, a NaN or an infinity is not sent and counts as failed. Dates and times are written as
        ISO 8601 in UTC.

        Args:
            frame: A batch or streaming DataFrame.
            key: The key columns.
            columns: The columns that become the members of the value. Default: all columns except the key, and except
                a column named by `ttl_s` or `expires_at`.
            value: A column with the whole value (a struct, a map or JSON text), in place of `columns`.
            delete_when: A condition, as a column or its name. A row that meets it deletes the record, so that
                one write applies a change stream. Requires `order_by` or `sequence_by`.
            order_by: Columns in ascending order, nulls first. The last row of each key is stored. Default: any row of
                the key.
            sequence_by: Order the writes of a record, also those of other calls: a column with an integer, a timestamp
                or a date, such as the time of the event. The write changes only the members that no write with a higher
                value has written. Of equal values of a key in a call, a delete is the last, then `order_by` decides.
                Timestamps and dates count as microseconds since 1970 in UTC. A row without a value fails. No tokens
                are sent, because a repetition changes nothing.
            partitions: For a partitioned table, the partitions of each row. Each of them gets the row once. A column of
                arrays of indexes: `[]` is none, null or `[-1]` is all, `[null]` is the default. Or a
                `StreamPartitioner`, or a function with the signature of its method `partitions`. The function receives
                the table's name, the key, the other columns and the number of partitions. Default: the partition of
                the key's hash.
            ttl_s: Time to live, in seconds: a number, or a column with a number for each row. -1 is no expiry. Null
                is the default of the table. A row with another number that is not above 0 fails.
            expires_at: The time of the expiry, in place of `ttl_s`: a column of timestamps or dates. A date and a
                `timestamp_ntz` are in UTC. The executor sends the seconds that are left by its clock. If none are left,
                the record expires 1 ms after the write.
            token: A token, as in `update`.
            resume: As in `update`.
            at_least_once: Send no tokens. A repeated task or micro-batch may then apply a write again.
            nulls: `"write"` stores null members as null, `"omit"` omits them.
            decimals: `"number"` refuses decimals of more than 15 digits, `"string"` writes all decimals as strings.
            on_error: `"fail"` raises `TableWriteError`. `"collect"` returns the failed rows as `summary.failures`
                (batch only). A function receives a DataFrame of the permanently failed rows and the number of the
                micro-batch (None in a batch). A `Table` stores one dead letter for each of them. With a function or a
                `Table`, failures that are temporary, or that no row causes, still raise `TableWriteError`.

        Returns:
            A `WriteSummary` for a batch DataFrame. It counts a row once for each of the row's partitions. A
            `StreamWrite` for a streaming DataFrame.

        Raises:
            TableWriteError: Rows failed.
            ValueError: An argument is not valid for this DataFrame.
        """
        from tableside_spark.plan import rows as operations

        request = self._request("put", frame, key, partitions, token, at_least_once, on_error, resume, sequence_by)
        options = request.options(nulls, decimals, order_by, delete_when, ttl_s, expires_at)
        sent = operations.row_value(frame, options.own_columns, columns, value)
        rows = operations.puts(request.rows(), sent, options, one_per_key=request.carries_tokens)
        members = [name for name in frame.columns if name not in options.own_columns] if columns is None else columns
        asked: dict[str, Any] = {"columns": members if value is None else value, "nulls": nulls, "decimals": decimals}
        asked |= {"delete_when": delete_when, "order_by": order_by}
        return request.result(rows, ("value",), ttl_s=options.ttl_s, expires_at=expires_at, **asked)

    def replace(
        self,
        frame: "DataFrame",
        key: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        value: str | None = None,
        order_by: Any = None,
        sequence_by: "Column | str | None" = None,
        ttl_s: "float | Column | str | None" = None,
        expires_at: "Column | str | None" = None,
        nulls: Literal["write", "omit"] = "write",
        decimals: Literal["number", "string"] = "number",
        on_error: "OnError" = "fail",
        allow_empty: bool = False,
        note: str | None = None,
    ) -> WriteSummary:
        """Make the table contain exactly the records of a batch DataFrame. The table needs `generations: true`.

        Readers see the old records until all new ones are stored, and then the new ones. A job that fails or is killed
        leaves the old records. Running it again works, and the service removes what the first one has written. What
        others write to the table during the job is in the old content.

        The other arguments are those of `put`. The new records start without the orders of the old ones. With
        `on_error="fail"`, a row that fails leaves the old records. With another `on_error`, the table is replaced
        without the rows that failed permanently. `allow_empty` allows that the table is empty afterwards. `note` is a
        text of at most 1,000 characters that the list of the table's generations shows.

        Raises:
            TableWriteError: Rows failed.
            ValueError: An argument is not valid for this DataFrame, or no row was stored, and `allow_empty` is not set.
            PreconditionFailed: Another generation was activated during the job.
        """
        from tableside_spark.write.job import replace_records

        if frame.isStreaming:
            raise ValueError("a stream has no end after which it could replace a table: call replace in foreachBatch")

        def put(name: str) -> WriteSummary:
            generation = replace(self, name=name)
            object.__setattr__(generation, "_totals", self._totals)  # its writes count in the same totals
            written: WriteSummary = generation.put(
                frame,
                key,
                columns=columns,
                value=value,
                order_by=order_by,
                sequence_by=sequence_by,
                ttl_s=ttl_s,
                expires_at=expires_at,
                at_least_once=True,  # a put of a complete content is harmless to repeat
                nulls=nulls,
                decimals=decimals,
                on_error=on_error,
            )
            return written

        keys = [key] if isinstance(key, str) else key
        return replace_records(self._target().connection, self.name, keys, put, allow_empty=allow_empty, note=note)

    def update(
        self,
        frame: "DataFrame",
        key: str | Sequence[str],
        update: "Mapping[str, Any] | Sequence[Mapping[str, Any]] | Column | None" = None,
        *,
        set: Sequence[str] | None = None,  # noqa: A002 - the name of the operator
        default: "Mapping[str, Any] | Column | None" = None,
        delete_when: "Column | str | None" = None,
        order_by: Any = None,
        sequence_by: "Column | str | None" = None,
        fold: bool | None = None,
        partitions: "StreamPartitioner | PartitionFunction | Column | None" = None,
        ttl_s: "float | Column | str | None" = None,
        expires_at: "Column | str | None" = None,
        token: "TokenArgument" = None,
        resume: "Resume" = "exact",
        at_least_once: bool = False,
        nulls: Literal["write", "omit"] = "write",
        decimals: Literal["number", "string"] = "number",
        on_error: "OnError" = "fail",
    ) -> WriteResult:
        """Apply one update per key, made from all rows of that key.

        Every update carries a token, so that a repeated task changes nothing a second time:

        - In a batch, the writer's name is generated for the call. To make the whole call repeatable, give a different
          `token` for each run of the job.
        - In a streaming query and in `foreachBatch`, the writer is the query, and the sequence is the number of the
          micro-batch. If Spark does not provide them, give `token=("a stable name", batch_id)`.

        A write that cannot have such a token is refused, unless `at_least_once` is set.

        Args:
            frame: A batch or streaming DataFrame.
            key: The key columns.
            update: A mapping of operators (`{"$inc": {"miles": col("distance")}}`) or of members (a merge patch). The
                values are columns or literals. Or a list of such mappings, or a column of JSON text or structs.
            set: The columns to write as members, with `$set`, in place of `update`.
            default: The value to start from if there is no record: a mapping, or a column of JSON text or structs. Of
                several rows with one key, the first by `order_by` is used, or any.
            delete_when: A condition, as a column or its name. A row that meets it deletes the record. The rows
                after it start from the default. Requires `order_by` or `sequence_by`.
            order_by: Columns in ascending order, nulls first. The order of the rows of a key.
                Default: any order.
            sequence_by: As in `put`. The update is `set`, `$set` and `$unset` of members, or a merge patch without
                objects. It needs no record, and each member gets the value of its newest row. Cannot be combined with
                `default` and `fold`.
            fold: Combine the rows of a key into one update if the result is exactly the same (the default). Otherwise,
                and with `fold=False`, the updates are sent as a list.
            partitions: As in `put`.
            ttl_s: As in `put`, but null leaves the expiry of a record as it is. Of the rows of a key, the last one that
                is not null is used.
            expires_at: As in `put`, with nulls as in `ttl_s`.
            token: A text that names this run of the job, such as `"flights/2026-11-20"`. A run that has finished is
                not sent again. One that failed can be sent again with the same arguments: only rows that were not
                applied take effect. Or a writer's name and a sequence number that grows with each write. Rows are
                ignored if their record has this number or a later one.
            resume: The reaction to a run that has not finished, if 8 other runs may have written the table since it
                started, so that its records may have forgotten which rows were applied. `"exact"` refuses the run.
                `"force"` sends it, and rows may then be applied again.
            at_least_once: Send no tokens. A repeated task or micro-batch may then apply an update again.
            nulls: As in `put`. `"omit"` also skips null operands, so that `set` leaves their members as they are. With
                `"write"`, a row with a null operand of `$inc`, `$min`, `$max` or `$each` fails.
            decimals: As in `put`. The operands of `$inc`, `$min` and `$max` are numbers. For money, use integers of the
                smallest unit, such as cents.
            on_error: As in `put`.

        Raises:
            TableWriteError: Rows failed.
            ValueError: An argument is not valid for this DataFrame, or the write cannot have a token.
            RunRefusedError: The run was started with other arguments, or `resume` refuses it.
        """
        from tableside_spark.plan import rows as operations

        request = self._request("update", frame, key, partitions, token, at_least_once, on_error, resume, sequence_by)
        options = request.options(nulls, decimals, order_by, delete_when, ttl_s, expires_at)
        update = operations.set_update(update, set)
        rows = operations.updates(request.rows(), update, default, options, folding=fold)
        asked = {"update": update, "default": default, "fold": fold, "nulls": nulls, "decimals": decimals}
        documents = ("update",) if default is None else ("update", "default")
        asked |= {"delete_when": delete_when, "order_by": order_by}
        return request.result(rows, documents, ttl_s=options.ttl_s, expires_at=expires_at, **asked)

    def delete(
        self,
        frame: "DataFrame",
        key: str | Sequence[str],
        *,
        sequence_by: "Column | str | None" = None,
        partitions: "StreamPartitioner | PartitionFunction | Column | None" = None,
        token: "TokenArgument" = None,
        resume: "Resume" = "exact",
        at_least_once: bool = False,
        on_error: "OnError" = "fail",
    ) -> WriteResult:
        """Remove the records of all keys in a DataFrame. Absent records count as applied.

        The arguments and results are as in `put`, the tokens as in `update`.
        """
        from tableside_spark.plan import rows as operations

        request = self._request("delete", frame, key, partitions, token, at_least_once, on_error, resume, sequence_by)
        return request.result(operations.deletes(request.rows(), request.options()), ())

    @property
    def stats(self) -> WriteStats:
        """The totals of all writes of this object in this process, except streaming queries of Spark Connect."""
        return self._totals.stats

    def _connection(self) -> Connection:
        return Connection(**{argument.name: getattr(self, argument.name) for argument in fields(Connection)})

    def _target(self) -> Target:
        return Target(self._connection(), self.name, self.in_flight_max, self.chunk)

    def _request(self, op: str, frame: "DataFrame", key: str | Sequence[str], *arguments: Any) -> "WriteRequest":
        """Check the frame and its key, and fetch the schema. The last arguments are those of `WriteRequest`."""
        from tableside_spark.plan.frames import check_key_columns, with_strings
        from tableside_spark.write.request import WriteRequest

        target, frame = self._target(), with_strings(frame)
        table_schema, keys = fetch_table_schema(target.connection, self.name), check_key_columns(frame, key)
        return WriteRequest(target, self._totals, table_schema, self.runs_memory_s, op, frame, keys, *arguments)
