"""`Table`: what a Spark program holds. Reads the caller's arguments; imports Spark only when it is used."""

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from tableside_spark.batching import ChunkSize
from tableside_spark.connection import Connection
from tableside_spark.credential import Credential
from tableside_spark.facts import TableFacts, table_facts
from tableside_spark.retries import DEFAULT_RETRIES, Retries
from tableside_spark.summary import WriteSummary

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from tableside_spark.writes import Write

URL_VARIABLE = "TABLESIDE_URL"
WRITER_CHARACTERS_MAX = 128


@dataclass(frozen=True)
class Table:
    """One table of a service, for frames of classic PySpark and of Spark Connect.

    `url` has to be reachable from the driver and from every executor; without it, `TABLESIDE_URL` of the driver
    says where. The bearer token is `token`, or what is in `token_file`, or in `TABLESIDE_TOKEN`; the latter two
    are read on each executor, so that only their names travel with the job.

    `in_flight_max` bounds the requests in flight over the whole job: each task that may run at once has its
    share, at least one. `chunk` bounds the rows and bytes of one request, and so what a task holds. `timeout_s`
    bounds one attempt, `retries` the attempts and the time of one request.
    """

    name: str
    url: str = ""
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    in_flight_max: int = 32
    chunk: ChunkSize = field(default_factory=ChunkSize)
    timeout_s: float = 30.0
    retries: Retries = DEFAULT_RETRIES

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", service_url(self.url))
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
    ) -> "DataFrame":
        """The frame, batch or streaming, with the members of each row's record as further columns.

        `on` names the key's columns. `how` is `left`, `inner`, `left_semi` or `left_anti`; the last two add no
        columns. `schema` (DDL or a StructType) says which members are wanted and of what type; a value that
        does not fit fails the query, or is null with `on_mismatch="null"`. Without a schema, the JSON text is
        the column `value`. A null key matches nothing and is not asked. `fields` has the service send those
        members only, worth it for large values.

        The lookups run when the result is used, and again at each use; a global sort or range partitioning of
        the result uses it twice. Cache what is used more than once.
        """
        from tableside_spark.joins import Joining, joined

        joining = Joining(on, schema, how, on_mismatch, fields)
        return joined(self._connection(), self.name, frame, joining, self.in_flight_max, self.chunk)

    def put(
        self,
        frame: "DataFrame",
        key: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        value: str | None = None,
        order_by: Any = None,
        ttl_s: float | None = None,
        nulls: Literal["write", "omit"] = "write",
        decimals: Literal["number", "string"] = "number",
        on_error: Literal["fail", "collect"] = "fail",
    ) -> WriteSummary:
        """Store one record per key, at once: its value is all other columns, or `columns`, or `value`.

        `value` names a column that is a struct, a map or JSON text. Of several rows with one key the last by
        `order_by` (columns, ascending, nulls first) is stored; without it, any. Nulls are written as null,
        unless `nulls="omit"`; dates and times as ISO 8601 in UTC; decimals of more than 15 digits are refused
        unless `decimals="string"`. Rows with a null key, a NaN or an infinity are not sent and have failed.

        Raises `TableWriteError` if rows failed; with `on_error="collect"`, they are `summary.failures` instead.
        """
        from tableside_spark import operations, writes
        from tableside_spark.frames import key_names

        writes.refuse(frame, on_error)
        keys = key_names(frame, key)
        sent = operations.row_value(frame, keys, columns, value)
        rows = operations.puts(frame, keys, sent, order_by, operations.Writing(nulls, decimals))
        write = self._write("put", ("value",), table_facts(self._connection(), self.name), on_error, ttl_s=ttl_s)
        return writes.run(write, rows, keys)

    def update(
        self,
        frame: "DataFrame",
        key: str | Sequence[str],
        update: "Mapping[str, Any] | Sequence[Mapping[str, Any]] | Column",
        *,
        default: "Mapping[str, Any] | Column | None" = None,
        order_by: Any = None,
        fold: bool = True,
        ttl_s: float | None = None,
        token: str | None = None,
        at_least_once: bool = False,
        nulls: Literal["write", "omit"] = "write",
        decimals: Literal["number", "string"] = "number",
        on_error: Literal["fail", "collect"] = "fail",
    ) -> WriteSummary:
        """Apply one update per key, at once: `update`'s columns from every row of that key.

        `update` is a mapping of operators (`{"$inc": {"miles": col("distance")}}`) or of members (a merge
        patch), with columns or literals as values, a list of such, or a column of JSON text or a struct.
        `default` is the value to start from where there is no record; of several, the first row's by
        `order_by`, or any. The rows of a key are folded into one update where that is exact, else sent as a
        list, in the order of `order_by`, or any; `fold=False` always sends lists.

        Each update carries a token, so that a task that runs twice changes nothing a second time. The writer is
        made for this call; given as `token` ("job/run", another for each call), repeating the whole call changes
        nothing either. A table that keeps no tokens is refused unless `at_least_once`.
        """
        from tableside_spark import operations, writes
        from tableside_spark.frames import key_names

        writes.refuse(frame, on_error)
        keys = key_names(frame, key)
        writing = operations.Writing(nulls, decimals)
        rows = operations.updates(frame, keys, update, default, order_by, writing, folding=fold)
        documents = ("update",) if default is None else ("update", "default")
        facts = table_facts(self._connection(), self.name)
        writer = _writer(self.name, facts, token, at_least_once)
        write = self._write("update", documents, facts, on_error, writer=writer, ttl_s=ttl_s)
        return writes.run(write, rows, keys)

    def delete(
        self,
        frame: "DataFrame",
        key: str | Sequence[str],
        *,
        token: str | None = None,
        at_least_once: bool = False,
        on_error: Literal["fail", "collect"] = "fail",
    ) -> WriteSummary:
        """Remove the records of the frame's keys, at once; absent ones count as applied. Tokens as in `update`."""
        from tableside_spark import operations, writes
        from tableside_spark.frames import key_names

        writes.refuse(frame, on_error)
        keys = key_names(frame, key)
        rows = operations.deletes(frame, keys)
        facts = table_facts(self._connection(), self.name)
        writer = _writer(self.name, facts, token, at_least_once)
        return writes.run(self._write("delete", (), facts, on_error, writer=writer), rows, keys)

    def _connection(self) -> Connection:
        return Connection(self.url, Credential(self.token, self.token_file), self.timeout_s, self.retries)

    def _write(
        self,
        op: str,
        documents: tuple[str, ...],
        facts: TableFacts,
        on_error: Literal["fail", "collect"],
        *,
        writer: str | None = None,
        ttl_s: float | None = None,
    ) -> "Write":
        from tableside_spark.writes import Write

        return Write(
            connection=self._connection(),
            table=self.name,
            facts=facts,
            op=op,
            documents=documents,
            writer=writer,
            ttl_s=ttl_s,
            at_least_once=op != "put" and writer is None,
            on_error=on_error,
            in_flight_max=self.in_flight_max,
            size=self.chunk,
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


def _writer(table: str, facts: TableFacts, token: str | None, at_least_once: bool) -> str | None:
    """The writer of this call's tokens; None where the table keeps none and the caller can live with that."""
    if not facts.tokens:
        if at_least_once and token is None:
            return None
        raise ValueError(f"table {table} keeps no tokens: a repeated task would write twice; say at_least_once=True")
    if token is not None and not 1 <= len(token) <= WRITER_CHARACTERS_MAX:
        raise ValueError(f"a token has 1 to {WRITER_CHARACTERS_MAX} characters, not {len(token)}")
    return token or f"spark-{uuid.uuid4()}"
