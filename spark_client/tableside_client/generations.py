"""Generations, the complete contents of a table: the calls that list and change them, and the methods of tables."""

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, TypeAlias

from tableside_client.calls import AsyncRun, Call, CallLimits, Run
from tableside_client.errors import GenerationNotFound, GenerationSealed, LoadError, TablesideError, ends_load
from tableside_client.http1 import Reply, Request
from tableside_client.paths import JSON, given, json_bytes, table_path
from tableside_client.table_calls import TableCalls, require_pairs

CLEANUP_S = 5.0
"""The maximum time to remove a generation after a failure, and to keep one alive, in seconds.

The service removes a generation that is not written, so giving up is harmless.
"""


@dataclass(frozen=True, slots=True)
class Generation:
    """One complete content of a table. Times are RFC 3339 in UTC.

    Attributes:
        generation: The number. The table `planes@8` is generation 8 of `planes`.
        state: `current` is what requests without a number read and write. `loading` takes writes by its number, `kept`
            can be activated again.
        created_at: The time of its creation, or None for what the table had before.
        activated_at: The time at which it became current, or None.
        records_estimate: About the number of its records, or None if the store does not know it.
        bytes_estimate: About its size in the store, in bytes, or None if the store does not know it.
        note: The text that its creator gave, or None.
    """

    generation: int
    state: Literal["loading", "current", "kept"]
    created_at: str | None = None
    activated_at: str | None = None
    records_estimate: int | None = None
    bytes_estimate: int | None = None
    note: str | None = None

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Self:
        """Read an entry of the service. Members of later versions are ignored."""
        return cls(**{field.name: entry[field.name] for field in fields(cls) if field.name in entry})


class GenerationCalls:
    """The calls of the generations of one table. Each method returns a generator that a client runs."""

    def __init__(self, calls: TableCalls[Any]) -> None:
        self._table, self._settings = calls.name, calls.settings

    def list(self) -> Call[list[Generation]]:
        """Return the generations by rising number."""
        response = yield from self._send("GET")
        return [Generation.from_entry(entry) for entry in response.json()["generations"]]

    def create(self, note: str | None) -> Call[Generation]:
        """Create an empty generation, once, however often the request is sent."""
        headers = {"Content-Type": JSON, "Idempotency-Key": f"client-{uuid.uuid4().hex}"}
        response = yield from self._send("POST", headers=headers, content=json_bytes(given(note=note)))
        return Generation.from_entry(response.json())

    def activate(self, number: int, expected: int | None) -> Call[Generation]:
        """Make a generation current."""
        response = yield from self._send("POST", str(number), "activate", params=given(expected=expected))
        return Generation.from_entry(response.json())

    def remove(self, number: int) -> Call[None]:
        """Remove a generation, if it is there."""
        yield from self._send("DELETE", str(number))

    def clean_up(self, number: int) -> Call[None]:
        """Remove a generation after a failure, unless that takes longer than `CLEANUP_S`."""
        request = Request("DELETE", table_path(self._table, "generations", str(number)), self._table)
        yield from CallLimits(replace(self._settings, deadline_s=CLEANUP_S)).send_with_retries(request)

    def keep_alive(self, number: int, key_types: Sequence[str]) -> Call[None]:
        """Send a write that changes nothing to a generation, which is removed if it is not written for too long."""
        table, parts = f"{self._table}@{number}", [0 if kind == "integer" else "0" for kind in key_types]
        key = parts if len(parts) > 1 else parts[0]
        content = json_bytes({"operations": [{"op": "update", "key": key, "update": {}}]})
        path = table_path(table, "batch")
        request = Request("POST", path, table, headers={"Content-Type": JSON}, content=content)
        yield from CallLimits(replace(self._settings, deadline_s=CLEANUP_S)).send_with_retries(request)

    def _send(self, method: str, *rest: str, **parts: Any) -> Call[Reply]:
        request = Request(method, table_path(self._table, "generations", *rest), self._table, **parts)
        return CallLimits(self._settings).send_with_retries(request)


