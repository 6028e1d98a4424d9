"""The validated arguments of `Table.put`, `update` and `delete`, and the start of the write."""

from dataclasses import dataclass
from numbers import Real
from typing import Any

from pyspark.sql import DataFrame

from tableside_client.connection import Connection
from tableside_spark.executor.chunks import ChunkSize
from tableside_spark.executor.operation_batch import PARTITION, KeyColumns, internal
from tableside_spark.executor.write_task import WriteSpec
from tableside_spark.plan.frames import require_unique_names
from tableside_spark.plan.routing import TableRouting
from tableside_spark.plan.rows import PreparedRows
from tableside_spark.plan.table_schema import TableSchema, wire_keys
from tableside_spark.write import job, tokens
from tableside_spark.write.failures import OUTCOME_COLUMNS, DeadLetterTable, OnError
from tableside_spark.write.job import WriteJob, WriteRun
from tableside_spark.write.micro_batch import UnsoundTokenError
from tableside_spark.write.stream import StreamWrite
from tableside_spark.write.summary import WriteSummary, WriteTotals


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A write as requested by the caller, before its rows become operations."""

    connection: Connection
    table: str
    table_schema: TableSchema
    op: str
    frame: DataFrame
    keys: tuple[str, ...]
    partitions: Any
    token: tokens.TokenArgument
    at_least_once: bool
    on_error: OnError
    in_flight_max: int
    chunk: ChunkSize
    totals: WriteTotals

    def __post_init__(self) -> None:
        """Raise `ValueError` for arguments that are not valid for any write."""
        _require_valid(self.frame, self.token, self.on_error)
        if reserved := [key for key in self.keys if key.startswith(internal(""))]:
            raise ValueError(
                f"the prefix {internal('')} is reserved for internal columns: rename the key column {reserved[0]!r}"
            )
        tokens.require_consistent(self.token, at_least_once=self.at_least_once)
        if self.carries_tokens and not self.table_schema.tokens:
            raise UnsoundTokenError(
                f"table {self.table} keeps no tokens: a repeated task would write twice; set at_least_once=True"
            )

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The column that, in addition to the key, identifies an operation on a partitioned table."""
        return () if self.partitions is None else (PARTITION,)

    def rows(self) -> DataFrame:
        """The DataFrame, with one row per partition if partitions are given."""
        if self.partitions is None:
            return self.frame
        return TableRouting(self.table, self.table_schema, self.keys, self.partitions).row_per_partition(self.frame)

    def result(
        self, prepared: PreparedRows, documents: tuple[str, ...], ttl_s: float | None = None
    ) -> WriteSummary | StreamWrite:
        """Write a batch DataFrame now, or return the `StreamWrite` of a streaming one."""
        _require_seconds(ttl_s)
        self._require_distinct_failure_columns(documents)
        write_job = self._job(documents, ttl_s, harmless=prepared.harmless)
        if self.frame.isStreaming:
            return StreamWrite(prepared.rows, prepared.grouping, write_job)
        lease = self._acquire_token(harmless=prepared.harmless)
        with lease.hold():
            is_repeatable = self.op == "put" or lease.is_repeatable
            return job.run(write_job, prepared, WriteRun(lease.token, lease.token, is_repeatable=is_repeatable))

    @property
    def carries_tokens(self) -> bool:
        """Whether the operations carry a token, which requires one operation per key."""
        if self.op == "put":
            return tokens.puts_carry_tokens(self.frame, self.token, at_least_once=self.at_least_once)
        return not self.at_least_once

    def _require_distinct_failure_columns(self, documents: tuple[str, ...]) -> None:
        """Raise `ValueError` if a key column has the name of another column of the failed operations."""
        if self.on_error != "fail":
            partition = ("partition",) if self.partition_columns else ()
            own = [*partition, *documents, *OUTCOME_COLUMNS]
            try:
                require_unique_names([*own, *self.keys], self.frame)
            except ValueError as error:
                raise ValueError(
                    f"the failed rows also have the columns {', '.join(own)}: rename the key column with such a name"
                ) from error

    def _acquire_token(self, *, harmless: bool) -> tokens.TokenLease:
        if self.at_least_once:
            return tokens.TokenLease()
        generate, table = self.op != "put", (self.connection, self.table)
        return tokens.acquire_token(self.frame, *table, self.token, generate=generate, harmless=harmless)

    def _job(self, documents: tuple[str, ...], ttl_s: float | None, *, harmless: bool) -> WriteJob:
        keys = KeyColumns(*wire_keys(self.table_schema, self.keys))
        spec = WriteSpec(self.connection, self.table, self.op, keys, documents, ttl_s, self.at_least_once)
        limits = self.table_schema.limits
        return WriteJob(spec, self.keys, harmless, self.on_error, self.in_flight_max, self.chunk, limits, self.totals)


def _require_seconds(ttl_s: Any) -> None:
    """Raise `TypeError` for a time to live that is not a number."""
    if ttl_s is not None and (isinstance(ttl_s, bool) or not isinstance(ttl_s, Real)):
        raise TypeError(f"ttl_s must be a number of seconds, not {ttl_s!r}")


def _require_valid(frame: DataFrame, token: tokens.TokenArgument, on_error: OnError) -> None:
    """Raise `ValueError` for duplicate columns, an unknown `on_error`, and arguments that streams do not support."""
    if not (on_error in ("fail", "collect") or callable(on_error) or isinstance(on_error, DeadLetterTable)):
        raise ValueError(f"on_error is fail, collect, a function or a Table, not {on_error!r}")
    if frame.isStreaming and on_error == "collect":
        raise ValueError("a stream cannot collect failures: on_error is fail, a function or a Table")
    if frame.isStreaming and token is not None:
        raise ValueError("a streaming write has the token of its query and micro-batch: token= is for batch frames")
    require_unique_names(frame.columns, frame)
