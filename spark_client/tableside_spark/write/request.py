"""The checked arguments of `Table.put`, `update` and `delete`, and the write that they start."""

from dataclasses import dataclass
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
from tableside_spark.write.job import WriteJob
from tableside_spark.write.micro_batch import UnsoundTokenError
from tableside_spark.write.stream import StreamWrite
from tableside_spark.write.summary import WriteSummary, WriteTotals


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A write as the caller requested it, before its rows are turned into operations."""

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
        """Refuse what no write takes."""
        _require_valid(self.frame, self.token, self.on_error)
        if own := [key for key in self.keys if key.startswith(internal(""))]:
            raise ValueError(
                f"a key column's name does not begin with {internal('')}, as our own do: rename {own[0]!r}"
            )
        tokens.require_consistent(self.token, at_least_once=self.at_least_once)
        if self.carries_tokens and not self.table_schema.tokens:
            raise UnsoundTokenError(
                f"table {self.table} keeps no tokens: a repeated task would write twice; say at_least_once=True"
            )

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns, beside the key's, that tell operations apart."""
        return () if self.partitions is None else (PARTITION,)

    def rows(self) -> DataFrame:
        """The frame, with a row for each partition where those are chosen."""
        if self.partitions is None:
            return self.frame
        return TableRouting(self.table, self.table_schema, self.keys, self.partitions).row_per_partition(self.frame)

    def result(
        self, prepared: PreparedRows, documents: tuple[str, ...], ttl_s: float | None = None
    ) -> WriteSummary | StreamWrite:
        """Write a batch frame now; prepare the write of a streaming one."""
        self._refuse_unclear_failures(documents)
        write = self._job(documents, ttl_s)
        if self.frame.isStreaming:
            return StreamWrite(prepared.rows, prepared.grouping, write)
        turn = self._acquire_token()
        with turn.hold():
            return job.run(write, prepared.grouping(prepared.rows), turn.token)

    @property
    def carries_tokens(self) -> bool:
        """Whether the operations are to have a token, and so to be one for each key."""
        if self.op == "put":
            return tokens.puts_carry_tokens(self.frame, self.token, at_least_once=self.at_least_once)
        return not self.at_least_once

    def _refuse_unclear_failures(self, documents: tuple[str, ...]) -> None:
        """Refuse a key column named as one of those that failures would have beside it."""
        if self.on_error != "fail":
            routed = ("partition",) if self.partition_columns else ()
            require_unique_names([*self.keys, *routed, *documents, *OUTCOME_COLUMNS], self.frame)

    def _acquire_token(self) -> tokens.TokenLease:
        if self.at_least_once:
            return tokens.TokenLease()
        return tokens.acquire_token(self.frame, self.table, self.token, generate=self.op != "put")

    def _job(self, documents: tuple[str, ...], ttl_s: float | None) -> WriteJob:
        keys = KeyColumns(*wire_keys(self.table_schema, self.keys))
        spec = WriteSpec(self.connection, self.table, self.op, keys, documents, ttl_s, self.at_least_once, self.chunk)
        return WriteJob(spec, self.keys, self.on_error, self.in_flight_max, self.totals)


def _require_valid(frame: DataFrame, token: tokens.TokenArgument, on_error: OnError) -> None:
    """Refuse columns with one name, an unknown way with failures, and what a stream does not take."""
    if not (on_error in ("fail", "collect") or callable(on_error) or isinstance(on_error, DeadLetterTable)):
        raise ValueError(f"on_error is fail, collect, a function or a Table, not {on_error!r}")
    if frame.isStreaming and on_error == "collect":
        raise ValueError("a stream has nobody to collect failures for: on_error is fail, a function or a Table")
    if frame.isStreaming and token is not None:
        raise ValueError("a streaming write has the token of its query and micro-batch: token= is for batch frames")
    require_unique_names(frame.columns, frame)
