"""Backups of RocksDB databases that are written to, and what their restoration rejects."""

import asyncio
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from contract import put, scanned
from tableside.core.errors import InvalidOperation, StoreUnavailable, TableError
from tableside.core.store import TableSpec
from tableside.stores.rocksdb import RocksdbBackend, RocksdbSettings, back_up, remove_older, restore
from tableside.stores.rocksdb.backups import _locked

START = datetime(2026, 11, 28, 12, tzinfo=UTC)


def at(path: Path) -> RocksdbSettings:
    return RocksdbSettings(path=str(path), write_buffer_bytes=2**20)


async def test_a_backup_is_one_state_with_every_write_acknowledged_before_it(tmp_path: Path) -> None:
    """The log and the files change several times a second: a write buffer has room for a few hundred records."""
    backend = await RocksdbBackend.open(at(tmp_path / "data"))
    store, acknowledged = await backend.store(TableSpec("t")), 0

    async def write_in_order() -> None:
        nonlocal acknowledged
        for number in count():
            text = random.Random(number).randbytes(1000).hex()
            await store.apply([put(f"{number:06}", {"text": text}), put("last", {"n": number})])
            acknowledged = number + 1

    writing = asyncio.create_task(write_in_order())
    for number in range(10):
        await asyncio.sleep(0.2)
        before, restored = acknowledged, at(tmp_path / f"restored-{number}")
        now = START + timedelta(seconds=number)
        backup, inventory = await asyncio.to_thread(back_up, at(tmp_path / "data"), tmp_path / "backups", now)
        assert await asyncio.to_thread(restore, backup, restored) == inventory
        copy = await RocksdbBackend.open(restored)
        keys = await scanned(await copy.store(TableSpec("t")), limit=1000)
        await copy.close()
        assert keys == [*(f"{number:06}" for number in range(len(keys) - 1)), "last"]
        assert len(keys) - 1 >= before > 0
    writing.cancel()
    await asyncio.wait([writing])
    await backend.close()
    names = [f"20261128T12000{number}Z" for number in range(10)]
    assert [older.name for older in remove_older(tmp_path / "backups", keep=2)] == names[:8]
    assert sorted(file.name for file in (tmp_path / "backups").iterdir()) == names[8:]


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of 5,000 entries."""
    with_entries = Rdict(str(tmp_path / "data"), Options(raw_mode=True))
    for number in range(5000):
        with_entries[b"t\0%06d" % number] = random.Random(number).randbytes(100)
    with_entries.close()
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "data").iterdir()}
    made, inventory = back_up(at(tmp_path / "data"), tmp_path / "backups", START)
    assert (inventory.entries, inventory.size_bytes) == (5000, 5000 * (8 + 100))
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "data").iterdir()} == before
    return made


def flip_a_byte(backup: Path) -> None:
    [file] = backup.glob("*.sst")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def change_an_entry(backup: Path) -> None:
    opened = Rdict(str(backup), Options(raw_mode=True))
    opened[b"t\0000001"] = b"other"
    opened.close()


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (flip_a_byte, "failed: Corruption: block checksum mismatch"),
    (change_an_entry, "is damaged: it has Inventory"),
    (lambda backup: next(backup.glob("*.sst")).unlink(), "cannot be read: .*No such file"),
    (lambda backup: (backup / "inventory.json").unlink(), "is not a backup"),
    (lambda backup: (backup / "inventory.json").write_text("{}"), "is not a backup"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES, ids=range(len(DAMAGES)))
def test_a_damaged_backup_is_not_restored(
    damage: Callable[[Path], object], message: str, backup: Path, tmp_path: Path
) -> None:
    damage(backup)
    with pytest.raises(TableError, match=message):
        restore(backup, at(tmp_path / "new" / "data"))
    assert [*tmp_path.glob("new/*")] == []


def test_a_restoration_replaces_no_files_and_an_interrupted_one_leaves_none(backup: Path, tmp_path: Path) -> None:
    used, empty = tmp_path / "used" / "data", tmp_path / "empty" / "data"
    used.mkdir(parents=True)
    (used / "CURRENT").touch()
    with pytest.raises(InvalidOperation, match=f"{used} is not an empty directory"):
        restore(backup, at(used))
    assert [file.name for file in used.iterdir()] == ["CURRENT"]
    empty.mkdir(parents=True)
    shutil.copytree(backup, empty.with_name(".tableside-unfinished"))
    with _locked(empty.parent), pytest.raises(InvalidOperation, match="in use by another backup or restoration"):
        restore(backup, at(empty))
    assert restore(backup, at(empty)).entries == 5000
    assert [file.name for file in empty.parent.iterdir()] == ["data"]


def test_a_failed_backup_leaves_no_directory(backup: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOperation, match="absent has no RocksDB database"):
        back_up(at(tmp_path / "absent"), tmp_path / "backups")
    flip_a_byte(backup)
    with pytest.raises(StoreUnavailable, match="Corruption"):
        back_up(at(backup), tmp_path / "backups")
    assert [*(tmp_path / "backups").iterdir()] == [backup]
