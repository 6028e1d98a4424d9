"""`TableClient`: the operations of the service as blocking, thread-safe methods."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from tableside_client import wire
from tableside_client.batches import send_batch, send_get, send_write
from tableside_client.credential import Credential
from tableside_client.paths import Key, given, joined, record_path, table_path, write_headers
from tableside_client.request_window import RequestWindow
from tableside_client.results import Record, Written, record_from_response, record_from_result
from tableside_client.retries import DEFAULT_RETRIES, Retries
from tableside_client.tls import Tls
from tableside_client.transport import Transport


class TableClient:
    """A blocking client for the tables of one service, with one connection pool.

    A client is thread-safe: share one between threads, and close it, or use it as a context manager.

    Every method retries temporary failures within `retries` if a second attempt is safe, and raises `TableError`
    for all other failures. The error's code is `service_unreachable` if there is no response: `applied` is then
    `"no"` if the request was not sent, and `"unknown"` otherwise. If one side rejects the other's certificate, the
    code is `tls_refused`, without retries.

    Args:
        url: The address of the service, `http://` or `https://`.
        token: The bearer token. Default: the content of `token_file`, or of the variable `TABLESIDE_TOKEN`.
        token_file: A file with the bearer token. This and the other files are read again when they change.
        ca_file: PEM file of the authorities that may sign the service's certificate, in place of the system's.
            Default: the variable `TABLESIDE_CA_FILE`.
        certificate_file: PEM file of the client's certificate, if the service requires one.
            Default: `TABLESIDE_CERTIFICATE_FILE`.
        key_file: PEM file of the certificate's key, if it is not in `certificate_file`. Default: `TABLESIDE_KEY_FILE`.
        credential: A `Credential`, in place of `token` and `token_file`.
        tls: A `Tls`, in place of `ca_file`, `certificate_file` and `key_file`.
        timeout_s: The timeout of one attempt, in seconds.
        connections_max: The size of the connection pool.
        retries: The limits on retries.

    Raises:
        ValueError: The arguments contradict each other, or TLS files are given for an `http://` address.
        CredentialError: The token cannot be read.
        TlsFileError: A TLS file cannot be read or used.

    Example:
        ```python
        with TableClient("http://127.0.0.1:8080") as client:
            client.put("users", "ada", {"name": "Ada"})
            client.get("users", "ada").value  # {"name": "Ada"}
        ```
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        credential: Credential | None = None,
        tls: Tls | None = None,
        timeout_s: float = 30.0,
        connections_max: int = 64,
        retries: Retries = DEFAULT_RETRIES,
    ) -> None:
        self._transport = Transport(
            url,
            credential=credential or Credential(token, token_file),
            tls=tls or Tls(ca_file, certificate_file, key_file),
            timeout_s=timeout_s,
            connections_max=connections_max,
            retries=retries,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Requests in flight fail."""
        self._transport.close()

    @property
    def retried(self) -> int:
        """The number of retried requests, counted in operations for batches, since the client was created."""
        return self._transport.retried

    @property
    def waited_s(self) -> float:
        """The time in which at least one request waited for a retry, in seconds, since the client was created."""
        return self._transport.waited_s

    def tables(self) -> list[dict[str, Any]]:
        """Describe every table that the caller may see, as `describe` does but without policies that are defaults."""
        document = self._transport.send_with_retries("GET", "/v1/tables").json()
        return list(document["tables"] if isinstance(document, dict) else document)

    def describe(self, table: str) -> dict[str, Any]:
        """Describe a table: key fields, capabilities, limits and policies."""
        response = self._transport.send_with_retries("GET", table_path(table), table=table)
        return dict(response.json())

    def splits(self, table: str, count: int) -> list[str]:
        """Divide a table into 1 to `count` disjoint parts for parallel scans. Together they cover the table."""
        path = table_path(table, "splits")
        response = self._transport.send_with_retries("GET", path, table=table, params={"count": count})
        return [str(split) for split in response.json()["splits"]]

    def get(self, table: str, key: Key, *, fields: Sequence[str] | None = None) -> Record[dict[str, Any]]:
        """Return a record.

        Args:
            table: The name of the table.
            key: A string or an integer, or a sequence of them for a composite key.
            fields: The members to return. Default: all.

        Raises:
            TableError: With the code `record_not_found` if there is no record.
        """
        path = record_path(table, key, None)
        if path is None:
            return record_from_result(key, send_get(self._transport, table, key, given(fields=fields)))
        response = self._transport.send_with_retries("GET", path, table=table, params=given(fields=joined(fields)))
        return record_from_response(key, response)

    def put(
        self,
        table: str,
        key: Key,
        value: Mapping[str, Any],
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        ttl_s: float | None = None,
        token: tuple[str, int] | None = None,
        return_: bool = False,
    ) -> Written:
        """Create a record or replace its value. The result reports which one only if `if_absent` is set.

        Args:
            table: The name of the table.
            key: A string or an integer, or a sequence of them for a composite key.
            value: A JSON object.
            if_match: Write only if the current etag is this one, or, for `"*"`, if there is a record.
            if_absent: Write only if there is no record.
            ttl_s: Time to live, in seconds.
            token: A writer's name and a sequence number. A repeated write with the same token changes nothing.
            return_: Return the new value.
        """
        members = given(value=value, if_match=if_match, if_absent=if_absent or None, ttl_s=ttl_s)
        path = record_path(table, key, token)
        if path is None:
            return Written.from_result(send_write(self._transport, table, "put", key, members, token, return_))
        headers = write_headers(if_match, token, return_) | ({"If-None-Match": "*"} if if_absent else {})
        repeatable = token is not None or not (if_match or if_absent)
        params = given(ttl_s=ttl_s)
        response = self._transport.send_with_retries(
            "PUT", path, table=table, json=value, headers=headers, params=params, repeatable=repeatable
        )
        return Written.from_response(response)

    def update(
        self,
        table: str,
        key: Key,
        update: Any,
        *,
        default: Mapping[str, Any] | None = None,
        if_match: str | None = None,
        ttl_s: float | None = None,
        token: tuple[str, int] | None = None,
        return_: bool = False,
    ) -> Written:
        """Change a record.

        Args:
            table: The name of the table.
            key: As in `put`.
            update: A merge patch, an operator document such as `{"$inc": {"miles": 3}}`, or a list of them.
            default: The value to start from if there is no record.
            if_match: As in `put`.
            ttl_s: As in `put`.
            token: As in `put`. Without one, an update that may have been applied is not retried.
            return_: Return the new value.
        """
        members = given(update=update, default=default, ttl_s=ttl_s)
        path = record_path(table, key, token)
        if path is None:
            return Written.from_result(
                send_write(self._transport, table, "update", key, members | given(if_match=if_match), token, return_)
            )
        headers = write_headers(if_match, token, return_)
        response = self._transport.send_with_retries(
            "PATCH", path, table=table, json=members, headers=headers, repeatable=token is not None
        )
        return Written.from_response(response)

    def delete(
        self, table: str, key: Key, *, if_match: str | None = None, token: tuple[str, int] | None = None
    ) -> Written:
        """Remove a record. Deleting an absent record succeeds, unless `if_match` is set.

        `key`, `if_match` and `token` are as in `put`.
        """
        path = record_path(table, key, token)
        if path is None:
            return Written.from_result(
                send_write(self._transport, table, "delete", key, given(if_match=if_match), token, return_=False)
            )
        headers = write_headers(if_match, token, return_=False)
        repeatable = token is not None or if_match is None
        response = self._transport.send_with_retries(
            "DELETE", path, table=table, headers=headers, repeatable=repeatable
        )
        return Written.from_response(response)

    def batch(
        self,
        table: str,
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

        Only operations that may still succeed are retried: those that were certainly not applied, and those that are
        safe to repeat (reads, writes with a token, puts and deletes without a precondition). A batch that is too large
        for one request is split in halves.

        Args:
            table: The name of the table.
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
            TableError: The service refused the whole request permanently.
        """
        rows = operations if isinstance(operations, pa.Table) else pa.Table.from_batches([operations])
        repeatable = wire.repeatable(rows, op, writer is not None, at_least_once)
        params = given(op=op, writer=writer, fields=joined(fields)) | ({"return": "true"} if return_ else {})
        return send_batch(self._transport, table, rows, repeatable, params, window)

    def scan(
        self,
        table: str,
        *,
        split: str | None = None,
        prefix: str | None = None,
        partition: str | None = None,
        partitions: Sequence[int] | None = None,
        fields: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.Table]:
        """Read all records of a table, or a part of them, page by page.

        A record that exists during the whole scan is returned at least once.

        Args:
            table: The name of the table.
            split: Read one part, as `splits` returned it.
            prefix: Read only the keys that begin with this text.
            partition: Read only the composite keys with this first part.
            partitions: Of a partitioned table, read only the partitions with these indexes.
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
            response = self._transport.send_with_retries(
                "GET",
                table_path(table, "records"),
                table=table,
                params=params | given(cursor=cursor),
                headers={"Accept": wire.ARROW},
            )
            page = wire.read_stream(response.content)
            yield page
            cursor = wire.next_cursor(page, response.headers)
            if cursor is None:
                return
