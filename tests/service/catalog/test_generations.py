"""Tables whose whole content is replaced, by two processes that share a store. Time is virtual."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from support.virtual_time import in_virtual_time, now
from tableside.catalog import Catalog, CatalogMetrics, Environment, Generation, control_table, generations, table_entry
from tableside.catalog.control_table import CONTROL, KEY, STALE_S
from tableside.core import (
    NO_DEADLINE,
    Budget,
    Get,
    Operation,
    Outcome,
    Page,
    Put,
    Record,
    Scan,
    Store,
    StoreUnavailable,
    TableError,
    TableSpec,
    Throttled,
    Written,
)
from tableside.core.errors import (
    GenerationNotFound,
    GenerationSealed,
    InvalidOperation,
    PreconditionFailed,
    TooLarge,
    Unsupported,
)
from tableside.core.store import Policy
from tableside.settings import Settings, validate
from tableside.stores.memory import MemoryBackend

SWITCHED_S = 2.0
"""A process that has followed no change for so long must read the control table before it answers."""


class Remote(Policy):
    """A store at the other end of a network: calls take a while."""

    def __init__(self, inner: Store, backend: "RemoteBackend") -> None:
        super().__init__(inner)
        self._backend = backend

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        await self._backend.pause()
        outcomes = await super().apply(operations, budget)
        await self._backend.pause()
        return outcomes

    async def scan(self, scan: Scan) -> Page:
        await self._backend.pause()
        return await super().scan(scan)

    async def drop(self) -> None:
        await self._inner.drop()  # type: ignore[attr-defined]


class RemoteBackend(MemoryBackend):
    """A server that several processes share: records in memory, reached with random delays."""

    single_process = False

    def __init__(self, seed: int = 0, delay_max_s: float = 0.1) -> None:
        super().__init__()
        self.hangs = asyncio.Event()
        self.hangs.set()
        self.delay_max_s = delay_max_s
        self._dice = random.Random(seed)

    async def pause(self) -> None:
        await self.hangs.wait()
        await asyncio.sleep(self._dice.uniform(0, self.delay_max_s))

    async def store(self, spec: TableSpec) -> Any:
        await self.pause()
        return Remote(await super().store(spec), self)

    async def close(self) -> None:
        """Keep the records: another process may use them."""

    @property
    def names(self) -> set[str]:
        """The names of the tables with records."""
        return {name for name, store in self._tables.items() if store._records} - {CONTROL}

    async def write_control(self, text: bytes) -> None:
        store = await MemoryBackend.store(self, TableSpec(CONTROL))
        [outcome] = await store.apply([Put(KEY, text)])
        assert isinstance(outcome, Written)


class Embedded(RemoteBackend):
    """The same with a single process."""

    single_process = True


def configured(table: dict[str, Any] | None = None, **top: Any) -> Settings:
    tables = {"t": {"store": "s", "generations": True, **(table or {})}}
    return validate({"stores": {"s": {"kind": "memory"}}, "tables": tables, **top})


@asynccontextmanager
async def process(backend: MemoryBackend, settings: Settings | None = None) -> AsyncIterator[Catalog]:
    catalog = Catalog(settings or configured(), {"s": backend}, Environment(CatalogMetrics(CollectorRegistry())))
    await catalog._open_tables()
    await catalog._find_tables()
    following = asyncio.create_task(catalog.follow_generations())
    try:
        yield catalog
    finally:
        following.cancel()
        await asyncio.wait([following])
        await catalog.close()


async def put(catalog: Catalog, name: str, value: int, keys: Sequence[str] = ("a",)) -> None:
    """Write records as the endpoint of batches does."""
    table = await catalog.table_to_write(name)
    if (sealed := catalog.sealed(name)) is not None:
        raise sealed
    for outcome in await table.batch([Put(key, b"%d" % value) for key in keys]):
        if isinstance(outcome, TableError):
            raise outcome


async def get(catalog: Catalog, name: str, keys: Sequence[str] = ("a",)) -> list[int | None]:
    outcomes = await (await catalog.table(name)).batch([Get(key) for key in keys])
    assert {type(one) for one in outcomes} <= {type(None), Record}, outcomes
    return [int(one.value) if isinstance(one, Record) else None for one in outcomes]


async def replaced(catalog: Catalog, value: int, keys: Sequence[str] = ("a",)) -> int:
    of_table = await catalog.generations("t")
    created = await of_table.create()
    await put(catalog, f"t@{created.number}", value, keys)
    await of_table.activate(created.number)
    return created.number


# A naive model of one table's generations, and random sequences


class Naive:
    """What a caller may expect of a table with generations."""

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.contents: dict[int, dict[str, int]] = {1: {}}
        self.loading: set[int] = set()
        self.current = 1
        self.last = 1
        self.earlier: list[int] = []

    def create(self) -> int:
        self.last += 1
        self.contents[self.last] = {}
        self.loading.add(self.last)
        return self.last

    def activate(self, number: int) -> None:
        if number == self.current:
            return
        self.earlier = [one for one in [*self.earlier, self.current] if one != number]
        self.earlier = self.earlier[len(self.earlier) - min(self.kept, len(self.earlier)) :]
        self.loading = {one for one in self.loading if one > number}
        self.current = number
        self._forget()

    def remove(self, number: int) -> None:
        self.loading.discard(number)
        self.earlier = [one for one in self.earlier if one != number]
        self._forget()

    def _forget(self) -> None:
        staying = {self.current, *self.loading, *self.earlier}
        self.contents = {number: kept for number, kept in self.contents.items() if number in staying}

    def written(self, number: int | None, key: str, value: int) -> type[Exception] | None:
        """Write a record by a number or by the table's name. Return the type of the error."""
        if number is None:
            self.contents[self.current][key] = value
        elif number not in self.contents:
            return GenerationNotFound
        elif number not in self.loading:
            return GenerationSealed
        else:
            self.contents[number][key] = value
        return None


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("backend_type", [RemoteBackend, Embedded])
@in_virtual_time
async def test_random_changes_agree_with_a_naive_model_in_every_process(
    backend_type: type[RemoteBackend], seed: int
) -> None:
    dice = random.Random(seed)
    backend, kept = backend_type(seed), seed % 3
    settings = configured({"generations_kept": kept, **({"cache": CACHE} if backend.single_process else {})})
    naive = Naive(kept)
    async with contextlib.AsyncExitStack() as stack:
        count = 1 if backend.single_process else 2
        processes = [await stack.enter_async_context(process(backend, settings)) for _ in range(count)]
        for step in range(80):
            catalog = dice.choice(processes)
            of_table, number = await catalog.generations("t"), dice.randint(1, naive.last + 1)
            match dice.choice(["create", "activate", "activate", "remove", "put", "put", "write", "write", "rest"]):
                case "create" if len(naive.loading) < generations.LOADING_MAX:
                    assert (await of_table.create()).number == naive.create()
                case "activate":
                    expected = dice.choice([None, naive.current])
                    if number not in naive.contents:
                        with pytest.raises(GenerationNotFound):
                            await of_table.activate(number, expected)
                    else:
                        assert (await of_table.activate(number, expected)).number == number
                        naive.activate(number)
                case "remove" if number == naive.current:
                    with pytest.raises(PreconditionFailed):
                        await of_table.remove(number)
                case "remove":
                    await of_table.remove(number)
                    naive.remove(number)
                    await asyncio.sleep(SWITCHED_S)  # a removal is not acknowledged by every process
                case "put":
                    await put(catalog, "t", step)
                    naive.written(None, "a", step)
                case "write":
                    key = dice.choice("abc")
                    if (error := naive.written(number, key, step)) is not None:
                        with pytest.raises(error):
                            await put(catalog, f"t@{number}", step, [key])
                    else:
                        await put(catalog, f"t@{number}", step, [key])
                case "rest":
                    await asyncio.sleep(dice.choice([0.5, 5, 30]))
            await agree(dice.choice(processes), naive)
        await asyncio.sleep(60)
        assert backend.names == {stored(number) for number, content in naive.contents.items() if content}


