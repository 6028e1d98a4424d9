"""RocksDB reads a column of gets with the outcomes of the same gets in a list."""

import math
import threading
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from contract import INTEGERS, Time, described, put, read_both_ways, written
from service.stores.test_rocksdb import database, raw
from tableside.catalog import Table
from tableside.catalog.table_metrics import OperationMetrics, TableMetrics
from tableside.core import COLUMN_BYTES_MAX, NOT_READ, READ_BYTES_MAX, GetColumn, RecordColumns, value_bytes
from tableside.core.errors import RecordUnreadable, StoreUnavailable
from tableside.core.operations import Get, Operation, Outcome, Record, Token
from tableside.core.store import Policy, Store, TableSpec
from tableside.core.transitions import Stored
from tableside.stores.rocksdb import RocksdbBackend, reads
from tableside.stores.rocksdb.records import VERSION_END, pack, pack_plain, read_all, read_columns

NOW_MS = 1_700_000_000_000

versions = st.integers(0, 2**64 - 1)
values = st.sampled_from([b"{}", b'{"n":1}', '{"s":"ü"}'.encode(), b'{"text":"' + b"x" * 300 + b'"}'])
plain = st.builds(pack_plain, values, versions)
metadata = st.builds(
    lambda value, version, expires_ms, writers: pack(Stored(value, f"{version:016x}", expires_ms, writers)),
    values | st.none(),
    versions,
    st.sampled_from([0, 1, NOW_MS, NOW_MS + 1]),
    st.sampled_from([(), (("w", 1),), (("w", 1), ("ü", 2))]),
)
cut = st.builds(lambda record, length: record[:length], plain | metadata, st.integers(0, 20))
foreign = st.sampled_from([b"", b"{}", b'{ "n": 1}\n', b'{"n":', b"[1]", b"\x02" + bytes(20), b"\x01", b"\x01\0"])
SHORT = b"\x01\0abc"
"""The start of a record without all bytes of its version."""


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(st.lists(plain | st.none(), max_size=20), st.lists(plain | metadata | cut | foreign, max_size=2), st.randoms())
@example([pack_plain(b"{}", 2**64 - 1)], [SHORT], None)
@example([pack_plain(b"{}", 1), pack_plain(b"{}", 2)], [SHORT, b"\x01\0" + bytes(9)], None)
def test_records_in_columns_equal_records_read_one_by_one(
    usual: list[bytes | None], others: list[bytes], chance: Any
) -> None:
    raws = [*others, *usual]
    if chance is not None:
        chance.shuffle(raws)
    columns = read_columns(raws)
    if columns is None:
        assert others
        assert any(other[:2] != b"\x01\0" or len(other) < VERSION_END for other in others)
    else:
        assert described(list(columns)) == described(read_all(raws, NOW_MS))
        assert columns.absent_count == raws.count(None)
        for column in (columns.values, columns.etags):
            column.validate(full=True)


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[RocksdbBackend]:
    async with database(tmp_path) as opened:
        yield opened


@pytest.fixture
async def store(backend: RocksdbBackend) -> Store:
    return await backend.store(TableSpec("t"))


