"""The shared suite on the RocksDB store, and tests of reopening, the sweep, and records of other tools."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from contract import StoreContract, Time, etag, one, put, record, scanned, update, value, written
from contract.foreign import ForeignRecords
from support.waiting import eventually
from tableside.core.errors import InvalidOperation, StoreUnavailable, TableError
from tableside.core.keys import KeyField, KeySchema, Range
from tableside.core.operations import Delete, Get, Outcome, Token
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


async def test_changed_options_apply_to_an_existing_database(tmp_path: Path) -> None:
    for write_buffer_bytes in (2**21, 2**22):
        settings = RocksdbSettings(path=str(tmp_path / "data"), write_buffer_bytes=write_buffer_bytes)
        await (await RocksdbBackend.open(settings)).close()
        options = max((tmp_path / "data").glob("OPTIONS-*")).read_text()
        assert f"\n  write_buffer_size={write_buffer_bytes}\n" in options
        assert "filter_policy=bloomfilter" in options


async def test_after_a_failed_sync_outcomes_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with database(tmp_path) as backend:
        store = await backend.store(TableSpec("t"))
        await written(store, put("a", {"n": 1}))

        def fails() -> None:
            raise OSError("no space left")

        with monkeypatch.context() as patch:
            patch.setattr(backend._database._writes, "_sync", fails)
            outcomes = await store.apply([put("b"), Get("a"), update("x", {}), Delete("a")])
        assert isinstance(outcomes[0], StoreUnavailable)
        assert (outcomes[0].applied, outcomes[0].retriable) == ("unknown", True)
        assert isinstance(outcomes[3], StoreUnavailable)
        assert not isinstance(outcomes[1], TableError)
        assert outcomes[2] is not None
        await written(store, put("b", {"n": 2}))


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


class TestForeignRecords(ForeignRecords):
    valid = b'{ "n" : 1.0, "s": "x" }'
    invalid = (
        b"",
        b"\x01",
        b"[1]",
        b'{"_ts":1}',
        b"\x02" + b"x" * 30,
        b"\x01\x02" + b"\xff" * 40,
        b"\x01\x10" + b"\0" * 8 + b"{}",
    )

    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory = tmp_path

    @asynccontextmanager
    async def containing(self, records: Mapping[str, bytes]) -> AsyncIterator[Store]:
        async with raw(self.directory) as found:
            for key, text in records.items():
                found[f"t\0{key}".encode()] = text
        async with database(self.directory) as backend:
            yield await backend.store(TableSpec("t"))


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
