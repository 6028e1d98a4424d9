"""RocksDB writes a column of puts with the outcomes and the bytes of the same puts in a list."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from contract import INTEGERS, etag, one, put, put_column, scanned, text, value, written, written_in_column
from service.stores.test_rocksdb import database, raw
from tableside.catalog import Table
from tableside.catalog.table_metrics import OperationMetrics, TableMetrics
from tableside.core import PutColumn, WrittenColumn
from tableside.core.errors import DeadlineExceeded, StoreUnavailable, TableError, WritesRejected
from tableside.core.operations import Get, Key, Operation, Outcome, Record, Token, Written
from tableside.core.store import Policy, Store, TableSpec
from tableside.stores.rocksdb import RocksdbBackend, group_commit
from tableside.stores.rocksdb.records import pack_all_plain, pack_plain, pack_versions
from tableside.stores.rocksdb.writes import RecordWriter


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[RocksdbBackend]:
    async with database(tmp_path) as opened:
        yield opened


@pytest.fixture
async def store(backend: RocksdbBackend) -> Store:
    return await backend.store(TableSpec("t"))


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of puts of each turn that wrote a column."""
    counts: list[int] = []
    original = RecordWriter._put_column

    def noted(writer: RecordWriter, puts: PutColumn, turn: group_commit.Turn) -> WrittenColumn:
        outcomes = original(writer, puts, turn)
        counts.append(len(outcomes))
        return outcomes

    monkeypatch.setattr(RecordWriter, "_put_column", noted)
    return counts


def keys_of(count: int) -> list[str]:
    return [f"{index * 7919 % count:04}" for index in range(count)]


def texts_of(keys: Sequence[Key], size_bytes: int = 0) -> list[bytes]:
    return [text(key=str(key), s="x" * (size_bytes + index % 3)) for index, key in enumerate(keys)]


@pytest.mark.parametrize(
    "versions", [[0], [1, 2**64 - 1, 2**63], [*range(2**60, 2**60 + 1000)]], ids=["0", "3", "1000"]
)
def test_records_in_a_column_have_the_bytes_of_single_records(versions: list[int]) -> None:
    texts = texts_of(versions)
    column = pa.array([b"before", *texts, b"after"], pa.binary())[1:-1]
    expected = [pack_plain(value_put, version) for value_put, version in zip(texts, versions, strict=True)]
    assert pack_all_plain(column, pack_versions(versions)) == expected


@pytest.mark.parametrize("count", [1, 2, 999, 1000, 1001, 2500])
async def test_columns_of_several_turns_are_joined(store: Store, count: int, turns: list[int]) -> None:
    keys = keys_of(count)
    outcomes = await store.apply(put_column(keys, texts_of(keys)))
    assert isinstance(outcomes, WrittenColumn)
    outcomes.etags.validate(full=True)
    assert turns == [min(1000, count - start) for start in range(0, count, 1000)]
    assert list(outcomes) == [Written(await etag(store, key)) for key in keys]
    await written_in_column(store, keys, texts_of(keys, 3))
    assert sorted(map(str, await scanned(store, limit=1000))) == sorted(keys)


async def test_the_files_have_the_same_bytes_as_after_puts_in_a_list(tmp_path: Path) -> None:
    keys = ["ü", "a" * 1024, "🛫", *keys_of(200)]
    async with database(tmp_path) as backend:
        outcomes = await (await backend.store(TableSpec("t"))).apply(put_column(keys, texts_of(keys)))
        await (await backend.store(TableSpec("u"))).apply([put(key) for key in keys])
    async with raw(tmp_path) as found:
        names = {key: found[b"t\0" + key.encode()] for key in keys}
        listed: list[Any] = [found[b"u\0" + key.encode()] for key in keys]
    assert {one_raw[:2] for one_raw in listed} == {b"\x01\0"}
    for key, value_put, outcome in zip(keys, texts_of(keys), outcomes, strict=True):
        assert isinstance(outcome, Written)
        assert names[key] == pack_plain(value_put, int(outcome.etag or "", 16))


async def test_integer_keys(backend: RocksdbBackend, turns: list[int]) -> None:
    store = await backend.store(TableSpec("t", INTEGERS))
    keys: list[Key] = [-(2**63), 2**63 - 1, *range(-75, 75)]
    await written_in_column(store, keys, texts_of(keys))
    assert await scanned(store, limit=1000) == [-(2**63), *range(-75, 75), 2**63 - 1]
    assert turns == [len(keys)]


async def test_versions_rise(store: Store) -> None:
    keys, last = keys_of(1500), ""
    for _ in range(3):
        outcomes = await written_in_column(store, keys, texts_of(keys))
        single = await written(store, put("single"))
        etags = [outcome.etag or "" for outcome in (*outcomes, single)]
        assert etags == sorted({*etags})
        assert last < etags[0]
        last = etags[-1]