CACHE = {"records_max": 100, "ttl_s": 3600, "absent_ttl_s": 3600}


def stored(number: int) -> str:
    return "t" if number == 1 else f"t_ts_{number}"


async def agree(catalog: Catalog, naive: Naive) -> None:
    """Check that a process has the contents of the model, in every generation and by the table's name."""
    for number in range(1, naive.last + 2):
        if number in naive.contents:
            assert await get(catalog, f"t@{number}", "abc") == [naive.contents[number].get(key) for key in "abc"]
        else:
            with pytest.raises(GenerationNotFound):
                await get(catalog, f"t@{number}")
    assert await get(catalog, "t", "abc") == [naive.contents[naive.current].get(key) for key in "abc"]
    listed = [(one.number, one.state) for one, _ in await (await catalog.generations("t")).listed()]
    states = dict.fromkeys(naive.loading, "loading") | dict.fromkeys(naive.earlier, "kept") | {naive.current: "current"}
    assert listed == sorted(states.items())


# Switching


@in_virtual_time
async def test_a_process_that_could_not_read_for_a_while_reads_before_it_answers() -> None:
    backend = RemoteBackend(delay_max_s=0.01)
    async with process(backend) as first, process(backend) as second:
        await put(first, "t", 1)
        assert await get(second, "t") == [1]
        number = await replaced(first, 2)
        second._controls["s"]._keep({}, None, now() - STALE_S - 0.1)  # as if the process had been stopped
        assert await get(second, "t") == [2]
        with pytest.raises(GenerationSealed):
            await put(second, f"t@{number}", 3)


