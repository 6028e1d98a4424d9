"""`Client` and `Table`: the tables of a service for programs with threads, with Python objects as values."""

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

import httpx

from tableside_client import json_batch
from tableside_client.address import Address
from tableside_client.calls import Call, Calls, Pause, Run
from tableside_client.concurrency import BATCHES_IN_FLIGHT_MAX, ThreadCoalescer, Turns, read_ahead
from tableside_client.credential import Credential
from tableside_client.errors import LoadError, TablesideError, ends_load
from tableside_client.frame_methods import FrameMethods
from tableside_client.generations import GenerationMethods
from tableside_client.http1 import Reply
from tableside_client.http_clients import open_client
from tableside_client.json_batch import Document, TokenArgument, needs_token
from tableside_client.paths import Key, as_key
from tableside_client.results import Outcome, Record, Written
from tableside_client.retries import DEFAULT_RETRIES, Retries
from tableside_client.table_calls import TableCalls, Update, delete_params, list_tables, require_pairs, scan_params
from tableside_client.tls import Tls

if TYPE_CHECKING:
    from tableside_client.arrow_table import ArrowTable


T = TypeVar("T")
V = TypeVar("V")


class Client(Calls):
    """A blocking client for the tables of one service, with one connection pool. Threads can share it.

    Calls retry temporary failures until `retries.total_s` if a second attempt is safe, so that a restart of the service
    is only a delay. A write that is not safe to repeat (an update without an order, or a precondition) carries its own
    token, so that it counts once. All exceptions derive from `TablesideError`.

    Args:
        url: The address of the service, `http://` or `https://`. Default: the variable `TABLESIDE_URL`.
        token: The bearer token. Default: the content of `token_file`, or of the variable `TABLESIDE_TOKEN`.
        token_file: A file with the bearer token. This and the other files are read again when they change.
        ca_file: PEM file of the authorities that may sign the service's certificate, in place of the system's.
            Default: the variable `TABLESIDE_CA_FILE`.
        certificate_file: PEM file of the client's certificate, if the service requires one.
            Default: `TABLESIDE_CERTIFICATE_FILE`.
        key_file: PEM file of the certificate's key, if it is not in `certificate_file`. Default: `TABLESIDE_KEY_FILE`.
        timeout_s: The timeout of one attempt, in seconds.
        connections_max: The size of the connection pool.
        retries: The limits on retries.
        coalesce: Combine concurrent single gets into batches. They then share connections and cost less.

    Raises:
        ValueError: The arguments contradict each other, or `url` is not a valid address.
        CredentialError: The token cannot be read.
        TlsFileError: A TLS file cannot be read or used.

    Example:
        ```python
        with Client("http://127.0.0.1:8080") as client:
            people = client.table("people")
            people.put("ada", {"name": "Ada"})
            people.update("ada", {"$inc": {"visits": 1}})
            people.get("ada")  # {"name": "Ada", "visits": 1}
        ```
    """

    def __init__(
        self,
        url: str = "",
        *,
        token: str | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        timeout_s: float = 30.0,
        connections_max: int = 64,
        retries: Retries = DEFAULT_RETRIES,
        coalesce: bool = False,
    ) -> None:
        address = Address.resolve(url, Tls(ca_file, certificate_file, key_file))
        super().__init__(address, Credential(token, token_file), retries, timeout_s)
        self._http = open_client(address, connections_max)
        self._batch_threads = ThreadPoolExecutor(BATCHES_IN_FLIGHT_MAX, "tableside") if coalesce else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Calls in progress fail."""
        if self._batch_threads is not None:
            self._batch_threads.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    def tables(self) -> list[dict[str, Any]]:
        """Describe every table that the caller may see."""
        return self._run(list_tables(self._settings))

    @overload
    def table(self, name: str, *, deadline_s: float | None = None) -> "Table[dict[str, Any]]": ...
    @overload
    def table(self, name: str, type: type[V], *, deadline_s: float | None = None) -> "Table[V]": ...

    def table(self, name: str, type: type[Any] = dict, *, deadline_s: float | None = None) -> "Table[Any]":  # noqa: A002 - the natural name
        """Return a table. No request is sent.

        Args:
            name: The name of the table.
            type: The type of its values: `dict`, a dataclass, a msgspec struct or a pydantic model.
            deadline_s: The time that each call may take with all its attempts, in seconds. The service gets it with
                each request (`Prefer: wait`).

        Raises:
            TypeError: `type` is none of these types.
        """
        calls = TableCalls(name, replace(self._settings, deadline_s=deadline_s), type)
        return Table(calls, self._run, self._batch_threads)

    def arrow_table(self, name: str) -> "ArrowTable":
        """Return a table whose batches and scans are Arrow tables. No request is sent. Requires pyarrow."""
        from tableside_client.arrow_table import ArrowTable  # the other methods work without pyarrow

        return ArrowTable(name, self._settings, self._run)

    def _run(self, call: Call[T]) -> T:
        reply: Reply | httpx.TransportError | None = None
        while True:
            try:
                step = call.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                with self._waits.waiting(step.reason):
                    time.sleep(step.seconds)
                reply = None
            else:
                try:
                    reply = self._http.send(step)
                except httpx.TransportError as failure:
                    reply = failure


class Table(FrameMethods, GenerationMethods, Generic[V]):
    """A table. `Client.table` creates it. It owns no resources.

    A key is a string or an integer, or a sequence of them for a composite key. Every method raises `TablesideError`
    if the service refuses the request or stays unavailable.
    """

    def __init__(self, calls: TableCalls[V], run: Run, threads: ThreadPoolExecutor | None) -> None:
        self._calls = calls
        self._run = run
        self._turns = Turns(threading.Lock)
        self._coalescer = None if threads is None else ThreadCoalescer(lambda keys: run(calls.get_each(keys)), threads)

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._calls.name

    def describe(self) -> dict[str, Any]:
        """Describe the table: key fields, capabilities, limits and policies."""
        return self._run(self._calls.describe())

    def get(self, key: Key, *, fields: Sequence[str] | None = None) -> V | None:
        """Return a record's value, or None if there is no record. `fields` are the members to return."""
        if self._coalescer is not None and fields is None:
            return self._coalescer.get(as_key(key))
        return self._run(self._calls.get(key, fields))

    def record(self, key: Key, *, fields: Sequence[str] | None = None) -> Record[V]:
        """Return a record with its etag and expiry. Raises `RecordNotFound` if there is none."""
        return self._run(self._calls.record(key, fields))

    def put(
        self,
        key: Key,
        value: V | Mapping[str, Any],
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        ttl_s: float | None = None,
        token: TokenArgument = None,
        order: int | None = None,
    ) -> Written:
        """Store a value, replacing any existing one.

        Args:
            key: The key.
            value: A JSON object, or an object of the table's type.
            if_match: Write only if the current etag is this one, or, for `"*"`, if there is a record.
            if_absent: Write only if there is no record.
            ttl_s: Time to live, in seconds, or -1 for no expiry.
            token: Identifies the write, so that repeating it changes nothing: a text for one write, or a writer's name
                and a sequence number.
            order: A signed 64-bit integer, for example the time of an event in microseconds. The write changes only the
                members that no write with a higher order has written. Cannot be combined with preconditions.

        Raises:
            PreconditionFailed: `if_match` or `if_absent` is not met.
        """
        options = {"if_match": if_match, "if_absent": if_absent or None, "ttl_s": ttl_s, "token": token, "order": order}
        return self._write(self._calls.write_members("put", key, value=value, **options))

    def update(
        self,
        key: Key,
        update: Update,
        *,
        default: V | Mapping[str, Any] | None = None,
        if_match: str | None = None,
        ttl_s: float | None = None,
        return_value: bool = False,
        token: TokenArgument = None,
        order: int | None = None,
    ) -> Written:
        """Change a record.

        Args:
            key: The key.
            update: A merge patch, an operator document such as `{"$inc": {"miles": 3}}`, or a list of them.
            default: The value to start from if there is no record.
            if_match: As in `put`.
            ttl_s: As in `put`.
            return_value: Return the new value.
            token: As in `put`.
            order: As in `put`. The update is a merge patch, or `$set` and `$unset` of top-level members, and needs no
                record. Cannot be combined with `default`.

        Raises:
            RecordNotFound: There is no record, and neither a default nor an order.
        """
        options = {"if_match": if_match, "ttl_s": ttl_s, "return": return_value or None, "token": token, "order": order}
        return self._write(self._calls.write_members("update", key, update=update, default=default, **options))

    def delete(
        self,
        key: Key,
        *,
        if_match: str | None = None,
        token: TokenArgument = None,
        order: int | None = None,
        forget: bool = False,
    ) -> Written:
        """Remove a record. Deleting an absent record succeeds, unless `if_match` is set.

        Args:
            key: The key.
            if_match: As in `put`.
            token: As in `put`.
            order: As in `put`.
            forget: Also remove the tokens and orders that the table remembers of the record, for example after a write
                with a wrong order. Cannot be combined with `token` and `order`.
        """
        options = {"if_match": if_match, "token": token, "order": order, "forget": forget or None}
        return self._write(self._calls.write_members("delete", key, **options))

    def _write(self, members: Document) -> Written:
        """Run a write, after those of the same record that it must not overtake."""
        if not needs_token(members):
            return self._run(self._calls.write(members))
        with self._turns.take(members["key"]):
            return self._run(self._calls.write(members))

    def get_many(self, keys: Iterable[Any], *, fields: Sequence[str] | None = None) -> dict[Any, V]:
        """Return the values of those keys that have a record, in batches. A composite key is a tuple in the result."""
        return self._run(self._calls.get_many(keys, fields))

    def batch(self, operations: Iterable[Mapping[str, Any]]) -> list[Outcome[V]]:
        """Send operations as batches of at most 1,000, and return their outcomes in order.

        An operation is a mapping as in the service's batches, for example
        `{"op": "update", "key": "ada", "update": {"$inc": {"visits": 1}}, "default": {"visits": 0}}`. A failed
        operation is an outcome with an `error`. Operations on one key take effect in their order.

        Raises:
            TablesideError: The service rejected the first request as a whole, so that no operation is applied. If it
                rejects a later one, this is the error of each of its operations.
        """
        return self._run(self._calls.batch(operations))

    @overload
    def load(self, pairs: Iterable[tuple[Any, V | Mapping[str, Any]]]) -> int: ...
    @overload
    def load(self, pairs: Any, key: str | Sequence[str], order: str | None = None) -> int: ...

    def load(self, pairs: Any, key: str | Sequence[str] | None = None, order: str | None = None) -> int:
        """Store records in batches, and return the number of pairs or rows.

        Args:
            pairs: Pairs of key and value, which are read while they are sent. Or a frame: a pyarrow Table, or a
                DataFrame of pandas or Polars. The columns that are not key columns are the members of the values. Of
                several rows with one key, the last is stored.
            key: The key columns of a frame.
            order: A column of a frame with the order of each row, as in `put`: integers, or timestamps or dates, which
                count as microseconds since 1970. Of several rows with one key, that with the highest order is stored.

        Raises:
            LoadError: Some records were not written. For a frame, it is a `FrameWriteError`.
        """
        if key is not None:
            return int(self._run_plan("load", pairs, key, order))
        require_pairs(pairs, order)
        written = 0
        failures: list[tuple[Any, TablesideError]] = []
        for chunk in json_batch.chunks(pairs):
            failed = self._run(self._calls.load(chunk, is_first=not written and not failures))
            failures += failed
            written += len(chunk) - len(failed)
            if ends_load(failed):
                break
        if failures:
            raise LoadError(failures, written)
        return written

    def scan(
        self,
        *,
        prefix: str | None = None,
        partition: str | int | None = None,
        split: str | None = None,
        fields: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[Record[V]]:
        """Read all records, or a part of them. The next page is fetched while the caller reads the current one.

        A record that exists during the whole scan is returned at least once.

        Args:
            prefix: Read only keys that begin with this text.
            partition: Read only the records whose composite key begins with this part.
            split: Read one part, as `splits` returned it.
            fields: The members to return. Default: all.
            limit: The maximum number of records. Default: all.
        """
        params = scan_params(prefix, partition, split, fields, limit)
        with closing(read_ahead(self._pages(params, limit))) as pages:
            for records in pages:
                yield from records

    def _pages(self, params: Mapping[str, Any], remaining: int | None) -> Generator[list[Record[V]], None, None]:
        cursor: str | None = None
        while True:
            records, cursor = self._run(self._calls.page(params, cursor))
            yield records[:remaining]
            remaining = None if remaining is None else remaining - len(records)
            if cursor is None or (remaining is not None and remaining <= 0):
                return

    def delete_all(
        self,
        *,
        prefix: str | None = None,
        partition: str | int | None = None,
        everything: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Delete the records that a scan would return, with their tokens and orders, in pages. Return their number.

        Records that are written meanwhile may stay or go. The call can be repeated after an error.

        Args:
            prefix: Delete only keys that begin with this text.
            partition: Delete only the records whose composite key begins with this part.
            everything: Delete all records.
            progress: Called with the number of deleted records after each page.

        Raises:
            ValueError: There is not exactly one of `prefix`, `partition` and `everything`.
        """
        params = delete_params(prefix, partition, everything=everything)
        return self._run(self._calls.delete_all(params, progress))

    def splits(self, count: int) -> list[str]:
        """Divide the table into 1 to `count` disjoint parts for parallel scans. Together they cover the table."""
        return self._run(self._calls.splits(count))

    def _generation(self, number: int) -> Self:
        return type(self)(self._calls.generation(number), self._run, None)