async def test_etags_are_not_reused_after_a_restart(tmp_path: Path) -> None:
    keys, last = keys_of(1500), ""
    for _ in range(2):
        async with database(tmp_path) as backend:
            outcomes = await written_in_column(await backend.store(TableSpec("t")), keys, texts_of(keys))
            assert last < (outcomes[0].etag or "")
            last = outcomes[-1].etag or ""


@pytest.mark.parametrize(
    "options", [{"token": Token("w", 5)}, {"ttl_s": 600}, {"ttl_s": 600, "token": Token("w", 5)}], ids=str
)
@pytest.mark.parametrize("place", [0, 999, 1000, 1499])
async def test_a_table_with_tokens_or_expiry_writes_no_column(
    backend: RocksdbBackend, store: Store, options: dict[str, Any], place: int, turns: list[int]
) -> None:
    keys = keys_of(1500)
    await written(store, put(keys[place], {"n": 1}, **options))
    outcomes = await written_in_column(store, keys, texts_of(keys))
    assert {outcome.expires_ms for outcome in outcomes} == {0}
    assert turns == []
    if "token" in options:
        assert (await written(store, put(keys[place], {"n": 3}, token=Token("w", 5)))).replayed
        assert await value(store, keys[place]) != {"n": 3}
    await written_in_column(await backend.store(TableSpec("other")), keys, texts_of(keys))
    assert turns == [1000, 500], "the records of another table do not count"


async def test_a_table_whose_records_expire_writes_no_column(backend: RocksdbBackend, turns: list[int]) -> None:
    store, keys = await backend.store(TableSpec("t", ttl_s=600)), keys_of(200)
    outcomes = await written_in_column(store, keys, texts_of(keys))
    assert all(outcome.expires_ms > 0 for outcome in outcomes)
    assert turns == []


async def test_a_database_that_was_not_searched_yet_writes_no_column(tmp_path: Path, turns: list[int]) -> None:
    keys = keys_of(200)
    async with database(tmp_path) as backend:
        await written(await backend.store(TableSpec("t")), put(keys[7], {"n": 1}, token=Token("w", 5)))
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        await written_in_column(store, keys, texts_of(keys))
        assert (await written(store, put(keys[7], {"n": 3}, token=Token("w", 5)))).replayed
    assert turns == []


async def test_a_turn_writes_a_bounded_number_of_bytes(
    store: Store, turns: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "BYTES_PER_TURN_MAX", 100_000)
    keys = keys_of(300)
    outcomes = await written_in_column(store, keys, [text(s="x" * 982)] * 300)
    assert turns == [100, 100, 100], "a record has 10 more bytes than its value"
    etags = [outcome.etag or "" for outcome in outcomes]
    assert etags == sorted({*etags})


