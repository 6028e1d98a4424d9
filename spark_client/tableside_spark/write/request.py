"""The validated arguments of `Table.put`, `update` and `delete`, and the start of the write."""

from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

from pyspark.sql import Column, DataFrame

from tableside_client.json_batch import TokenArgument
from tableside_client.json_writer import Decimals
from tableside_client.runs import RUNS, Run
from tableside_client.table_schema import TableSchema, wire_keys
from tableside_spark.executor.operation_batch import PARTITION, KeyColumns, internal
from tableside_spark.executor.task_client import Target, shared_client
from tableside_spark.executor.write_task import WriteSpec
from tableside_spark.plan.expiry import ExpiresAt, TtlS, checked_ttl_s
from tableside_spark.plan.frames import require_unique_names
from tableside_spark.plan.json_columns import Nulls
from tableside_spark.plan.routing import TableRouting
from tableside_spark.plan.rows import OrderBy, PreparedRows, WriteOptions, delete_condition
from tableside_spark.plan.sequences import SequenceBy
from tableside_spark.write import job
from tableside_spark.write.job import OUTCOME_COLUMNS, DeadLetterTable, OnError, WriteJob, WriteRun
from tableside_spark.write.run_memory import Resume, RunMemory, fingerprint
from tableside_spark.write.stream import StreamWrite
from tableside_spark.write.summary import WriteSummary, WriteTotals
from tableside_spark.write.tokens import TokenLease, UnsoundTokenError, acquire_token, current_micro_batch


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A write as requested by the caller, before its rows become operations."""

    target: Target
    totals: WriteTotals
    table_schema: TableSchema
    runs_memory_s: float
    op: str
    frame: DataFrame
    keys: tuple[str, ...]
    partitions: Any
    token: TokenArgument
    at_least_once: bool
    on_error: OnError
    resume: Resume
    sequence_by: SequenceBy

    def __post_init__(self) -> None:
        """Raise `ValueError` for arguments that are not valid for any write."""
        on_error = self.on_error
        if not (on_error in ("fail", "collect") or callable(on_error) or isinstance(on_error, DeadLetterTable)):
            raise ValueError(f"on_error is fail, collect, a function or a Table, not {on_error!r}")
        if self.frame.isStreaming and on_error == "collect":
            raise ValueError("a stream cannot collect failures: on_error is fail, a function or a Table")
        if self.frame.isStreaming and self.token is not None:
            raise ValueError("a streaming write has the token of its query and micro-batch: token= is for batch frames")
        require_unique_names(self.frame.columns, self.frame)
        if reserved := [key for key in self.keys if key.startswith(internal(""))]:
            raise ValueError(
                f"the prefix {internal('')} is reserved for internal columns: rename the key column {reserved[0]!r}"
            )
        if self.sequence_by is not None and self.token is not None:
            raise ValueError("token= cannot be combined with sequence_by: repeating an ordered write changes nothing")
        if self.at_least_once and self.token is not None:
            raise ValueError("token= is for writes applied exactly once, at_least_once=True for writes without tokens")
        if self.resume not in get_args(Resume):
            raise ValueError(f"resume is exact or force, not {self.resume!r}")
        if self.resume != "exact" and not isinstance(self.token, str):
            raise ValueError("resume= is for a run, which is a write with a text as its token")
        if self.carries_tokens and not self.table_schema.tokens:
            raise UnsoundTokenError(
                f"table {self.target.table} keeps no tokens: a repeated task would write twice; set at_least_once=True"
            )

    @property
    def carries_tokens(self) -> bool:
        """Whether the operations carry a token, which requires one operation per key."""
        if self.omits_tokens or self.op != "put":
            return not self.omits_tokens
        return self.token is not None or self.frame.isStreaming or current_micro_batch(self.frame) is not None

    @property
    def omits_tokens(self) -> bool:
        """Whether the write never carries tokens. Repeating an ordered write is harmless."""
        return self.at_least_once or self.sequence_by is not None

    def options(
        self,
        nulls: Nulls = "write",
        decimals: Decimals = "number",
        order_by: OrderBy = None,
        delete_when: Column | str | None = None,
        ttl_s: TtlS = None,
        expires_at: ExpiresAt = None,
    ) -> WriteOptions:
        """Return the options that determine how rows become operations."""
        partition = () if self.partitions is None else (PARTITION,)
        deletes = delete_condition(delete_when, order_by, self.sequence_by)
        return WriteOptions(
            self.keys, nulls, decimals, order_by, self.sequence_by, deletes, partition, checked_ttl_s(ttl_s), expires_at
        )

    def rows(self) -> DataFrame:
        """The DataFrame, with one row per partition if partitions are given."""
        if self.partitions is None:
            return self.frame
        routing = TableRouting(self.target.table, self.table_schema, self.keys, self.partitions)
        return routing.row_per_partition(self.frame)

    def result(self, prepared: PreparedRows, documents: tuple[str, ...], **asked: Any) -> WriteSummary | StreamWrite:
        """Write a batch now, or return a `StreamWrite`. What is `asked` must be the same when a run starts again."""
        if self.on_error != "fail":
            own = [*(() if self.partitions is None else ("partition",)), *documents, *OUTCOME_COLUMNS]
            try:
                require_unique_names([*own, *self.keys], self.frame)
            except ValueError as error:
                raise ValueError(
                    f"the failed rows also have the columns {', '.join(own)}: rename the key column with such a name"
                ) from error
        target, keys = self.target, KeyColumns(*wire_keys(self.table_schema, self.keys))
        spec = WriteSpec(target.connection, target.table, self.op, keys, documents, self.omits_tokens)
        write = WriteJob(
            target, self.totals, self.table_schema.limits, spec, self.keys, prepared.harmless, self.on_error
        )
        if self.frame.isStreaming:
            return StreamWrite(prepared.rows, prepared.grouping, write)
        lease = TokenLease()
        if not self.omits_tokens:
            generate, place = self.op != "put", (target.connection, target.table)
            lease = acquire_token(self.frame, *place, self.token, generate=generate, harmless=prepared.harmless)
        with lease.hold():
            is_repeatable = self.op == "put" or self.sequence_by is not None or lease.is_repeatable
            send = partial(job.run, write, prepared, WriteRun(lease.token, lease.token, is_repeatable=is_repeatable))
            if not isinstance(self.token, str):
                return send()
            arguments = {"key": self.keys, "partitions": self.partitions, **asked}
            # The deletes before the updates have a writer of their own.
            writers = 2 if self.op == "update" and asked.get("delete_when") is not None else 1
            run = Run(self.token, self.op, fingerprint(arguments), writers)
            companion = shared_client(target.connection).table(target.table + RUNS)
            memory = RunMemory(companion, target.table, self.runs_memory_s)
            return memory.once(run, self.resume, send, partial(job.skip, write, prepared))