HandleFailures: TypeAlias = Callable[[Sequence[tuple[Any, TablesideError]]], object]
"""Receives the key and the error of each record that failed permanently."""


class GenerationMethods:
    """The methods of a table for its generations. Each is a complete content of the table, and one is current.

    The configuration of the table needs `generations: true`. `client.table("planes@8")` is generation 8 of `planes`.
    """

    _calls: TableCalls[Any]
    _run: Run

    def replace(
        self,
        pairs: Any,
        key: str | Sequence[str] | None = None,
        order: str | None = None,
        *,
        on_error: HandleFailures | None = None,
        allow_empty: bool = False,
        note: str | None = None,
    ) -> int:
        """Make the table contain exactly these records. Readers see the old records until all new ones are stored.

        A call that fails or is interrupted leaves the old records, and can be repeated. What others write to the table
        during the call is in the old content.

        Args:
            pairs: Pairs of key and value, or a frame, as in `load`.
            key: The key columns of a frame.
            order: As in `load`.
            on_error: Called with a list of the key and the error of each record that failed permanently, for example
                the method `extend` of a list. The table is then replaced without these records. Default: a record that
                fails leaves the old records.
            allow_empty: Allow that the table is empty afterwards.
            note: A text of at most 1,000 characters that the list of generations shows.

        Returns:
            The number of pairs or rows that were stored.

        Raises:
            LoadError: Some records were not written. For a frame, it is a `FrameWriteError`.
            ValueError: No record was written, and `allow_empty` is not set.
            PreconditionFailed: Another generation was activated during the call.
            GenerationNotFound: The service removed the new generation, because a newer one was activated.
        """
        if key is None:
            require_pairs(pairs, order)
        with self.replacement(note) as new:
            try:
                written = int(new.load(pairs, key, order))
            except LoadError as failure:
                written = _handled(failure, on_error)
            require_records(self._calls.name, written, allow_empty=allow_empty)
        return written

    @contextmanager
    def replacement(self, note: str | None = None) -> Iterator[Any]:
        """Replace the table by what the block writes to the table that it gets: `with people.replacement() as new:`.

        The end of the block activates the new content. An error in it leaves the old one. Arguments and exceptions are
        as in `replace`. An empty content is allowed.
        """
        calls = GenerationCalls(self._calls)
        number = self._run(calls.create(note)).generation
        try:
            description = self._run(self._calls.describe())
            kinds = [field["type"] for field in description["key"]]
            with _repeated(lambda: self._run(calls.keep_alive(number, kinds)), _interval_s(description)):
                yield self._generation(number)
            self._run(calls.activate(number, description["generation"]))
        except BaseException:
            with suppress(TablesideError):
                self._run(calls.clean_up(number))
            raise

    def generations(self) -> list[Generation]:
        """Return the generations by rising number."""
        return self._run(GenerationCalls(self._calls).list())

    def create_generation(self, note: str | None = None) -> Generation:
        """Create an empty generation. It is written by its number, and removed if it is not written for too long.

        `note` is a text of at most 1,000 characters.
        """
        return self._run(GenerationCalls(self._calls).create(note))

    def activate(self, number: int, *, expected: int | None = None) -> Generation:
        """Make a generation current, for example a kept one, and return when every process of the service uses it.

        Args:
            number: The number of the generation.
            expected: The generation that must be current before. Default: any.

        Raises:
            GenerationNotFound: The table has no such generation.
            PreconditionFailed: The current generation is not `expected`.
        """
        return self._run(GenerationCalls(self._calls).activate(number, expected))

    def remove_generation(self, number: int) -> None:
        """Remove a generation, if there is one. Raises `PreconditionFailed` for the current one."""
        self._run(GenerationCalls(self._calls).remove(number))

    def _generation(self, number: int) -> Any:
        raise NotImplementedError