@in_virtual_time
async def test_a_new_generation_is_known_in_every_process_at_once() -> None:
    backend = RemoteBackend()
    settings = configured({}, auto_create=True, default_store="s")
    async with process(backend, settings) as first, process(backend, settings) as second:
        for name in ("t", "made-on-first-write"):
            created = await (await first.generations(name, create=True)).create(request="job")
            await put(second, f"{name}@{created.number}", 5)
            assert await get(first, f"{name}@{created.number}") == [5]
            again = await (await second.generations(name, create=True)).create(request="job")
            assert again.number == created.number
            await (await second.generations(name)).activate(created.number)
            assert await get(first, name) == [5]
    async with process(backend, settings) as third:
        assert await get(third, "made-on-first-write") == [5]
        assert sorted(entry.spec.name for entry in third.entries()) == ["made-on-first-write", "t"]


@in_virtual_time
async def test_processes_that_change_generations_at_the_same_time_all_succeed() -> None:
    backend = RemoteBackend()
    async with process(backend) as first, process(backend) as second:
        tables = [await one.generations("t") for one in (first, second)]
        created = await asyncio.gather(*(one.create() for one in tables * 4))
        assert sorted(one.number for one in created) == [*range(2, 10)]
        with pytest.raises(InvalidOperation, match="8 generations of the table load already"):
            await tables[0].create()
        assert [one.number for one in await asyncio.gather(*(one.activate(9, expected=1) for one in tables))] == [9, 9]
        with pytest.raises(PreconditionFailed, match="the current generation is 9, not 7"):
            await tables[0].activate(1, expected=7)


# Removal


@pytest.fixture
def virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def now_ms() -> int:
        return int(1000 * now())

    for module in (table_entry, control_table):
        monkeypatch.setattr(module, "now_ms", now_ms)


@pytest.mark.usefixtures("virtual_clock")
@pytest.mark.parametrize("pause_s", [0.4, 1.7])
@in_virtual_time
async def test_a_generation_that_is_written_slowly_stays_and_an_idle_one_leaves_nothing(pause_s: float) -> None:
    backend, settings = RemoteBackend(), configured({"generations_idle_s": 2})
    async with process(backend, settings) as first, process(backend, settings) as second:
        number = (await (await first.generations("t")).create()).number
        for value in range(30):
            await put(first, f"t@{number}", value)
            await asyncio.sleep(pause_s)
            assert await get(second, f"t@{number}") == [value]
        for _ in range(12):  # reads and refused writes do not keep it
            await asyncio.sleep(0.5)
            with contextlib.suppress(GenerationNotFound):
                await get(second, f"t@{number}")
        with pytest.raises(GenerationNotFound):
            await get(second, f"t@{number}")
        assert backend.names == {f"t_ts_{number}"}  # a request that began before may still use it
        await asyncio.sleep(20)
        assert backend.names == set()
        assert [one.number for one, _ in await (await second.generations("t")).listed()] == [1]


@pytest.mark.usefixtures("virtual_clock")
@in_virtual_time
async def test_records_stay_until_no_request_can_use_them() -> None:
    backend, settings = RemoteBackend(delay_max_s=0), configured({"generations_kept": 0, "deadline_s": 5})
    async with process(backend, settings) as catalog:
        await put(catalog, "t", 1)
        table = await catalog.table("t")
        await replaced(catalog, 2)
        await asyncio.sleep(4.5)
        assert isinstance(await table.one(Get("a")), Record)
        await asyncio.sleep(10)
        assert backend.names == {"t_ts_2"}


