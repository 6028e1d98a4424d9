"""A table of the catalog: the entry of each of its generations in this process, and the requests that change them."""

import asyncio
import contextlib
import logging
import time
from functools import partial
from typing import Any
from uuid import uuid4

from ..auth import COMPANION
from ..core import (
    Estimate,
    InvalidOperation,
    StoreUnavailable,
    TableError,
    TableNotFound,
    TableSpec,
    Unsupported,
    now_ms,
)
from ..core.errors import GenerationNotFound, GenerationSealed
from ..settings import Fault, SettingsError, TableSettings
from .control_table import STALE_S, ControlTable, Step
from .entry import CatalogEntry
from .generations import NOTE_CHARACTERS_MAX, Generation, Generations
from .stack import Limits

log = logging.getLogger(__name__)

RELOAD_OPEN_MAX_S = 2.0
"""How long a reload waits for its new tables. Slower ones open when they are first used."""

RUNS_IN_STORE = "_ts_runs"
"""The suffix of a companion's name in the store."""

RUNS_MEMORY_S = 400 * 86_400.0
"""How long a companion remembers a job after its last write."""

DROP_AFTER_S = 2.0
"""How long after the deadline of any request a removed generation stays, because other processes may still use it."""

IDLE_MARGIN_MS = 2000
"""How much longer a generation stays that is not written: the process that writes it notes that once a second."""


