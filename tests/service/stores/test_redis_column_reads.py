"""Redis reads a column of gets with the outcomes of the same gets in a list."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from contract import INTEGERS, put, read_both_ways, refused, written
from servers.redis import redis
from support.redis_tables import connected, own
from tableside.catalog import Table
from tableside.catalog.table_metrics import OperationMetrics, TableMetrics
from tableside.core import COLUMN_BYTES_MAX, NOT_READ, GetColumn, RecordColumns
from tableside.core.errors import RecordUnreadable, StoreUnavailable
from tableside.core.operations import Get, Record
from tableside.core.store import Store, TableSpec
from tableside.stores.redis.name_column import NameColumn

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def own_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server without keys that expire: records are read in columns only from such a database."""
    with redis(tmp_path_factory.mktemp("columns")) as url:
        yield url


@pytest.fixture
async def tool(own_url: str) -> AsyncIterator[Any]:
    """Another tool that works with the same server. Its keys are deleted after a test."""
    async with Redis.from_url(own_url) as client:
        yield client
        await client.flushall()


@pytest.fixture
async def store(own_url: str, tool: Any) -> AsyncIterator[Any]:
    async with connected(own_url) as backend:
        yield await backend.store(own(TableSpec("t")))


def name(store: Any, key: str) -> str:
    return f"{store.spec.options.prefix}{key}"


async def filled(store: Store, count: int) -> list[str]:
    """Put records, and return their keys."""
    keys = [f"{index * 7919 % count:04}" for index in range(count)]
    await store.apply([put(key, {"key": key}) for key in keys])
    return keys


async def test_plain_and_absent_records_are_in_columns(store: Any) -> None:
    keys = await filled(store, 200)
    keys[::3] = [f"absent {key}" for key in keys[::3]]
    found = await read_both_ways(store, keys)
    assert isinstance(found, RecordColumns)
    assert found.absent_count == len(keys[::3])
    for some in (keys[::3], keys[1::3], keys[:17], keys[:16], keys[1:2], []):
        found = await read_both_ways(store, some)
        assert isinstance(found, RecordColumns) == (len(some) > 16)


