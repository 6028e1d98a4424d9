"""The shared suite on the RocksDB store, and tests of reopening, the sweep, and records of other tools."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from contract import StoreContract, Time, etag, one, put, record, refused, scanned, update, value, written
from support.waiting import WAIT_MAX_S, eventually
from tableside.core.errors import InvalidOperation, RecordUnreadable, StoreUnavailable, TableError
from tableside.core.keys import KeyField, KeySchema, Range
from tableside.core.operations import Delete, Get, Operation, Outcome, Token, Written
from tableside.core.store import Scan, Store, TableSpec
from tableside.stores.rocksdb import RocksdbBackend, RocksdbSettings
from tableside.stores.rocksdb.database import FIRST_RECORD
from tableside.stores.rocksdb.group_commit import Turn


class TestRocksdb(StoreContract):
    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Store]:
            async with database(directory, time) as backend:
                yield await backend.store(spec)

        return opened()


@asynccontextmanager
async def database(
    directory: Path, time: Time | None = None, sweep_every_s: float = 3600
) -> AsyncIterator[RocksdbBackend]:
    settings = RocksdbSettings(path=str(directory / "data"), sweep_every_s=sweep_every_s)
    backend = await RocksdbBackend.open(settings, (time or Time(real=True)).now_ms)
    try:
        yield backend
    finally:
        await backend.close()


@asynccontextmanager
async def raw(directory: Path) -> AsyncIterator[Rdict]:
    """Open the database as another tool does."""
    found = Rdict(str(directory / "data"), Options(raw_mode=True))
    yield found
    found.close()


KEYS = [KeySchema((KeyField("id"),)), KeySchema((KeyField("user"), KeyField("day", "integer")))]


async def test_a_key_of_other_types_is_an_error_if_the_table_has_records(tmp_path: Path) -> None:
    single, composite = KEYS
    async with database(tmp_path, sweep_every_s=0.01) as backend:
        store = await backend.store(TableSpec("t", composite))
        await written(store, put(("a", 1)))
        await backend.store(TableSpec("empty", composite))
        assert await backend.tables() == ["t"]
        await asyncio.sleep(0.1)  # The sweep removes no types.
    async with database(tmp_path) as backend:
        reordered = KeySchema(composite.fields[::-1])
        for key in (single, reordered, KeySchema((KeyField(), KeyField()))):
            with pytest.raises(
                InvalidOperation, match=r"'t' has the key \{string, integer\} in RocksDB, which differs"
            ):
                await backend.store(TableSpec("t", key))
        renamed = KeySchema((KeyField(), KeyField("other", "integer")))
        assert await scanned(await backend.store(TableSpec("t", renamed))) == [("a", 1)]
        store = await backend.store(TableSpec("empty", single))
        await written(store, put("a"))
        with pytest.raises(InvalidOperation):
            await backend.store(TableSpec("empty", composite))


async def test_records_expiry_versions_and_tokens_outlive_the_process(tmp_path: Path) -> None:
    time = Time(real=False)
    increment = update("a", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 3))
    async with database(tmp_path, time) as backend:
        store = await backend.store(TableSpec("t"))
        await written(store, increment)
        await store.apply([put("b", {"n": 2}, ttl_s=60), put("c", {}), Delete("d", token=Token("w", 1))])
        await written(store, Delete("c"))
        before = await record(store, "a")
    async with database(tmp_path, time) as backend:
        store = await backend.store(TableSpec("t"))
        assert await record(store, "a") == before
        assert (await record(store, "b")).expires_ms == time.now_ms() + 60_000
        assert await scanned(store) == ["a", "b"]
        assert (await written(store, increment)).replayed
        assert (await written(store, put("d", {}, token=Token("w", 1)))).replayed
        assert (await written(store, put("a", {"n": 1}))).etag != before.etag


async def test_etags_are_not_reused_after_a_restart(tmp_path: Path) -> None:
    seen = []
    for _ in range(3):
        async with database(tmp_path) as backend:
            store = await backend.store(TableSpec("t"))
            for _ in range(100):
                seen.append((await written(store, put("a", {}))).etag)  # noqa: PERF401  # each waits for the one before
    assert len(set(seen)) == len(seen)


async def test_a_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "data"
    with pytest.raises(InvalidOperation, match=f"{path} cannot be created: Not a directory"):
        await RocksdbBackend.open(RocksdbSettings(path=str(path)))


async def test_a_directory_that_is_open_or_damaged_is_named_with_the_reason(tmp_path: Path) -> None:
    settings = RocksdbSettings(path=str(tmp_path / "data"))
    async with database(tmp_path):
        with pytest.raises(StoreUnavailable, match="another process may have it open"):
            await RocksdbBackend.open(settings)
    async with database(tmp_path) as backend:
        await backend.ping()
    (tmp_path / "data" / "CURRENT").write_text("damaged\n")
    with pytest.raises(InvalidOperation, match=f"{settings.path} cannot be opened: Corruption"):
        await RocksdbBackend.open(settings)


async def test_an_unreadable_block_fails_scans_instead_of_ending_them(tmp_path: Path) -> None:
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        await store.apply(
            [put(f"{index:05}", {"text": random.Random(index).randbytes(50).hex()}) for index in range(5000)]
        )
    async with database(tmp_path):  # opening moves the records from the log to a file
        pass
    [file] = (tmp_path / "data").glob("*.sst")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        assert len((await store.scan(Scan(1000))).records) == 1000
        with pytest.raises(StoreUnavailable, match="RocksDB could not read"):
            await scanned(store, limit=1000)


async def test_writes_that_were_accepted_are_finished_before_it_closes(tmp_path: Path) -> None:
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        tasks = [asyncio.create_task(one(store, put(f"{index:04}", {"n": index}))) for index in range(500)]
        await asyncio.sleep(0)
        await backend.close()
        await backend.close()
        acknowledged = [key for key, task in enumerate(tasks) if not isinstance(await task, TableError)]
    assert len(acknowledged) == 500
    async with database(tmp_path) as backend:
        assert len(await scanned(await backend.store(TableSpec("t")), limit=1000)) == 500


async def test_a_cancelled_caller_does_not_affect_others(tmp_path: Path) -> None:
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        tasks = [asyncio.create_task(one(store, update("a", {"$inc": {"n": 1}}, {}))) for _ in range(50)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(answer, Written) for answer in answers[1::2])
        await written(store, update("a", {"$inc": {"n": 1}}, {}))
        assert (await value(store, "a"))["n"] >= 26


async def test_a_failing_database_gives_outcomes_instead_of_exceptions(tmp_path: Path) -> None:
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        await written(store, put("a"))
        await backend.close()
        many = [Get(f"{index}") for index in range(100)]
        calls: list[Sequence[Operation]] = [[Get("a")], many, [put("a"), Get("b"), Delete("c")]]
        for operations in calls:
            outcomes = await asyncio.wait_for(store.apply(operations), WAIT_MAX_S)
            assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
            assert [outcome.applied for outcome in outcomes if isinstance(outcome, TableError)] == [
                "no" if isinstance(operation, Get) else "unknown" for operation in operations
            ]
        with pytest.raises(StoreUnavailable):
            await store.scan(Scan(10))
        with pytest.raises(StoreUnavailable):
            await store.splits(4)


async def test_the_sweep_removes_only_expired_records(tmp_path: Path) -> None:
    time = Time(real=False)
    async with database(tmp_path, time, sweep_every_s=0.05) as backend:
        store = await backend.store(TableSpec("t"))
        await store.apply([put(f"{index:04}", {}, ttl_s=1 if index % 3 == 0 else None) for index in range(5000)])
        await written(store, Delete("z", token=Token("w", 1)))
        await time.passes(1.0)
        kept = [f"t\0{index:04}".encode() for index in range(5000) if index % 3]
        await swept(backend, len(kept) + 1)
    async with raw(tmp_path) as found:
        keys = [key for key, _ in found.items(from_key=FIRST_RECORD)]
    assert keys == [*kept, b"t\0z"]


async def swept(backend: RocksdbBackend, left: int) -> None:
    """Wait until at most this many records are left."""
    await eventually(lambda: len(backend._database.items(Range(FIRST_RECORD), 10_000, 2**24)[0]) <= left)


async def test_a_record_renewed_during_a_sweep_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(real=False)
    async with database(tmp_path, time, sweep_every_s=0.05) as backend:
        store = await backend.store(TableSpec("t"))
        await store.apply([put("kept", {}, ttl_s=1), put("swept", {}, ttl_s=1)])
        writes = backend._database.run_write
        swept = asyncio.Event()

        async def renew_first(work: Callable[[Turn], Sequence[Outcome]]) -> Sequence[Outcome]:
            monkeypatch.setattr(backend._database, "run_write", writes)
            await store.apply([put("kept", {})])
            outcomes = await writes(work)
            swept.set()
            return outcomes

        monkeypatch.setattr(backend._database, "run_write", renew_first)
        await time.passes(1.0)
        await eventually(swept.is_set)
        assert await scanned(store) == ["kept"]
        assert [key for key, _ in backend._database.items(Range(FIRST_RECORD), 10, 2**20)[0]] == [b"t\0kept"]


async def test_a_record_of_another_tool_is_read_and_written(tmp_path: Path) -> None:
    async with raw(tmp_path) as found:
        found[b"t\0a"] = b'{ "n" : 1.0, "s": "x" }'
        found[b"t\0b"] = b'{ "n" : 5 }'
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        assert await value(store, "a") == {"n": 1, "s": "x"}
        version = await etag(store, "a")
        assert version == await etag(store, "a")
        await written(store, update("a", {"$inc": {"n": 1}}, if_match=(version,)))
        assert await value(store, "a") == {"n": 2, "s": "x"}
        assert await etag(store, "a") != version
        assert await scanned(store) == ["a", "b"]
        assert (await written(store, Delete("b"))).etag is None
        assert await one(store, Get("b")) is None


async def test_the_format_of_1_0_stays_readable(tmp_path: Path) -> None:
    version, expiry = b"\0" * 7 + b"\x07", b"\0\0\x04" + b"\0" * 5
    writer, orders = b"\x01\0\x01w" + b"\0" * 7 + b"\x05", b'{"":20}'
    async with raw(tmp_path) as found:
        found[b"t\0plain"] = b"\x01\0" + version + b'{"n":1}'
        found[b"t\0full"] = b"\x01\x0b" + version + expiry + writer + b"\0\0\0\x07" + orders + b'{"n":2}'
        found[b"t\0deleted"] = b"\x01\x07" + version + expiry + writer
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        assert (await value(store, "plain"), await etag(store, "plain")) == ({"n": 1}, "0" * 15 + "7")
        assert (await value(store, "full"), (await record(store, "full")).expires_ms) == ({"n": 2}, 2**42)
        assert (await written(store, put("full", {}, order=19))).superseded
        assert (await written(store, put("full", {}, token=Token("w", 5)))).replayed
        assert await one(store, Get("deleted")) is None
        assert (await written(store, Delete("deleted", token=Token("w", 5)))).replayed


JUNK = [
    b"",
    b"\x01",
    b"junk",
    b"[1]",
    b'{"a":',
    b'{"_ts":1}',
    b"\x02" + b"x" * 30,
    b"\x01\x02" + b"\xff" * 40,
    b"\x01\x02" + b"\0" * 8,
    b"\x01\x10" + b"\0" * 8 + b"{}",
]


@pytest.mark.parametrize("junk", JUNK, ids=str)
async def test_an_invalid_record_is_unreadable_and_can_be_replaced_or_deleted(tmp_path: Path, junk: bytes) -> None:
    repairs: dict[str, Operation] = {"a": put("a", {"n": 1}), "b": Delete("b"), "c": Delete("c", token=Token("w", 1))}
    async with raw(tmp_path) as found:
        for key in repairs:
            found[f"t\0{key}".encode()] = junk
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        outcomes = await store.apply([Get("a"), Get("absent"), update("b", {"n": 1}, {}), put("other", {"n": 1})])
        assert refused(outcomes[0], RecordUnreadable)
        assert outcomes[1] is None
        assert refused(outcomes[2], RecordUnreadable)
        assert await value(store, "other") == {"n": 1}
        with pytest.raises(RecordUnreadable, match="the scan cannot continue at the key `a`: "):
            await store.scan(Scan(10))
        assert len(await store.splits(4)) >= 1
        for conditional in (put("a", {}, if_absent=True), put("a", {}, if_match=("x",)), Delete("a", if_match=("*",))):
            assert refused(await one(store, conditional), RecordUnreadable)
        for repair in repairs.values():
            await written(store, repair)
        assert await scanned(store) == ["a", "other"]


async def test_the_space_of_a_dropped_table_is_reclaimed(tmp_path: Path) -> None:
    def stored_bytes() -> int:
        return sum(file.stat().st_size for file in (tmp_path / "data").glob("*.sst"))

    text = random.Random(1).randbytes(2_000_000).hex()
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        await store.apply([put(f"{at}", {"text": text[400 * at : 400 * at + 400]}) for at in range(10_000)])
    async with database(tmp_path) as backend:  # opening moves the records from the log to files
        before = stored_bytes()
        await (await backend.store(TableSpec("t"))).drop()
    async with database(tmp_path):
        await eventually(lambda: stored_bytes() < before / 4)
