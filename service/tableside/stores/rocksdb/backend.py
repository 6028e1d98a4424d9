"""The RocksDB backend: settings, opening and closing the database, and its tables."""

import asyncio
import os
from pathlib import Path

from pydantic import BaseModel, Field, field_validator
from rocksdict import AccessType, BlockBasedOptions, Cache, Options, Rdict

from ...core import Clock, InvalidOperation, NoOptions, StoreUnavailable, TableSpec, now_ms
from .database import Database, first_line
from .expiry_sweeper import ExpirySweeper
from .store import RocksdbStore


class RocksdbSettings(BaseModel, frozen=True, extra="forbid"):
    """The database's directory, its memory in bytes and the interval between expiry sweeps in seconds."""

    path: str = Field(min_length=1)
    block_cache_bytes: int = Field(default=256 * 2**20, ge=2**20)
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

    def __init__(self, database: Database, sweeper: ExpirySweeper) -> None:
        self._database = database
        self._sweeper = sweeper
        self._closed = False

    @classmethod
    async def open(cls, settings: RocksdbSettings, clock: Clock = now_ms) -> "RocksdbBackend":
        """Open the database and create it if it is absent.

        Raise InvalidOperation if its directory cannot be created, StoreUnavailable if another process has it open.
        """
        try:
            Path(settings.path).mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240  # once, before anything runs
        except OSError as error:
            reason = error.strerror or str(error)
            raise InvalidOperation(f"the RocksDB directory {settings.path} cannot be created: {reason}") from error
        try:
            handle = await asyncio.to_thread(
                Rdict, settings.path, _options(settings), access_type=AccessType.read_write()
            )
        except Exception as error:
            raise StoreUnavailable(f"the RocksDB database cannot be opened: {first_line(error)}") from error
        database = Database(handle, clock)
        return cls(database, ExpirySweeper(database, settings.sweep_every_s))

    async def store(self, spec: TableSpec) -> RocksdbStore:
        """Return the store of one table."""
        return RocksdbStore(self._database, spec)

    async def tables(self) -> list[str]:
        """Return the names of the tables that contain records."""
        return await self._database.run_scan(self._database.table_names)

    async def ping(self) -> None:
        """Raise StoreUnavailable if the database is closed."""
        if self._closed:
            raise StoreUnavailable("the RocksDB database is closed")

    async def close(self) -> None:
        """Finish the accepted writes and release the database's lock."""
        if self._closed:
            return
        self._closed = True
        await self._sweeper.close()
        await self._database.close()


def _options(settings: RocksdbSettings) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(settings.write_buffer_bytes)
    options.set_keep_log_file_num(4)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(settings.block_cache_bytes))
    table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    return options
