"""`Table`: the operations on one table as blocking, thread-safe methods with Python objects as values."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from tableside_client import json_batch
from tableside_client.calls import Call, Run
from tableside_client.coalescing import ThreadCoalescer
from tableside_client.errors import LoadError, TablesideError, is_temporary
from tableside_client.paths import Key, as_key
from tableside_client.results import Outcome, Record, Written
from tableside_client.table_calls import TableCalls, Update, scan_params
from tableside_client.tokens import TokenArgument
from tableside_client.turns import ThreadTurns

V = TypeVar("V")


class Table(Generic[V]):
    """A table. `Client.table` creates it. It owns no resources.

    A key is a string or an integer, or a sequence of them for a composite key. Every method raises `TablesideError`
    if the service refuses the request or stays unavailable.
    """

    def __init__(self, calls: TableCalls[V], run: Run, threads: ThreadPoolExecutor | None) -> None:
        self._calls = calls
        self._run = run
        self._turns = ThreadTurns()
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

        Raises:
            PreconditionFailed: `if_match` or `if_absent` is not met.
        """
        return self._run(self._calls.put(key, value, if_match=if_match, if_absent=if_absent, ttl_s=ttl_s, token=token))

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

        Raises:
            RecordNotFound: There is no record, and no default.
        """
        call = self._calls.update(
            key, update, default=default, if_match=if_match, ttl_s=ttl_s, return_value=return_value, token=token
        )
        return self._write(key, call, in_turn=token is None)

    def delete(self, key: Key, *, if_match: str | None = None, token: TokenArgument = None) -> Written:
        """Remove a record. Deleting an absent record succeeds, unless `if_match` is set."""
        call = self._calls.delete(key, if_match=if_match, token=token)
        return self._write(key, call, in_turn=token is None and if_match is not None)

    def _write(self, key: Key, call: Call[Written], *, in_turn: bool) -> Written:
        """Run a write. With `in_turn`, wait for the writes of this record before it, which have the same writer."""
        if not in_turn:
            return self._run(call)
        with self._turns.take(as_key(key)):
            return self._run(call)

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

    def load(self, pairs: Iterable[tuple[Any, V | Mapping[str, Any]]]) -> int:
        """Store pairs of key and value in batches, and return their number. The input is read while it is sent.

        Raises:
            LoadError: Some records were not written.
        """
        written = 0
        failures: list[tuple[Any, TablesideError]] = []
        for chunk in json_batch.chunks(pairs):
            failed = self._run(self._calls.load(chunk, is_first=not written and not failures))
            failures += failed
            written += len(chunk) - len(failed)
            if is_temporary(failed):
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
        remaining = limit
        ahead = ThreadPoolExecutor(1, "tableside-scan")
        try:
            page = ahead.submit(self._run, self._calls.page(params, None))
            while True:
                records, cursor = page.result()
                records = records[:remaining]
                remaining = None if remaining is None else remaining - len(records)
                last = cursor is None or remaining == 0
                if not last:
                    page = ahead.submit(self._run, self._calls.page(params, cursor))
                yield from records
                if last:
                    return
        finally:
            ahead.shutdown(wait=False, cancel_futures=True)

    def splits(self, count: int) -> list[str]:
        """Divide the table into 1 to `count` disjoint parts for parallel scans. Together they cover the table."""
        return self._run(self._calls.splits(count))