@in_virtual_time
async def test_what_another_process_left_behind_is_removed() -> None:
    backend = RemoteBackend()
    async with process(backend) as ended:
        number = (await (await ended.generations("t")).create()).number
        await put(ended, f"t@{number}", 1)
        await (await ended.generations("t")).remove(number)
    assert backend.names == {"t_ts_2"}
    async with process(backend):
        await asyncio.sleep(20)
        assert backend.names == set()


@in_virtual_time
async def test_a_start_removes_what_loaded_in_a_store_of_a_single_process_even_if_it_cannot_write() -> None:
    """Its last writes may be lost, so it must not be continued."""
    backend = Embedded()
    async with process(backend) as ended:
        await put(ended, "t", 1)
        number = (await (await ended.generations("t")).create(request="job")).number
        await put(ended, f"t@{number}", 2)
    async with process(backend) as started:
        with pytest.raises(GenerationNotFound):
            await put(started, f"t@{number}", 3)
        assert (await (await started.generations("t")).create(request="job")).number == number + 1
        assert await get(started, "t") == [1]


# Failures


@pytest.mark.parametrize(
    "text",
    [
        b"{}[",
        b'{"t": 7}',
        b'{"t": {"every": [], "last": 1}}',
        b'{"t": {"every": [{"number": 1, "state": "lost"}], "last": 1}}',
        b'{"t": {"every": [{"number": 1, "state": "current"}, {"number": 1, "state": "kept"}], "last": 1}}',
        b'{"t": {"every": [{"number": 1, "state": "current"}, {"number": 2, "state": "current"}], "last": 2}}',
    ],
)
@in_virtual_time
async def test_a_damaged_record_of_generations_is_a_clear_error_until_it_is_repaired(text: bytes) -> None:
    backend = RemoteBackend()
    await backend.write_control(text)
    async with process(backend) as catalog:
        for ask in (catalog.table, catalog.table_to_write, catalog.table_or_spec):
            with pytest.raises(StoreUnavailable, match="the generations of the store's tables is damaged"):
                await ask("t")
        await backend.write_control(b"{}")
        await put(catalog, "t", 1)
        assert await get(catalog, "t") == [1]


@pytest.mark.parametrize("backend_type", [RemoteBackend, Embedded])
@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.05, 0.1, 0.15, 0.2])
@in_virtual_time
async def test_an_activation_that_is_cancelled_is_done_or_not_in_every_process(
    after_s: float, backend_type: type[RemoteBackend]
) -> None:
    backend = backend_type(delay_max_s=0.1)
    async with process(backend) as catalog:
        number = (await (await catalog.generations("t")).create()).number
        await put(catalog, "t", 1)
        await put(catalog, f"t@{number}", 2)
        activation = asyncio.create_task((await catalog.generations("t")).activate(number))
        await asyncio.sleep(after_s)
        activation.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await activation
        await asyncio.sleep(SWITCHED_S)
        found = await get(catalog, "t")
        async with process(backend) as other:
            assert await get(other, "t") == found


@in_virtual_time
async def test_a_table_of_something_else_under_the_next_name_is_neither_used_nor_removed() -> None:
    backend = RemoteBackend()
    foreign = await MemoryBackend.store(backend, TableSpec("t_ts_2"))
    await foreign.apply([Put("a", b"7")])
    async with process(backend) as catalog:
        with pytest.raises(InvalidOperation, match="other records under the name 't_ts_2', which is skipped"):
            await (await catalog.generations("t")).create()
        assert await replaced(catalog, 3) == 3
        await asyncio.sleep(60)
        assert await get(catalog, "t") == [3]
        assert backend.names == {"t_ts_2", "t_ts_3"}


@in_virtual_time
async def test_a_generation_that_is_activated_while_it_opens_is_opened_again() -> None:
    """A store may write a generation that loads less durably."""

    class Slow(RemoteBackend):
        opening_s = 0.0

        async def store(self, spec: TableSpec) -> Any:
            found = await super().store(spec)
            await asyncio.sleep(self.opening_s if spec.loading else 0)
            return found

    backend = Slow(delay_max_s=0.01)
    async with process(backend) as first, process(backend) as second:
        number = (await (await first.generations("t")).create()).number
        backend.opening_s = 3
        opening = asyncio.create_task(second.table(f"t@{number}"))
        await asyncio.sleep(0.5)
        await (await first.generations("t")).activate(number)
        await asyncio.sleep(0.1)
        assert second.entry("t").spec.generation == number
        assert not (await opening).spec.loading
        assert not (await second.table("t")).spec.loading


