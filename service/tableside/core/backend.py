"""The interfaces of a kind of store: a class that opens a backend, and the backend that opens each table's store.

`WriteHealth` helps backends to report rejected writes to readiness probes, which therefore need not write.
"""

import math
import time
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from pydantic import BaseModel

from .batch import Results
from .errors import StoreUnavailable, WritesRejected
from .operations import Outcome, Written
from .store import Store, TableSpec

REMEMBERED_S = 30.0
"""How long a rejected write is reported. A later write shows whether the store accepts writes again."""


class NoOptions(BaseModel, frozen=True, extra="forbid"):
    """The `TableOptions` of a kind of store that has no table options."""


class Backend(Protocol):
    """An open `stores` entry of the configuration: one connection or database, shared by the stores of its tables.

    Optional methods: `connections` returns `Connections`, and `disk` returns `Disk`, or None if it is unknown. Neither
    waits.
    """

    single_process: bool

    async def store(self, spec: TableSpec) -> Store:
        """Open the store of one table.

        Raise StoreUnavailable if the backend cannot be reached, TableNotFound if it has no such table and may not
        create it, Unsupported if the table cannot satisfy `spec`.
        """

    async def tables(self) -> list[str]:
        """Return the names of the tables that contain records."""

    async def ping(self) -> None:
        """Check that the backend can be reached. Raise StoreUnavailable if not."""

    async def close(self) -> None:
        """Finish accepted operations and release all resources. A second call does nothing."""


class BackendType(Protocol):
    """The class of a kind of store: its settings, its table options, and how to open it.

    An optional class method, `table_faults`, gets the settings and a spec. It returns, without a connection, the errors
    because of which `Backend.store` can never open the table. Settings may have a property `place`, a directory or
    address without secrets, and a property `directory`, with all symbolic links resolved, that no other store may use.
    """

    Settings: type[BaseModel]
    TableOptions: type[BaseModel]
    single_process: bool

    async def open(self, settings: Any) -> Backend:
        """Return a backend that is ready for use. Raise StoreUnavailable if it cannot be reached."""


class Connections(msgspec.Struct, frozen=True):
    """The number of a backend's connections: in use (including those being opened), open, and the limit (`most`).

    The names of the fields are values of a metric's label.
    """

    in_use: int
    open: int
    most: int


class Disk(msgspec.Struct, frozen=True):
    """The local disk of a backend, in bytes: its table files, what compaction has yet to rewrite, and the file system.

    The names of the fields of bytes are values of a metric's label. `writes_delayed` means that compaction is so far
    behind that the backend slows writes down or stops them.
    """

    used: int
    compaction_pending: int
    free: int
    size: int
    writes_delayed: bool


class WriteHealth:
    """Whether a backend accepts writes, as far as the outcomes of its tables show."""

    def __init__(self) -> None:
        self._rejected_at = -math.inf

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Note the outcomes of a call with writes: any success clears earlier rejections."""
        if isinstance(outcomes, Results):
            if len(outcomes.failed) < len(outcomes):
                self._rejected_at = -math.inf
                return
            outcomes = [*outcomes.failed.values()]
        if Written in map(type, outcomes):
            self._rejected_at = -math.inf
        elif WritesRejected in map(type, outcomes):
            self._rejected_at = time.monotonic()

    def check(self) -> None:
        """Raise StoreUnavailable if the last writes were rejected, at most REMEMBERED_S ago."""
        if time.monotonic() - self._rejected_at < REMEMBERED_S:
            raise StoreUnavailable("the store rejected the last writes: its disk is full, or it is read-only")
