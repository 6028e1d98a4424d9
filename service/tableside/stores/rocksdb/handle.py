"""The driver's handle of a database, which is replaced after a failed write.

After a write has failed, for example because the disk was full, RocksDB rejects all writes until the database is opened
again. Reads continue on the old handle until the disk has room.
"""

import contextlib
import logging
import time
from collections.abc import Callable

from rocksdict import Rdict, WriteBatch, WriteOptions

from ...core import StoreUnavailable

log = logging.getLogger(__name__)

REOPEN_EVERY_S = 5.0
"""The pause between attempts to open the database again. Reads fail during an attempt."""

LOCK_ATTEMPTS_MAX = 100
LOCK_PAUSE_S = 0.01
"""How often, and at which intervals, an attempt tries to get the lock while a read on the old handle is in progress."""


class Handle:
    """An open database. `open_database` opens it. `has_room` is whether the disk has room to do so.

    Only one thread may write and recover.
    """

    def __init__(self, open_database: Callable[[], Rdict], has_room: Callable[[], bool]) -> None:
        self._open, self._has_room = open_database, has_room
        self._current: Rdict | None = open_database()
        self._failed = False
        self._reopen_at = 0.0

    @property
    def current(self) -> Rdict:
        """Return the driver's handle. Raise StoreUnavailable while the database is opened again."""
        if self._current is None:
            raise StoreUnavailable("RocksDB opens its database again after a failed write")
        return self._current

    def write(self, batch: WriteBatch) -> None:
        """Write without syncing."""
        try:
            self.current.write(batch, _UNSYNCED)
        except Exception:
            self._failed = True
            raise

    def sync(self) -> None:
        """Make all writes durable."""
        try:
            self.current.flush_wal(True)
        except Exception:
            self._failed = True
            raise

    def recover(self) -> None:
        """Open the database again if a write has failed, the disk has room, and the last attempt was not just now."""
        if self._failed and time.monotonic() >= self._reopen_at and self._has_room():
            self._reopen_at = time.monotonic() + REOPEN_EVERY_S
            self._reopen()

    def close(self) -> None:
        """Release the database's lock. A failed write is not reported again."""
        if self._current is not None:
            with contextlib.suppress(Exception) if self._failed else contextlib.nullcontext():
                self._current.close()

    def _reopen(self) -> None:
        self.close()
        self._current = None
        for attempt in range(1, LOCK_ATTEMPTS_MAX + 1):
            try:
                self._current = self._open()
            except Exception:
                if attempt == LOCK_ATTEMPTS_MAX:
                    log.exception("RocksDB cannot open its database again after a failed write")
                time.sleep(LOCK_PAUSE_S)
            else:
                self._failed = False
                log.warning("RocksDB has opened its database again after a failed write")
                return


_UNSYNCED = WriteOptions()