@in_virtual_time
async def test_writes_in_flight_do_not_stay_in_the_cache_of_a_generation() -> None:
    """A generation that becomes current again has a new cache, while writes through the old one may still run."""
    backend = Embedded(delay_max_s=0)
    async with process(backend, configured({"cache": CACHE, "deadline_s": 60})) as catalog:
        await put(catalog, "t", 1)
        of_table = await catalog.generations("t")
        number = (await of_table.create()).number
        backend.delay_max_s = 5
        writing = asyncio.create_task(put(catalog, "t", 2))
        await asyncio.sleep(0)
        backend.delay_max_s = 0
        await of_table.activate(number)
        await of_table.activate(1)
        assert await get(catalog, "t") == [1]
        await writing
        assert await get(catalog, "t") == [2]


# Settings


@in_virtual_time
async def test_a_table_that_a_reload_adds_follows_the_changes_of_other_processes() -> None:
    backend, plain = RemoteBackend(), validate({"stores": {"s": {"kind": "memory"}}})
    async with process(backend, plain) as first, process(backend) as second:
        await first.change(configured())
        await put(first, "t", 1)
        await replaced(second, 2)
        assert await get(first, "t") == [2]


@in_virtual_time
async def test_a_pointer_counts_whatever_the_settings_say() -> None:
    backend = RemoteBackend()
    async with process(backend) as catalog:
        await put(catalog, "t", 1)
        number = await replaced(catalog, 2)
    async with process(backend, configured({"generations": False})) as catalog:
        assert await get(catalog, "t") == [2]
        assert await get(catalog, "t@1") == [1]
        with pytest.raises(GenerationSealed):
            await put(catalog, f"t@{number}", 3)
        for change in ("create", "listed"):
            with pytest.raises(Unsupported, match="needs `generations: true`"):
                await getattr(await catalog.generations("t"), change)()


@in_virtual_time
async def test_a_replica_with_older_settings_learns_of_the_first_pointer() -> None:
    """While settings are rolled out, some replicas do not have `generations: true` yet."""
    backend = RemoteBackend()
    async with process(backend) as newer, process(backend, configured({"generations": False})) as older:
        await put(older, "t", 1)
        await replaced(newer, 2)
        assert await get(older, "t") == [2]


@in_virtual_time
async def test_rate_limits_are_shared_by_the_generations() -> None:
    limited = {"write": {"rate_per_s": 1, "burst": 3}, "deadline_s": 0.5}
    async with process(Embedded(delay_max_s=0), configured(limited)) as catalog:
        number = (await (await catalog.generations("t")).create()).number
        await put(catalog, "t", 1)
        await put(catalog, f"t@{number}", 1, "ab")
        for name in ("t", f"t@{number}"):
            with pytest.raises(Throttled):
                await put(catalog, name, 2)
        await asyncio.sleep(1)
        await (await catalog.generations("t")).activate(number)
        await put(catalog, "t", 3)
        with pytest.raises(Throttled):
            await put(catalog, "t", 4)


@in_virtual_time
async def test_notes_and_the_record_of_all_generations_have_limits() -> None:
    settings = configured({}, auto_create=True, default_store="s")
    async with process(RemoteBackend(delay_max_s=0), settings) as catalog:
        of_table = await catalog.generations("t")
        with pytest.raises(InvalidOperation, match="a note has at most 1000 characters"):
            await of_table.create("x" * 1001)
        note = "\N{GRINNING FACE}" * 1000
        for index in range(60):
            await (await catalog.generations(f"u{index}", create=True)).create(note)
        tables = [await catalog.generations(f"u{index}", create=True) for index in range(40)]
        created = await asyncio.gather(*(one.create(note) for one in tables), return_exceptions=True)
        assert {type(one) for one in created} == {Generation, TooLarge}
        await (await catalog.generations("u3")).activate(2)
        await (await catalog.generations("u4")).remove(2)


@in_virtual_time
async def test_auto_create_does_not_take_names_of_generations() -> None:
    backend, settings = RemoteBackend(), configured({}, auto_create=True, default_store="s")
    async with process(backend, settings) as catalog:
        await put(catalog, "events_ts_2024", 1)  # a name like any other, as long as `events` has no such generation
        await replaced(catalog, 2)
        with pytest.raises(TableError):
            await put(catalog, "t_ts_2", 3)
        with pytest.raises(TableError):
            await put(catalog, "u@2", 3)
        assert await get(catalog, "t") == [2]
    async with process(backend, settings) as catalog:
        assert [entry.spec.name for entry in catalog.entries()] == ["events_ts_2024", "t"]
