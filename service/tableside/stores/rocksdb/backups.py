"""Backups of a RocksDB database, also of one that a running service has open, and their restoration.

A backup is a database with the entries of one state. Each entry is read with the checksum of its block and written to
a new directory. That gets its name after the copy was read again and compared. The service takes no part.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from rocksdict import AccessType, Rdict, WriteBatch, WriteOptions

from ...core import InvalidOperation, StoreUnavailable, TableError
from .backend import RocksdbSettings, open_database
from .database import Item, entries, first_line

OPEN_S_MAX = 120.0
OPEN_PAUSE_S = 0.1
"""How long, and at which intervals, opening is repeated while the service replaces files."""

BATCH_BYTES = 2**20
NAME = "%Y%m%dT%H%M%SZ"
INVENTORY_FILE = "inventory.json"
"""The last file of a backup. A directory without it is not a backup."""

UNFINISHED = ".tableside-unfinished"
"""The name of a copy in progress, or of a removal. The next copy in the folder removes one that was interrupted."""


class Inventory(msgspec.Struct, frozen=True):
    """The number of a database's entries, the size of their keys and values in bytes, and a digest of them in order."""

    entries: int
    size_bytes: int
    sha256: str


def back_up(settings: RocksdbSettings, folder: Path, now: datetime | None = None) -> tuple[Path, Inventory]:
    """Copy a database to a new directory in `folder`, which is named by the time in UTC. Return both.

    Every write that was acknowledged before the call is in it. Raise InvalidOperation, StoreUnavailable or OSError, and
    leave no directory, if the database cannot be read or the copy cannot be written.
    """
    backup = folder / (now or datetime.now(UTC)).strftime(NAME)
    with _state_of(Path(settings.directory), settings) as source, _new_directory(backup) as copy:
        inventory = _copy(source, copy, settings)
        (copy / INVENTORY_FILE).write_bytes(msgspec.json.encode(inventory))
        _sync(copy / INVENTORY_FILE)
    return backup, inventory


def restore(backup: Path, settings: RocksdbSettings) -> Inventory:
    """Copy a backup to the database's directory, which must be absent or empty.

    Raise InvalidOperation, and leave the directory as it is, if it has files or the backup is damaged.
    """
    try:
        expected = msgspec.json.decode((backup / INVENTORY_FILE).read_bytes(), type=Inventory)
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidOperation(f"{backup} is not a backup: {first_line(error)}") from error
    with _state_of(backup, settings) as source, _new_directory(Path(settings.directory)) as copy:
        if (found := _copy(source, copy, settings)) != expected:
            raise InvalidOperation(f"{backup} is damaged: it has {found} instead of {expected}")
    return found


def remove_older(folder: Path, keep: int) -> list[Path]:
    """Remove all but the last `keep` backups in a folder, at least one. Return what was removed."""
    older = sorted(file.parent for file in folder.glob(f"????????T??????Z/{INVENTORY_FILE}"))[: -max(1, keep)]
    with _locked(folder):
        for backup in older:
            shutil.rmtree(backup.rename(folder / UNFINISHED))
    return older


@contextmanager
def _state_of(directory: Path, settings: RocksdbSettings) -> Iterator[Rdict]:
    """Open a database at one state, without a lock and without writing to its directory.

    A service may write to it, then and later. RocksDB opens all table files before it reads the write-ahead logs, and
    can read them after their removal. If one is missing, the files have changed and the next attempt follows. A log
    that is begun or removed in between could leave a gap, so the logs must be the same before and afterwards.
    """
    if not (directory / "CURRENT").exists():
        raise InvalidOperation(f"{directory} has no RocksDB database")
    directory, until = directory.resolve(), time.monotonic() + OPEN_S_MAX
    while time.monotonic() < until:
        with TemporaryDirectory() as links:
            before = _files(directory)
            for name in before:
                if not name.endswith(".json"):  # The driver writes such a file when it opens a database.
                    (Path(links) / name).symlink_to(directory / name)
            try:
                database = _open(Path(links), settings, AccessType.read_only())
            except Exception as error:
                if before == _files(directory):
                    raise StoreUnavailable(f"{directory} cannot be read: {first_line(error)}") from error
            else:
                with closing(database):
                    if _logs(before) == _logs(_files(directory)):
                        yield database
                        return
        time.sleep(OPEN_PAUSE_S)
    raise StoreUnavailable(f"{directory} cannot be read: the service replaced its files in every attempt")


def _files(directory: Path) -> dict[str, bool]:
    """Return the names of a directory's files, and whether they have content."""
    found = {}
    for file in directory.iterdir():
        with suppress(FileNotFoundError):
            found[file.name] = file.stat().st_size > 0
    return found


def _logs(files: dict[str, bool]) -> dict[str, bool]:
    """Return the write-ahead logs. RocksDB creates the next one before its use."""
    return {name: used for name, used in files.items() if name.endswith(".log")}


def _open(path: Path, settings: RocksdbSettings, access: AccessType) -> Rdict:
    small = {"path": str(path), "block_cache_bytes": 2**24, "row_cache_bytes": 2**20}
    return open_database(settings.model_copy(update=small), access, indexes_in_cache=True)


@contextmanager
def _new_directory(path: Path) -> Iterator[Path]:
    """Yield the path of a directory to create, which is renamed to `path` at the end. An error removes it."""
    unfinished = path.with_name(UNFINISHED)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.parent):
        if path.exists() and (path.is_mount() or any(path.iterdir())):
            raise InvalidOperation(f"{path} is not an empty directory, or it is a mount point")
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            yield unfinished
            _sync(unfinished)
            unfinished.rename(path)
            _sync(path.parent)
        except (TableError, OSError):
            raise
        except Exception as error:  # of the driver: the disk is full, or a block is unreadable
            raise StoreUnavailable(f"the copy to {path} failed: {first_line(error)}") from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise InvalidOperation(f"{folder} is in use by another backup or restoration") from error
    finally:
        os.close(opened)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _copy(source: Rdict, target: Path, settings: RocksdbSettings) -> Inventory:
    """Write all entries to a new database, and read them again. Raise StoreUnavailable if they differ."""
    with closing(_open(target, settings, AccessType.read_write())) as database:
        written = _inventory(_written(entries(source), database))
        database.flush()
    with closing(_open(target, settings, AccessType.read_only())) as database:
        if (found := _inventory(entries(database))) != written:
            raise StoreUnavailable(f"{target} has {found} instead of {written}")
    return written


def _written(found: Iterable[Item], database: Rdict) -> Iterator[Item]:
    """Yield the entries, and write them to the database without a log. A flush makes them durable."""
    batch = WriteBatch(raw_mode=True)
    for key, value in found:
        batch.put(key, value)
        if batch.size_in_bytes() > BATCH_BYTES:
            database.write(batch, _UNLOGGED)
            batch = WriteBatch(raw_mode=True)
        yield key, value
    database.write(batch, _UNLOGGED)


def _inventory(found: Iterable[Item]) -> Inventory:
    count, size_bytes, digest = 0, 0, sha256()
    for key, value in found:
        count += 1
        size_bytes += len(key) + len(value)
        digest.update(b"%d,%d,%b%b" % (len(key), len(value), key, value))
    return Inventory(count, size_bytes, digest.hexdigest())


_UNLOGGED = WriteOptions()
_UNLOGGED.disable_wal = True  # type: ignore[assignment, method-assign]  # a property, despite its annotation