async def test_plain_and_absent_records_are_in_columns(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    keys = [f"{index * 7919 % 200:03}" for index in range(200)]
    await store.apply([put(key, {"key": key}) for key in keys[::2]])
    found = await read_both_ways(store, keys)
    assert isinstance(found, RecordColumns)
    assert found.absent_count == 100
    for some in (keys[::2], keys[1::2], keys[:17], keys[:16], keys[1:2]):
        found = await read_both_ways(store, some)
        assert isinstance(found, RecordColumns) == (len(some) > 1)
    assert list(await read_both_ways(store, [])) == []
    assert not caplog.records


async def test_a_table_reads_columns_without_objects(backend: RocksdbBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(column: object) -> None:
        raise AssertionError("objects are made")

    store = await backend.store(TableSpec("t"))
    await store.apply([put(f"{index}", {"n": index}) for index in range(0, 100, 2)])
    registry = CollectorRegistry()
    table = Table(store, metrics=TableMetrics(OperationMetrics(registry), "t"))
    gets = GetColumn(pa.array([f"{index}" for index in range(100)]))
    with monkeypatch.context() as patch:
        for kind in (GetColumn, RecordColumns):
            patch.setattr(kind, "_make", fails)
        outcomes = await table.batch(gets)
    assert list(outcomes) == await store.apply(list(gets))
    counts = [
        registry.get_sample_value("tableside_operations_total", {"table": "t", "operation": "get", "outcome": outcome})
        for outcome in ("found", "absent")
    ]
    assert counts == [50, 50]


async def test_integer_keys(backend: RocksdbBackend) -> None:
    store = await backend.store(TableSpec("t", INTEGERS))
    keys = [-(2**63), 2**63 - 1, *range(-50, 50)]
    await store.apply([put(key, {"n": str(key)}) for key in keys[::2]])
    found = await read_both_ways(store, keys)
    assert isinstance(found, RecordColumns)
    assert [outcome is None for outcome in found] == [False, True] * 51


async def test_a_repeated_key_has_an_outcome_at_each_position(store: Store) -> None:
    """A table calls its store with distinct keys."""
    called: list[list[Any]] = []

    class Recording(Policy):
        async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
            called.append([operation.key for operation in operations])
            return await self._inner.apply(operations, until)

    await store.apply([put("a", {"n": 1}), put("b", {"n": 2})])
    keys = ["a", "b", "absent", "a"] * 50
    found = await Table(Recording(store)).batch(GetColumn(pa.array(keys)))
    assert list(found) == await store.apply(list(map(Get, keys)))
    assert all(len({*some}) == len(some) for some in called)


@pytest.mark.parametrize("count", [999, 1000, 1001, 2500])
async def test_columns_of_several_turns_are_joined(store: Store, count: int) -> None:
    keys = [f"{index:04}" for index in range(count)]
    await store.apply([put(key, {"key": key}) for key in keys if int(key) % 3])
    found = await read_both_ways(store, keys)
    assert isinstance(found, RecordColumns)
    assert found.absent_count == len(keys[::3])


async def test_the_size_of_records_is_unknown_after_reopening(tmp_path: Path) -> None:
    keys = [f"{index:04}" for index in range(1500)]
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        await store.apply([put(key, {"key": key}) for key in keys[::2]])
        before = list(await read_both_ways(store, keys))
    async with database(tmp_path) as backend:
        found = await read_both_ways(await backend.store(TableSpec("t")), keys)
        assert isinstance(found, RecordColumns)
        assert list(found) == before


@pytest.mark.parametrize("small", [0, 10, 1500], ids=lambda count: f"{count} small ones before")
async def test_large_records_are_not_in_columns(store: Store, small: int) -> None:
    """Those of earlier turns were in columns."""
    large = 30
    assert 2 * COLUMN_BYTES_MAX > large * 100_000 > COLUMN_BYTES_MAX
    keys = [*[f"s{index:04}" for index in range(small)], *[f"t{index}" for index in range(large)], "absent"]
    await store.apply([put(key, {"text": "x" * (100_000 if key[0] == "t" else 10)}) for key in keys[:-1]])
    found = await read_both_ways(store, keys)
    assert not isinstance(found, RecordColumns)
    assert [outcome is None for outcome in found] == [False] * (len(keys) - 1) + [True]


async def test_records_beyond_the_limit_of_a_call_are_not_read(store: Store) -> None:
    keys = [f"{index:02}" for index in range(40)]
    for key in keys:
        await written(store, put(key, {"text": "x" * 500_000}))
    found = await read_both_ways(store, keys)
    assert [type(outcome) for outcome in found if outcome is not NOT_READ] == [Record] * (40 - found.count(NOT_READ))
    assert found.count(NOT_READ) > 0
    assert {type(outcome) for outcome in await Table(store).batch(GetColumn(pa.array(keys)))} == {Record}


async def test_large_records_are_copied_a_few_at_a_time(tmp_path: Path) -> None:
    keys = [f"{index:02}" for index in range(40)]
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        for key in keys:
            await written(store, put(key, {"text": "x" * 500_000}))
    async with database(tmp_path) as backend:  # The size of its records is unknown.
        store, gets = await backend.store(TableSpec("t")), GetColumn(pa.array(keys))
        tracemalloc.start()
        try:
            found = await store.apply(gets)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    size_bytes = value_bytes(found)
    assert READ_BYTES_MAX < size_bytes < peak_bytes < 1.5 * size_bytes


@pytest.mark.parametrize("place", [0, 500, 1200, 1499])
@pytest.mark.parametrize(
    "options", [{"ttl_s": 1000}, {"ttl_s": 1}, {"token": Token("w", 1)}], ids=["live", "expired", "writer"]
)
async def test_one_record_with_metadata_among_others(tmp_path: Path, place: int, options: dict[str, Any]) -> None:
    time = Time(real=False)
    async with database(tmp_path, time) as backend:
        store = await backend.store(TableSpec("t"))
        keys = [f"{index:04}" for index in range(1500)]
        await store.apply([put(key, {"key": key}) for key in keys if int(key) % 7])
        await written(store, put(keys[place], {"n": 1}, **options))
        await time.passes(1.0)
        found = (await read_both_ways(store, keys))[place]
        if options == {"ttl_s": 1}:
            assert found is None
        else:
            assert isinstance(found, Record)
            assert (found.value, found.expires_ms > 0) == (b'{"n":1}', "ttl_s" in options)


async def test_records_that_are_no_columns_are_decoded_on_a_reader_thread(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, threads = [str(number) for number in range(100)], set[threading.Thread]()

    def read_there(raws: Sequence[bytes | None], now_ms: int) -> list[Outcome]:
        threads.add(threading.current_thread())
        return read_all(raws, now_ms)

    monkeypatch.setattr(reads, "read_all", read_there)
    await written(store, put(keys[50], {"n": 1}, ttl_s=3600))
    found = await store.apply(GetColumn(pa.array(keys)))
    assert [isinstance(outcome, Record) for outcome in found] == [key == keys[50] for key in keys]
    assert threads
    assert threading.main_thread() not in threads


async def test_records_of_other_tools_are_among_others(tmp_path: Path) -> None:
    keys = [f"{index:03}" for index in range(100)]
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        await store.apply([put(key, {"key": key}) for key in keys])
    async with raw(tmp_path) as found:
        found[b"t\x00050"] = b'{ "n" : 1.0 }'
        found[b"t\x00051"] = b"junk"
    async with database(tmp_path) as backend:
        outcomes = await read_both_ways(await backend.store(TableSpec("t")), keys)
        assert isinstance(outcomes[50], Record)
        assert outcomes[50].value == b'{"n":1}'
        assert isinstance(outcomes[51], RecordUnreadable)


async def test_a_record_that_was_cut_off_does_not_affect_others(tmp_path: Path) -> None:
    keys = [f"{index:03}" for index in range(100)]
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        await store.apply([put(key, {"key": key}) for key in keys])
        before = await store.apply(list(map(Get, keys)))
    async with raw(tmp_path) as found:
        found[b"t\x00050"] = SHORT
    async with database(tmp_path) as backend:
        outcomes = list(await read_both_ways(await backend.store(TableSpec("t")), keys))
        assert [*outcomes[:50], *outcomes[51:]] == [*before[:50], *before[51:]]


async def test_a_failing_database_fails_each_get(backend: RocksdbBackend, store: Store) -> None:
    await backend.close()
    found = await store.apply(GetColumn(pa.array([f"{index}" for index in range(50)])))
    assert [type(outcome) for outcome in found] == [StoreUnavailable] * 50