async def test_a_table_reads_columns_without_objects(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(column: object) -> None:
        raise AssertionError("objects are made")

    keys = await filled(store, 2500)
    table = Table(store, metrics=TableMetrics(OperationMetrics(CollectorRegistry()), "t"))
    with monkeypatch.context() as patch:
        for kind in (GetColumn, RecordColumns, NameColumn):
            patch.setattr(kind, "_make", fails)
        outcomes = await table.batch(GetColumn(pa.array(keys)))
    assert list(outcomes) == await store.apply(list(map(Get, keys)))


async def test_integer_keys(own_url: str, tool: Any) -> None:
    async with connected(own_url) as backend:
        store = await backend.store(own(TableSpec("t", INTEGERS)))
        keys = [-(2**63), 2**63 - 1, *range(-50, 50)]
        await store.apply([put(key, {"n": str(key)}) for key in keys[::2]])
        found = await read_both_ways(store, keys)
        assert isinstance(found, RecordColumns)
        assert [outcome is None for outcome in found] == [False, True] * 51


@pytest.mark.parametrize("prefix", ["plain:", "ü:", "🛫" * 50], ids=["ASCII", "not ASCII", "long"])
@pytest.mark.parametrize("letters", ["eee", "üee", "üüü"])
async def test_names_that_are_not_ascii(own_url: str, tool: Any, prefix: str, letters: str) -> None:
    async with connected(own_url) as backend:
        store = await backend.store(own(TableSpec("t"), prefix=prefix))
        keys = [f"{letters[index % 3]}{index:03}" for index in range(100)]
        await store.apply([put(key, {"key": key}) for key in keys[::2]])
        found = await read_both_ways(store, keys)
        assert isinstance(found, RecordColumns)
        assert [outcome is None for outcome in found] == [False, True] * 50


@pytest.mark.parametrize("count", [999, 1000, 1001, 2500])
async def test_columns_of_several_commands_are_joined(store: Any, tool: Any, count: int) -> None:
    keys = await filled(store, count)
    await tool.config_resetstat()
    found = await read_both_ways(store, keys)
    assert isinstance(found, RecordColumns)
    assert found.absent_count == 0
    statistics = await tool.info("commandstats")
    assert statistics["cmdstat_mget"]["calls"] == 2 * -(-count // 1000)
    assert "cmdstat_exists" not in statistics, "no record is absent"


@pytest.mark.parametrize("places", [[0], [50], [999, 1000], [1200], [0, 700, 1499]], ids=str)
async def test_a_key_of_another_type_fails_only_its_get(store: Any, tool: Any, places: list[int]) -> None:
    keys = await filled(store, 1500)
    keys[1::7] = [f"absent {key}" for key in keys[1::7]]
    before = list(await read_both_ways(store, keys))
    for place in places:
        await tool.delete(name(store, keys[place]))
        await tool.rpush(name(store, keys[place]), "element")
    found = await read_both_ways(store, keys)
    assert [place for place, outcome in enumerate(found) if isinstance(outcome, RecordUnreadable)] == places
    for place in places:
        assert refused(found[place], RecordUnreadable)
        before[place] = found[place]
    assert list(found) == before


@pytest.mark.parametrize("place", [0, 1200])
async def test_records_of_other_tools_are_among_others(store: Any, tool: Any, place: int) -> None:
    keys = await filled(store, 1500)
    before = list(await read_both_ways(store, keys))
    await tool.set(name(store, keys[place]), '{ "n" : 1.0 }\n')
    await tool.set(name(store, keys[place + 1]), "junk")
    await tool.set(name(store, keys[place + 2]), "")
    found = list(await read_both_ways(store, keys))
    reformatted = found[place]
    assert isinstance(reformatted, Record)
    assert reformatted.value == b'{"n":1}'
    assert refused(found[place + 1], RecordUnreadable)
    assert refused(found[place + 2], RecordUnreadable)
    assert [*found[:place], *found[place + 3 :]] == [*before[:place], *before[place + 3 :]]


@pytest.mark.parametrize("count", [50, 1500])
async def test_a_database_with_keys_that_expire_is_read_exactly(
    own_url: str, store: Any, tool: Any, count: int
) -> None:
    keys = await filled(store, count)
    await tool.set("of another tool", "1", ex=600)
    assert not isinstance(await read_both_ways(store, keys), RecordColumns)
    await written(store, put(keys[-1], {"n": 1}, ttl_s=600))
    async with connected(own_url) as backend:  # which does not know yet that keys expire
        other = await backend.store(store.spec)
        await tool.config_resetstat()
        found = await other.apply(GetColumn(pa.array(keys)))
        assert "cmdstat_exists" not in await tool.info("commandstats"), "the script has read all of them"
        assert [isinstance(outcome, Record) and outcome.expires_ms > 0 for outcome in found] == [False] * (
            count - 1
        ) + [True]
    assert (await read_both_ways(store, keys))[-1] == found[-1]
    await tool.persist(name(store, keys[-1]))
    await tool.delete("of another tool")
    async with connected(own_url) as backend:
        assert isinstance(await read_both_ways(await backend.store(store.spec), keys), RecordColumns)


@pytest.mark.parametrize("small", [0, 1500], ids=lambda count: f"{count} small ones before")
async def test_large_records_are_not_in_columns(store: Any, small: int) -> None:
    large = 30
    assert 2 * COLUMN_BYTES_MAX > large * 100_000 > COLUMN_BYTES_MAX
    keys = [*await filled(store, small), *[f"large {index}" for index in range(large)], "absent"]
    await store.apply([put(key, {"text": "x" * 100_000}) for key in keys[small:-1]])
    found = await read_both_ways(store, keys)
    assert not isinstance(found, RecordColumns)
    assert [outcome is None for outcome in found] == [False] * (len(keys) - 1) + [True]
    assert isinstance(await read_both_ways(store, keys[-20:]), RecordColumns)


async def test_after_records_beyond_the_limit_of_a_call_a_few_are_read(store: Any) -> None:
    small = await filled(store, 100)
    large = [f"large {index}" for index in range(40)]
    for key in large:
        await written(store, put(key, {"text": "x" * 2**20}))
    found = await store.apply(GetColumn(pa.array(large)))
    assert NOT_READ in found
    assert isinstance(found[0], Record)
    found = await store.apply(GetColumn(pa.array(small)))
    read = [outcome for outcome in found if outcome is not NOT_READ]
    assert 0 < len(read) < len(small) == len(found)
    assert read == (await store.apply(list(map(Get, small))))[: len(read)]
    for keys in (small, large, [*small, *large]):
        outcomes = await Table(store, deadline_s=60).batch(GetColumn(pa.array(keys)))
        assert {type(outcome) for outcome in outcomes} == {Record}
        assert len(outcomes) == len(keys)


async def test_a_repeated_key_has_an_outcome_at_each_position(store: Any) -> None:
    keys = (await filled(store, 40)) * 2 + ["absent"] * 2
    await read_both_ways(store, keys)
    gets = list(map(Get, keys))
    assert list(await Table(store).batch(GetColumn(pa.array(keys)))) == list(await Table(store).batch(gets))


async def test_a_closed_backend_fails_each_get(own_url: str) -> None:
    async with connected(own_url) as backend:
        store = await backend.store(own(TableSpec("t")))
        await backend.close()
        found = await store.apply(GetColumn(pa.array([f"{index}" for index in range(1500)])))
        assert [type(outcome) for outcome in found] == [StoreUnavailable] * 1500
