"""The checked arguments of `Table.put`, `update` and `delete`, and the write that they start."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from tableside_client.connection import Connection
from tableside_spark.executor.chunks import ChunkSize
from tableside_spark.executor.operation_batch import PARTITION, Keys, internal
from tableside_spark.executor.write_task import WriteSpec
from tableside_spark.plan.frames import refuse_duplicates
from tableside_spark.plan.routing import Routing
from tableside_spark.plan.rows import Prepared
from tableside_spark.plan.table_schema import TableFacts, wire_keys
from tableside_spark.write import job, tokens
from tableside_spark.write.failures import OUTCOME, DeadLetterTable, OnError
from tableside_spark.write.job import WriteJob
from tableside_spark.write.micro_batch import UnsoundTokenError
from tableside_spark.write.stream import StreamWrite
from tableside_spark.write.summary import Totals, WriteSummary


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A write as the caller requested it, before its rows are turned into operations."""

    connection: Connection
    table: str
    facts: TableFacts
    op: str
    frame: DataFrame
    keys: tuple[str, ...]
    partitions: Any
    token: tokens.Given
    at_least_once: bool
    on_error: OnError
    in_flight_max: int
    chunk: ChunkSize
    totals: Totals

    def __post_init__(self) -> None:
        """Refuse what no write takes."""
        _refuse(self.frame, self.token, self.on_error)
        if own := [key for key in self.keys if key.startswith(internal(""))]:
            raise ValueError(
                f"a key column's name does not begin with {internal('')}, as our own do: rename {own[0]!r}"
            )
        tokens.refuse_contradiction(self.token, at_least_once=self.at_least_once)
        if self.carries_tokens and not self.facts.tokens:
            raise UnsoundTokenError(
                f"table {self.table} keeps no tokens: a repeated task would write twice; say at_least_once=True"
            )

    @property
    def apart(self) -> tuple[str, ...]:
        """The columns, beside the key's, that tell operations apart."""
        return () if self.partitions is None else (PARTITION,)

    def rows(self) -> DataFrame:
        """The frame, with a row for each partition where those are chosen."""
        if self.partitions is None:
            return self.frame
        return Routing(self.table, self.facts, self.keys, self.partitions).copies(self.frame)

    def result(
        self, prepared: Prepared, documents: tuple[str, ...], ttl_s: float | None = None
    ) -> WriteSummary | StreamWrite:
        """Write a batch frame now; prepare the write of a streaming one."""
        self._refuse_unclear_failures(documents)
        write = self._job(documents, ttl_s)
        if self.frame.isStreaming:
            return StreamWrite(prepared.rows, prepared.grouping, write)
        turn = self._turn()
        with turn.held():
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
            routed = ("partition",) if self.apart else ()
            refuse_duplicates([*self.keys, *routed, *documents, *OUTCOME], self.frame)

    def _turn(self) -> tokens.Turn:
        if self.at_least_once:
            return tokens.Turn()
        return tokens.turn_of(self.frame, self.table, self.token, made=self.op != "put")

    def _job(self, documents: tuple[str, ...], ttl_s: float | None) -> WriteJob:
        keys = Keys(*wire_keys(self.facts, self.keys))
        spec = WriteSpec(self.connection, self.table, self.op, keys, documents, ttl_s, self.at_least_once, self.chunk)
        return WriteJob(spec, self.keys, self.on_error, self.in_flight_max, self.totals)


def _refuse(frame: DataFrame, token: tokens.Given, on_error: OnError) -> None:
    """Refuse columns with one name, an unknown way with failures, and what a stream does not take."""
    if not (on_error in ("fail", "collect") or callable(on_error) or isinstance(on_error, DeadLetterTable)):
        raise ValueError(f"on_error is fail, collect, a function or a Table, not {on_error!r}")
    if frame.isStreaming and on_error == "collect":
        raise ValueError("a stream has nobody to collect failures for: on_error is fail, a function or a Table")
    if frame.isStreaming and token is not None:
        raise ValueError("a streaming write has the token of its query and micro-batch: token= is for batch frames")
    refuse_duplicates(frame.columns, frame)