class AsyncGenerationMethods:
    """The methods of a table for its generations, as coroutines. They are those of `GenerationMethods`."""

    _calls: TableCalls[Any]
    _run: AsyncRun

    async def replace(
        self,
        pairs: Any,
        key: str | Sequence[str] | None = None,
        order: str | None = None,
        *,
        on_error: HandleFailures | None = None,
        allow_empty: bool = False,
        note: str | None = None,
    ) -> int:
        """Make the table contain exactly these records, as `Table.replace` does."""
        if key is None:
            require_pairs(pairs, order)
        async with self.replacement(note) as new:
            try:
                written = int(await new.load(pairs, key, order))
            except LoadError as failure:
                written = _handled(failure, on_error)
            require_records(self._calls.name, written, allow_empty=allow_empty)
        return written

    @asynccontextmanager
    async def replacement(self, note: str | None = None) -> AsyncIterator[Any]:
        """Replace the table by what the block writes to the table that it gets, as `Table.replacement` does."""
        calls = GenerationCalls(self._calls)
        number = (await self._run(calls.create(note))).generation
        try:
            description = await self._run(self._calls.describe())
            alive = asyncio.create_task(self._keep_alive(calls, number, description))
            try:
                yield self._generation(number)
            finally:
                alive.cancel()
            await self._run(calls.activate(number, description["generation"]))
        except BaseException:
            with suppress(TablesideError):
                await self._run(calls.clean_up(number))
            raise

    async def generations(self) -> list[Generation]:
        """Return the generations by rising number."""
        return await self._run(GenerationCalls(self._calls).list())

    async def create_generation(self, note: str | None = None) -> Generation:
        """Create an empty generation, as `Table.create_generation` does."""
        return await self._run(GenerationCalls(self._calls).create(note))

    async def activate(self, number: int, *, expected: int | None = None) -> Generation:
        """Make a generation current, as `Table.activate` does."""
        return await self._run(GenerationCalls(self._calls).activate(number, expected))

    async def remove_generation(self, number: int) -> None:
        """Remove a generation, as `Table.remove_generation` does."""
        await self._run(GenerationCalls(self._calls).remove(number))

    async def _keep_alive(self, calls: GenerationCalls, number: int, description: Mapping[str, Any]) -> None:
        kinds = [field["type"] for field in description["key"]]
        while True:
            await asyncio.sleep(_interval_s(description))
            with suppress(TablesideError):
                await self._run(calls.keep_alive(number, kinds))

    def _generation(self, number: int) -> Any:
        raise NotImplementedError


KEEP_ALIVE_MAX_S = 60.0
"""The maximum time between two requests that keep a loading generation from being removed as idle, in seconds."""


def require_records(table: str, written: int, *, allow_empty: bool) -> None:
    """Raise `ValueError` if a table would be empty after its replacement."""
    if not written and not allow_empty:
        raise ValueError(f"table {table}: no record was written: set allow_empty if the table is to be empty")


def _handled(failure: LoadError, on_error: HandleFailures | None) -> int:
    """Return the number of records that were written. Raise failures that are not handled, or that end the load."""
    for _, error in failure.failures:
        if isinstance(error, GenerationNotFound | GenerationSealed):
            raise error from failure
    if on_error is None or ends_load(failure.failures):
        raise failure
    on_error(failure.failures)
    return failure.written


def _interval_s(description: Mapping[str, Any]) -> float:
    return min(KEEP_ALIVE_MAX_S, float(description["policies"]["generations_idle_s"]) / 4)


@contextmanager
def _repeated(request: Callable[[], None], interval_s: float) -> Iterator[None]:
    """Send a request at intervals during the block, in a thread. Its errors are ignored."""
    ended = threading.Event()

    def send_until_end() -> None:
        while not ended.wait(interval_s):
            with suppress(TablesideError):
                request()

    thread = threading.Thread(target=send_until_end, name="tableside-keep-alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