async def test_a_turn_is_shared_with_other_calls(
    store: Store, turns: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The puts of an earlier call in the same turn count."""
    monkeypatch.setattr(group_commit, "TURN_S", math.inf)
    keys = keys_of(900)
    calls = [put_column(keys, texts_of(keys)), put_column([f"b{key}" for key in keys], texts_of(keys))]
    blocked = asyncio.create_task(store.apply([put("first")]))
    results = await asyncio.gather(*(store.apply(call) for call in calls))
    await blocked
    assert sum(turns) == 1800
    assert max(turns) <= group_commit.OPERATIONS_PER_TURN_MAX
    assert len(turns) == 3
    assert all(isinstance(outcomes, WrittenColumn) and len(outcomes) == 900 for outcomes in results)


async def test_other_writes_run_between_the_turns_of_a_large_column(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "OPERATIONS_PER_TURN_MAX", 10)
    finished: list[str] = []

    async def apply(name: str, operations: Any) -> None:
        assert {type(outcome) for outcome in await store.apply(operations)} == {Written}
        finished.append(name)

    keys = keys_of(200)
    await asyncio.gather(apply("large", put_column(keys, texts_of(keys))), apply("small", [put("b")]))
    assert finished == ["small", "large"]


async def test_a_large_column_ends_at_its_deadline(store: Store) -> None:
    keys = keys_of(2500)
    outcomes = await store.apply(put_column(keys, texts_of(keys)), asyncio.get_running_loop().time())
    assert len(outcomes) == 2500
    assert list(outcomes[:1000]) == [Written(await etag(store, key)) for key in keys[:1000]]
    late = [outcome for outcome in outcomes[1000:] if isinstance(outcome, DeadlineExceeded)]
    assert [outcome.applied for outcome in late] == ["no"] * 1500
    assert sorted(map(str, await scanned(store, limit=1000))) == sorted(keys[:1000])


async def test_a_failed_sync_fails_each_put(
    backend: RocksdbBackend, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise OSError("no space left")

    keys = keys_of(1500)
    with monkeypatch.context() as patch:
        patch.setattr(backend._database._writes, "_sync", fails)
        outcomes = await store.apply(put_column(keys, texts_of(keys)))
    assert {type(outcome) for outcome in outcomes} == {WritesRejected}
    assert len(outcomes) == 1500
    assert {(outcome.detail, outcome.applied) for outcome in outcomes if isinstance(outcome, TableError)} == {
        ("RocksDB could not sync", "unknown")
    }
    assert "RocksDB could not sync" in caplog.text
    with pytest.raises(StoreUnavailable, match="rejected the last writes"):
        await backend.ping()
    await written_in_column(store, keys, texts_of(keys))
    await backend.ping()


async def test_after_a_failed_sync_of_the_second_turn_the_first_is_written(
    backend: RocksdbBackend, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, calls = backend._database._writes._sync, list[int]()

    def fails_once() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise OSError("no space left")
        sync()

    monkeypatch.setattr(backend._database._writes, "_sync", fails_once)
    keys = keys_of(2500)
    outcomes = await store.apply(put_column(keys, texts_of(keys)))
    assert [isinstance(outcome, Written) for outcome in outcomes] == [index // 1000 != 1 for index in range(2500)]
    assert not isinstance(outcomes, WrittenColumn)
    records = await store.apply(list(map(Get, keys)))
    for outcome, kept in zip(outcomes, records, strict=True):
        assert isinstance(kept, Record)
        assert isinstance(outcome, WritesRejected) or outcome == Written(kept.etag)


async def test_a_failing_write_fails_the_remaining_puts(
    backend: RocksdbBackend, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = backend._database.write, list[int]()

    def fails_later(batch: Any) -> None:
        calls.append(1)
        if len(calls) > 1:
            raise OSError("broken")
        write(batch)

    keys = keys_of(2500)
    with monkeypatch.context() as patch:
        patch.setattr(backend._database, "write", fails_later)
        outcomes = await store.apply(put_column(keys, texts_of(keys)))
    assert list(map(type, outcomes)) == [Written] * 1000 + [WritesRejected] * 1500
    assert len(await scanned(store, limit=1000)) == 1000


async def test_a_closed_database_fails_each_put(backend: RocksdbBackend, store: Store) -> None:
    await backend.close()
    outcomes = await store.apply(put_column(keys_of(1500), texts_of(keys_of(1500))))
    assert {type(outcome) for outcome in outcomes} == {WritesRejected}
    assert len(outcomes) == 1500


async def test_a_table_writes_columns_without_objects(
    backend: RocksdbBackend, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(column: Sequence[Any]) -> list[Any]:
        assert len(column) == 1, "objects are made"
        return [Written("e")]

    keys, registry = keys_of(2500), CollectorRegistry()
    table = Table(store, metrics=TableMetrics(OperationMetrics(registry), "t"))
    with monkeypatch.context() as patch:
        for kind in (PutColumn, WrittenColumn):
            patch.setattr(kind, "_make", fails)
        outcomes = await table.batch(put_column(keys, texts_of(keys)))
    assert isinstance(outcomes, WrittenColumn)
    assert list(outcomes) == [Written(await etag(store, key)) for key in keys]
    labels = {"table": "t", "operation": "put", "outcome": "written"}
    assert registry.get_sample_value("tableside_operations_total", labels) == 2500
    assert registry.get_sample_value("tableside_batch_operations_sum", {"table": "t"}) == 2500


async def test_a_repeated_key_has_an_outcome_at_each_position(store: Store) -> None:
    """A table calls its store with distinct keys."""
    called: list[list[Key]] = []

    class Recording(Policy):
        async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
            called.append([operation.key for operation in operations])
            return await self._inner.apply(operations, until)

    keys = [*keys_of(100), *keys_of(50)]
    texts = [text(n=index) for index in range(150)]
    outcomes = await Table(Recording(store)).batch(put_column(keys, texts))
    assert all(len({*some}) == len(some) for some in called)
    assert {type(outcome) for outcome in outcomes} == {Written}
    for key in keys[:100]:
        last = len(keys) - 1 - keys[::-1].index(key)
        assert await value(store, key) == {"n": last}
        assert outcomes[last] == Written(await etag(store, key))


async def test_large_records_after_a_column_are_read_a_few_at_a_time(backend: RocksdbBackend, store: Store) -> None:
    """Reads divide their calls by the size of the largest record that was written."""
    before = backend._database.record_bytes_max
    keys = keys_of(150)
    texts = [*texts_of(keys[:-1]), text(s="x" * 4000)]
    await written_in_column(store, keys, texts)
    assert before < 4000 <= backend._database.record_bytes_max
    assert isinstance(await one(store, Get(keys[-1])), Record)
