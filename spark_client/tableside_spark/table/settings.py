"""The settings of a `Table`: its address, credentials and limits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tableside_client.address import service_url
from tableside_client.connection import Connection
from tableside_client.credential import Credential
from tableside_client.retries import DEFAULT_RETRIES, Retries
from tableside_client.tls import Tls
from tableside_spark.executor.chunks import ChunkSize
from tableside_spark.plan.table_schema import fetch_table_schema
from tableside_spark.write.summary import WriteTotals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tableside_spark.write.failures import OnError
    from tableside_spark.write.request import WriteRequest
    from tableside_spark.write.tokens import TokenArgument


@dataclass(frozen=True)
class TableSettings:
    """The settings of a table, and the connections and writes that use them. `Table` describes the attributes."""

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
    _totals: WriteTotals = field(default_factory=WriteTotals, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", service_url(self.url))
        self._tls().require_https(self.url)
        if self.in_flight_max < 1:
            raise ValueError(f"in_flight_max is at least 1, not {self.in_flight_max}")

    def _connection(self) -> Connection:
        """Return the connection that tasks open."""
        credential = Credential(self.token, self.token_file)
        return Connection(self.url, credential, self.timeout_s, self.retries, self._tls())

    def _tls(self) -> Tls:
        return Tls(self.ca_file, self.certificate_file, self.key_file)

    def _write_request(
        self,
        op: str,
        frame: "DataFrame",
        key: str | Sequence[str],
        partitions: Any,
        token: "TokenArgument",
        *,
        at_least_once: bool,
        on_error: "OnError",
    ) -> "WriteRequest":
        """Check the arguments of a write, and fetch the schema of the table."""
        from tableside_spark.plan.frames import check_key_columns, with_strings
        from tableside_spark.write.request import WriteRequest

        connection = self._connection()
        facts = fetch_table_schema(connection, self.name)
        frame = with_strings(frame)
        keys = check_key_columns(frame, key)
        return WriteRequest(
            connection=connection,
            table=self.name,
            table_schema=facts,
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