class TableEntry(CatalogEntry):
    """A table, whose whole content can be replaced. As an entry, it is the first generation.

    The parameters are those of `CatalogEntry`, and the control table of the store. A partitioned table has no other
    generation. `runs` is the entry of the table's companion.
    """

    def __init__(self, control: ControlTable, spec: TableSpec, *parts: Any) -> None:
        super().__init__(spec, *parts)
        self._control = control
        self._name = spec.first_name
        self._serving: CatalogEntry = self
        self._others: dict[int, CatalogEntry] = {}
        self._seen: Generations | None = None
        self._written_ms: dict[int, int] = {}
        self._removed_at: dict[int, float] = {}
        self._dropping: asyncio.Task[None] | None = None
        self._closing = set[asyncio.Task[None]]()
        self._runs: CatalogEntry | None = None

    @property
    def runs(self) -> "CatalogEntry":
        """Return the entry of the companion: an ordinary table with string keys in the same store."""
        if self._runs is None:
            spec = TableSpec(
                f"{self.spec.name}@{COMPANION}",
                stored_as=self.spec.name_in_store + RUNS_IN_STORE,
                ttl_s=RUNS_MEMORY_S,
                create=self.spec.create,
                partitions=self.spec.partitions,
                value_bytes_max=self.spec.value_bytes_max,
            )
            settings = TableSettings(store=self.store.name, deadline_s=self.settings.deadline_s)
            self._runs = CatalogEntry(spec, settings, self.store)
        return self._runs

    @property
    def known(self) -> Generations:
        """The generations, as far as this process knows them."""
        return self._control.of(self._name)

    @property
    def shown(self) -> CatalogEntry:
        """The entry of the current generation, as far as this process knows it."""
        self._see()
        return self._serving

    async def current(self) -> CatalogEntry:
        """Return the entry of the current generation. Raise a TableError if it cannot be known now."""
        return self.known_now(None) or await self.find(None)

    def known_now(self, number: int | None) -> CatalogEntry | None:
        """Return the entry of a generation, or None if what this process knows is stale or has no such generation."""
        known = None if self._closed else self._control.known(self._name)
        if known is None:
            return None
        serving = self._serving if known is self._seen else self.shown
        if number is None or number == serving.spec.generation:
            return serving
        found = next((one for one in known.present if one.number == number), None)
        return None if found is None else self._entry(found)

    async def find(self, number: int | None) -> CatalogEntry:
        """Return the entry of a generation, by default of the current one.

        Raise GenerationNotFound, or StoreUnavailable.
        """
        if number is not None and self.spec.partitions:
            raise GenerationNotFound(f"the table has no generation {number}")
        try:
            async with asyncio.timeout(self.settings.deadline_s):
                await self._control.refresh()
                if number is not None and self.known_now(number) is None:
                    await self._control.refresh(0)  # Another process may just have created it.
        except TimeoutError:
            raise StoreUnavailable(f"table {self.spec.name!r}: its store does not answer") from None
        self._check_not_closed()
        return self.shown if number is None else self.known_entry(number)

    @property
    def has_generations(self) -> bool:
        """Whether the table may have more than its first generation: a pointer is obeyed whatever the settings say."""
        return not self.spec.partitions and (self.settings.generations or self._name in self._control.tables)

    def known_entry(self, number: int) -> CatalogEntry:
        """Return the entry of a generation, as far as this process knows it. Raise GenerationNotFound."""
        self._see()
        return self._entry(self.known.find(number))

    def sealed(self, number: int) -> GenerationSealed | None:
        """Note that a generation is written, or return the error if it does not load."""
        state = self.known.find(number).state
        if state != "loading":
            return GenerationSealed(f"generation {number} is {state}: by its number only one that loads is written")
        self._written_ms[number] = now_ms()
        return None

    async def listed(self) -> list[tuple[Generation, Estimate]]:
        """Return the generations that can be read, and about the size of each."""
        await self._check_supported()
        await self._control.refresh(0)
        sizes = dict.fromkeys(self.known.present, Estimate())
        for generation in sizes:
            with contextlib.suppress(TableError):
                sizes[generation] = await self._entry(generation).estimate()
        return [*sizes.items()]

    async def create(self, note: str | None = None, request: str | None = None) -> Generation:
        """Return a new, empty generation, which loads, or the one that an earlier call with this `request` returned."""
        await self._check_supported()
        if note is not None and len(note) > NOTE_CHARACTERS_MAX:
            raise InvalidOperation(f"a note has at most {NOTE_CHARACTERS_MAX} characters")
        request = request or str(uuid4())
        key = (await (await self.current()).opened()).spec.key
        await self._check_next_is_unused(request)
        generations = await self._change(lambda known: known.created(now_ms(), note, request))
        generation = generations.of_request(request)
        assert generation is not None
        try:
            await self._entry(generation).created(key)
        except TableError as error:
            # After a final error the store has nothing of this generation. Another name there must not be dropped.
            number, final = generation.number, not error.retriable
            await self._change(
                lambda known: known.without(number).forgotten(number) if final else known.without(number), "deleted"
            )
            raise
        return generation

    async def _check_next_is_unused(self, request: str) -> None:
        """Skip the next number and raise InvalidOperation if the store has records of something else under its name."""
        await self._control.refresh(0)
        known, number = self.known, self.known.last + 1
        next_entry = self.of_generation(number, loading=True)
        if known.of_request(request) is not None or await next_entry.is_empty():
            return
        await self._control.refresh(0)
        if self.known.last < number:  # else another process has just created and loaded it
            await self._change(lambda known: known.skipped(number))
            name = next_entry.spec.name_in_store
            raise InvalidOperation(f"the store has other records under the name {name!r}, which is skipped: try again")

    async def activate(self, number: int, expected: int | None = None) -> Generation:
        """Make a generation current, and return when every process uses it.

        Raise GenerationNotFound, or PreconditionFailed if another one than `expected` is current.
        """
        await self._check_supported()
        try:
            await (await self.find(number)).opened()
        except TableNotFound:
            detail = f"generation {number} was not created completely, or removed in the store"
            raise GenerationNotFound(detail) from None
        kept = self.settings.generations_kept
        generations = await self._change(lambda known: known.activated(number, now_ms(), kept, expected), "replaced")
        self._see()
        if not self._control.alone:
            await asyncio.sleep(STALE_S)  # until every process knows the change
        return generations.find(number)

    async def remove(self, number: int) -> None:
        """Remove a generation, if it is there. Raise PreconditionFailed if it is the current one."""
        await self._check_supported()
        await self._change(lambda known: known.without(number), "deleted")

    async def maintain(self) -> None:
        """Remove what has loaded without a write for too long, and the records of what was removed."""
        if self._closed or self._name not in self._control.tables:
            return
        idle_ms, now = int(1000 * self.settings.generations_idle_s), now_ms()
        loading = self.known.in_state("loading")
        self._written_ms = written_ms = {one.number: self._written_ms.get(one.number, 0) for one in loading}
        if any(one.written_ms < min(written_ms[one.number], now - idle_ms // 4) for one in loading):
            await self._change(lambda known: known.written(written_ms))
        written_before = now - idle_ms - IDLE_MARGIN_MS
        if self.known.without_idle(written_before) != self.known:
            await self._change(lambda known: known.without_idle(written_before), "idle")
        self._see()
        unused_before = time.monotonic() - self.settings.deadline_s - DROP_AFTER_S
        unused = [number for number, removed_at in self._removed_at.items() if removed_at < unused_before]
        if unused and (self._dropping is None or self._dropping.done()):
            self._dropping = asyncio.create_task(self._drop(unused))

    def change(self, settings: TableSettings, limits: Limits) -> None:
        """Put other policies around each generation, with the same limits for all."""
        super().change(settings, limits)
        for entry in self._others.values():
            entry.change(settings, limits)

    def disable_cache_until(self, previous_closed: asyncio.Future[Any]) -> None:
        """Suspend the cache of each generation until a previous table with the same records is closed."""
        super().disable_cache_until(previous_closed)
        for entry in self._others.values():
            entry.disable_cache_until(previous_closed)

    def sample(self) -> None:
        """Set the gauges of the generations, if the table ever had a second one."""
        if self._name in self._control.tables:
            self.store.environment.metrics.show_generations(self.spec.name, self.known, now_ms())

    async def close(self) -> None:
        """Wait for the operations in flight in every generation, and close their policies."""
        self._closed = True
        if self._name in self._control.tables:
            self.store.environment.metrics.show_generations(self.spec.name, None)
        if self._dropping is not None:
            self._dropping.cancel()
            await asyncio.wait([self._dropping])
        others = [*self._others.values(), *([] if self._runs is None else [self._runs])]
        await asyncio.gather(super().close(), *(entry.close() for entry in others), *self._closing)

    async def _change(self, step: Step, reason: str = "") -> Generations:
        """Change the generations. Count and log what is activated, and what is removed with this reason."""
        before, after = await self._control.change(self._name, step)
        name, metrics = self.spec.name, self.store.environment.metrics
        if after.current.number != before.current.number:
            metrics.activations.labels(name).inc()
            log.info("table %s: generation %d is current, after %d", name, after.current.number, before.current.number)
        for number in after.removed_since(before):
            metrics.removals.labels(name, reason).inc()
            log.info("table %s: generation %d is removed: %s", name, number, reason)
        return after

    async def _check_supported(self) -> None:
        if not self.settings.generations:
            raise Unsupported("generations: the configuration of the table needs `generations: true`")
        table = await (await self.current()).opened()
        if not table.capabilities.generations:
            raise Unsupported("generations: the table's store, or its layout there, has none")

    def _see(self) -> None:
        """If the generations have changed, close the entries that are no longer used."""
        if (known := self.known) is self._seen:
            return
        self._seen = known
        for number in self._others.keys() - {one.number for one in known.present}:
            closing = asyncio.create_task(self._others.pop(number).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        serving = self._entry(known.current)
        if serving is not self._serving:
            self._serving.release()
            self._serving = serving
        now = time.monotonic()
        self._removed_at = {one.number: self._removed_at.get(one.number, now) for one in known.in_state("removed")}

    def _entry(self, generation: Generation) -> CatalogEntry:
        number, loading = generation.number, generation.state == "loading"
        if number == 1:
            return self
        if number not in self._others:
            self._others[number] = self.of_generation(number, loading=loading)
        elif self._others[number].spec.loading and not loading:
            self._others[number].release()
        return self._others[number]

    async def _drop(self, numbers: list[int]) -> None:
        for number in numbers:
            entry = self if number == 1 else self.of_generation(number, loading=False)
            try:
                await entry.drop()
                await self._change(partial(Generations.forgotten, number=number))
            except TableError as error:
                log.warning("table %s: generation %d is removed later: %s", self._name, number, error.detail)
                self._removed_at[number] = time.monotonic()


async def open_or_defer(entry: TableEntry, timeout_s: float | None = None) -> None:
    """Open a table. If its store does not answer in time, log that and leave the opening to the first request."""
    later = "table %s will be opened when it is first used: %s"
    try:
        async with asyncio.timeout(timeout_s):
            await (await entry.current()).opened()
    except TimeoutError:
        log.warning(later, entry.spec.name, "its store has not answered yet")
    except StoreUnavailable as error:
        log.warning(later, entry.spec.name, error.detail)
    except TableError as error:
        raise type(error)(f"table {entry.spec.name!r}, in store {entry.store.name!r}: {error.detail}") from error


async def open_all_or_none(entries: list[TableEntry]) -> None:
    """Open the tables of changed settings, as far as their stores answer in time.

    If a store rejects a table, close all of them and raise SettingsError.
    """
    opening = [open_or_defer(entry, RELOAD_OPEN_MAX_S) for entry in entries]
    results = await asyncio.gather(*opening, return_exceptions=True)
    failures = [(entry, result) for entry, result in zip(entries, results, strict=True) if result is not None]
    if not failures:
        return
    await asyncio.gather(*(entry.close() for entry in entries))
    faults = []
    for entry, failure in failures:
        if not isinstance(failure, TableError):
            raise failure
        faults.append(Fault(f"tables.{entry.spec.name}", failure.detail))
    raise SettingsError(faults)
