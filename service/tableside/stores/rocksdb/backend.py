"""The RocksDB backend: settings, opening and closing the database, and its tables."""

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, Field, field_validator
from rocksdict import AccessType, BlockBasedOptions, Cache, DbClosedError, Options, Rdict, WriteBatch

from ...core import Clock, Disk, InvalidOperation, NoOptions, Outcome, StoreUnavailable, TableSpec, WriteHealth, now_ms
from .database import Database, Handle, first_line, key_types_key
from .expiry_sweeper import sweep_forever
from .group_commit import Turn
from .store import RocksdbStore

log = logging.getLogger(__name__)

_LOCKED = ("No locks available", "Resource temporarily unavailable")
"""The ends of the driver's messages while another process, or this one, has the directory open."""

COMPACTED = 1000, 500, 0.5
"""A file is compacted soon, which reclaims space, if 500 of 1,000 consecutive entries or half of all are deletions."""


class RocksdbSettings(BaseModel, frozen=True, extra="forbid"):
    """The database's directory, its memory in bytes and the interval between expiry sweeps in seconds."""

    path: str = Field(min_length=1)
    block_cache_bytes: int = Field(default=128 * 2**20, ge=2**20)
    row_cache_bytes: int = Field(default=192 * 2**20, ge=2**20)
    write_buffer_bytes: int = Field(default=64 * 2**20, ge=2**20)
    sweep_every_s: float = Field(default=60.0, gt=0)

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        if "\0" in path:
            raise ValueError("contains U+0000")
        return path

    @property
    def place(self) -> str:
        """Return the absolute path of the directory."""
        return str(Path(self.path).absolute())

    @property
    def directory(self) -> str:
        """Return the directory, with all symbolic links resolved."""
        return os.path.realpath(self.path)


class RocksdbBackend:
    """One database, which only this process has open."""

    Settings = RocksdbSettings
    TableOptions = NoOptions
    single_process = True

    def __init__(self, database: Database, sweep_every_s: float) -> None:
        self._database = database
        self._health = WriteHealth()
        self._sweeping = asyncio.create_task(sweep_forever(database, sweep_every_s))
        self._closed = False

    @classmethod
    async def open(cls, settings: RocksdbSettings, clock: Clock = now_ms) -> "RocksdbBackend":
        """Open the database and create it if it is absent.

        Raise InvalidOperation if its directory cannot be used, StoreUnavailable if another process has it open.
        """
        try:
            Path(settings.path).mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240  # once, before anything runs
        except OSError as error:
            reason = error.strerror or str(error)
            raise InvalidOperation(f"the RocksDB directory {settings.path} cannot be created: {reason}") from error
        room_bytes = 2 * settings.write_buffer_bytes  # for the files of both write buffers
        try:
            handle = await asyncio.to_thread(
                Handle, lambda: open_database(settings, AccessType.read_write()), settings.path, room_bytes
            )
        except Exception as error:
            why = first_line(error)
            log.error("the RocksDB database cannot be opened: %s", why)  # one line is enough
            failure = f"the RocksDB directory {settings.path} cannot be opened"
            if str(error).endswith(_LOCKED):
                raise StoreUnavailable(f"{failure}; another process may have it open") from error
            raise InvalidOperation(f"{failure}: {why}") from error
        return cls(Database(handle, clock), settings.sweep_every_s)

    async def store(self, spec: TableSpec) -> RocksdbStore:
        """Return the store of one table. Raise InvalidOperation if its records have keys of other types."""
        await check_key(self._database, spec)
        return RocksdbStore(self._database, spec, self._health)

    async def tables(self) -> list[str]:
        """Return the names of the tables that contain records."""
        return await self._database.run_scan(self._database.table_names)

    async def ping(self) -> None:
        """Raise StoreUnavailable if the database is closed, or the last writes failed."""
        if self._closed:
            raise StoreUnavailable("the RocksDB database is closed")
        self._health.check()

    def disk(self) -> Disk | None:
        """Return the sizes of the table files and of their file system, or None while the database is closed."""
        with suppress(StoreUnavailable, DbClosedError, OSError):
            return self._database.disk()
        return None

    async def close(self) -> None:
        """Finish the accepted writes and release the database's lock."""
        if self._closed:
            return
        self._closed = True
        self._sweeping.cancel()
        await asyncio.wait([self._sweeping])
        await self._database.close()


def open_database(settings: RocksdbSettings, access: AccessType, *, indexes_in_cache: bool = False) -> Rdict:
    """Open the database, with all of its table files. Create it if it is absent.

    Indexes and filters are in memory, about 2 bytes for each record, or in the block cache.
    """
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(settings.write_buffer_bytes)
    options.set_keep_log_file_num(4)
    options.set_max_open_files(-1)  # the default. A backup needs it: this opens all table files
    options.add_compact_on_deletion_collector_factory(*COMPACTED)
    options.set_row_cache(Cache(settings.row_cache_bytes))
    table = BlockBasedOptions()
    table.set_block_cache(Cache(settings.block_cache_bytes))
    table.set_bloom_filter(10, False)
    table.set_cache_index_and_filter_blocks(indexes_in_cache)
    options.set_block_based_table_factory(table)
    # Without the second, the driver opens an existing database with the options in its directory, without filters.
    return Rdict(settings.path, options, {"default": options}, access_type=access)


async def check_key(database: Database, spec: TableSpec) -> None:
    """Raise InvalidOperation if the table has records whose keys have other types. Store the types if they are new."""
    key, prefix = key_types_key(spec), spec.name_in_store.encode() + b"\0"
    types = ", ".join(field.type for field in spec.key.fields)
    [stored] = await database.run_read(lambda: database.get([key]))
    if stored == types.encode():
        return
    if stored is not None:
        first = await database.run_read(lambda: database.search().first(prefix))
        if first is not None and first.startswith(prefix):
            found = f"table {spec.name_in_store!r} has the key {{{stored.decode()}}} in RocksDB"
            raise InvalidOperation(f"{found}, which differs from the configuration")

    def store_types(turn: Turn) -> list[Outcome]:
        batch = WriteBatch(raw_mode=True)
        batch.put(key, types.encode())
        turn.spend(batch.size_in_bytes())
        database.write(batch)
        return []

    try:
        await database.run_write(store_types)
    except Exception:  # The disk may be full. The table can still be read.
        log.exception("RocksDB could not store the types of the key of table %r", spec.name_in_store)
