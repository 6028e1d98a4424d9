"""`AsyncClient` and `AsyncTable`: the tables of a service as coroutines, with Python objects as values."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar, overload

import httpx

from tableside_client import json_batch
from tableside_client.address import Address
from tableside_client.calls import AsyncRun, Call, Calls, Pause
from tableside_client.concurrency import EventLoop, TaskCoalescer, Turns
from tableside_client.credential import Credential
from tableside_client.errors import LoadError, TablesideError, ends_load
from tableside_client.frame_methods import AsyncFrameMethods
from tableside_client.generations import AsyncGenerationMethods
from tableside_client.http1 import Reply
from tableside_client.http_clients import open_async_client
from tableside_client.json_batch import Document, TokenArgument, needs_token
from tableside_client.paths import Key, as_key
from tableside_client.results import Outcome, Record, Written
from tableside_client.retries import DEFAULT_RETRIES, Retries
from tableside_client.table_calls import TableCalls, Update, delete_params, list_tables, require_pairs, scan_params
from tableside_client.tls import Tls

T = TypeVar("T")
V = TypeVar("V")


class AsyncClient(Calls):
    """An asyncio client for the tables of one service, with one connection pool. Tasks of one event loop can share it.

    The arguments, guarantees and exceptions are those of `Client`. In a second event loop, calls raise `RuntimeError`.

    Example:
        ```python
        async with AsyncClient("http://127.0.0.1:8080") as client:
            people = client.table("people")
            await people.update("ada", {"$inc": {"visits": 1}}, default={"visits": 0})
            await people.get("ada")  # {"visits": 1}
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
        self._http = open_async_client(address, connections_max)
        self._loop = EventLoop()
        self._coalesce = coalesce

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Calls in progress fail."""
        self._loop.require_same()
        await self._http.close()

    async def tables(self) -> list[dict[str, Any]]:
        """Describe every table that the caller may see."""
        return await self._run(list_tables(self._settings))

    @overload
    def table(self, name: str, *, deadline_s: float | None = None) -> "AsyncTable[dict[str, Any]]": ...
    @overload
    def table(self, name: str, type: type[V], *, deadline_s: float | None = None) -> "AsyncTable[V]": ...

    def table(self, name: str, type: type[Any] = dict, *, deadline_s: float | None = None) -> "AsyncTable[Any]":  # noqa: A002 - the natural name
        """Return a table, as `Client.table` does. No request is sent."""
        calls = TableCalls(name, replace(self._settings, deadline_s=deadline_s), type)
        return AsyncTable(calls, self._run, coalesce=self._coalesce)

    async def _run(self, call: Call[T]) -> T:
        self._loop.require_same()
        reply: Reply | httpx.TransportError | None = None
        while True:
            try:
                step = call.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                with self._waits.waiting(step.reason):
                    await asyncio.sleep(step.seconds)
                reply = None
            else:
                try:
                    reply = await self._http.send(step)
                except httpx.TransportError as failure:
                    reply = failure


class AsyncTable(AsyncFrameMethods, AsyncGenerationMethods, Generic[V]):
    """A table. `AsyncClient.table` creates it. Its methods have the arguments and exceptions of those of `Table`."""

    def __init__(self, calls: TableCalls[V], run: AsyncRun, *, coalesce: bool = False) -> None:
        self._calls = calls
        self._run = run
        self._turns = Turns(asyncio.Lock)
        self._coalescer = TaskCoalescer(lambda keys: run(calls.get_each(keys))) if coalesce else None

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._calls.name

    async def describe(self) -> dict[str, Any]:
        """Describe the table: key fields, capabilities, limits and policies."""
        return await self._run(self._calls.describe())

    async def get(self, key: Key, *, fields: Sequence[str] | None = None) -> V | None:
        """Return a record's value, or None if there is no record. `fields` are the members to return."""
        if self._coalescer is not None and fields is None:
            return await self._coalescer.get(as_key(key))
        return await self._run(self._calls.get(key, fields))

    async def record(self, key: Key, *, fields: Sequence[str] | None = None) -> Record[V]:
        """Return a record with its etag and expiry. Raises `RecordNotFound` if there is none."""
        return await self._run(self._calls.record(key, fields))

    async def put(
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
        """Store a value, replacing any existing one, as `Table.put` does."""
        options = {"if_match": if_match, "if_absent": if_absent or None, "ttl_s": ttl_s, "token": token, "order": order}
        return await self._write(self._calls.write_members("put", key, value=value, **options))

    async def update(
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
        """Change a record, as `Table.update` does."""
        options = {"if_match": if_match, "ttl_s": ttl_s, "return": return_value or None, "token": token, "order": order}
        return await self._write(self._calls.write_members("update", key, update=update, default=default, **options))

    async def delete(
        self,
        key: Key,
        *,
        if_match: str | None = None,
        token: TokenArgument = None,
        order: int | None = None,
        forget: bool = False,
    ) -> Written:
        """Remove a record, as `Table.delete` does."""
        options = {"if_match": if_match, "token": token, "order": order, "forget": forget or None}
        return await self._write(self._calls.write_members("delete", key, **options))

    async def _write(self, members: Document) -> Written:
        """Run a write, after those of the same record that it must not overtake."""
        if not needs_token(members):
            return await self._run(self._calls.write(members))
        async with self._turns.take(members["key"]):
            return await self._run(self._calls.write(members))

    async def get_many(self, keys: Iterable[Any], *, fields: Sequence[str] | None = None) -> dict[Any, V]:
        """Return the values of those keys that have a record, in batches. A composite key is a tuple in the result."""
        return await self._run(self._calls.get_many(keys, fields))

    async def batch(self, operations: Iterable[Mapping[str, Any]]) -> list[Outcome[V]]:
        """Send operations as batches of at most 1,000, and return their outcomes in order, as `Table.batch` does."""
        return await self._run(self._calls.batch(operations))

    @overload
    async def load(
        self,
        pairs: Iterable[tuple[Any, V | Mapping[str, Any]]] | AsyncIterable[tuple[Any, V | Mapping[str, Any]]],
    ) -> int: ...
    @overload
    async def load(self, pairs: Any, key: str | Sequence[str], order: str | None = None) -> int: ...

    async def load(self, pairs: Any, key: str | Sequence[str] | None = None, order: str | None = None) -> int:
        """Store pairs of key and value, or the rows of a frame, in batches, as `Table.load` does."""
        if key is not None:
            return int(await self._run_plan("load", pairs, key, order))
        require_pairs(pairs, order)
        written = 0
        failures: list[tuple[Any, TablesideError]] = []
        async for chunk in _chunks(pairs):
            failed = await self._run(self._calls.load(chunk, is_first=not written and not failures))
            failures += failed
            written += len(chunk) - len(failed)
            if ends_load(failed):
                break
        if failures:
            raise LoadError(failures, written)
        return written

    async def scan(
        self,
        *,
        prefix: str | None = None,
        partition: str | int | None = None,
        split: str | None = None,
        fields: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Record[V]]:
        """Read all records, or a part of them, as `Table.scan` does."""
        params = scan_params(prefix, partition, split, fields, limit)
        remaining = limit
        page = asyncio.create_task(self._page(params, None))
        try:
            while True:
                records, cursor = await page
                records = records[:remaining]
                remaining = None if remaining is None else remaining - len(records)
                last = cursor is None or remaining == 0
                if not last:
                    page = asyncio.create_task(self._page(params, cursor))
                for record in records:
                    yield record
                if last:
                    return
        finally:
            page.cancel()

    async def delete_all(
        self,
        *,
        prefix: str | None = None,
        partition: str | int | None = None,
        everything: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Delete many records in pages, as `Table.delete_all` does."""
        params = delete_params(prefix, partition, everything=everything)
        return await self._run(self._calls.delete_all(params, progress))

    async def splits(self, count: int) -> list[str]:
        """Divide the table into 1 to `count` disjoint parts for parallel scans. Together they cover the table."""
        return await self._run(self._calls.splits(count))

    def _generation(self, number: int) -> Self:
        return type(self)(self._calls.generation(number), self._run)

    async def _page(self, params: Mapping[str, Any], cursor: str | None) -> tuple[list[Record[V]], str | None]:
        return await self._run(self._calls.page(params, cursor))


async def _chunks(pairs: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[list[Any]]:
    if not isinstance(pairs, AsyncIterable):
        for chunk in json_batch.chunks(pairs):
            yield chunk
        return
    chunk = []
    async for pair in pairs:
        chunk.append(pair)
        if len(chunk) == json_batch.OPERATIONS_PER_REQUEST:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
