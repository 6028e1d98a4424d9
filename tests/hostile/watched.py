"""Runs `tableside` as its command line does, and records how long its event loop was blocked.

The record is a file that both processes map into memory. A timer on the loop fires every `TURN_S` seconds. Between
two calls of the timer, the loop serves no other request. The CPU time of its thread measures this better than the
clock, because other processes delay a turn on a busy machine.
"""

import asyncio
import contextlib
import ctypes
import gc
import mmap
import os
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from tableside.cli import app
from tableside.server.server import Server

FILE_VARIABLE = "TABLESIDE_TURNS_FILE"
TURN_S = 0.002
TRIM = signal.SIGUSR2
"""The service returns unused memory to the operating system after this signal."""

_FIELDS = struct.Struct("=4d")


class Turns:
    """The longest turn of an event loop, in a file: CPU seconds of its thread, and of its process.

    `count` counts the turns, and `trims` the signals that were handled.
    """

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(bytes(_FIELDS.size))
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), _FIELDS.size)

    @property
    def longest(self) -> tuple[float, float]:
        """The longest turn since `reset`. Each measure is a maximum over all turns."""
        return self._fields[:2]

    @property
    def count(self) -> float:
        """The number of turns."""
        return self._fields[2]

    @property
    def trims(self) -> float:
        """The number of times that memory was returned."""
        return self._fields[3]

    def reset(self) -> None:
        """Forget the longest turn."""
        _FIELDS.pack_into(self._memory, 0, 0.0, 0.0, self.count, self.trims)

    def add(self, turn: tuple[float, float]) -> None:
        """Record a turn."""
        _FIELDS.pack_into(self._memory, 0, *map(max, turn, self.longest), self.count + 1, self.trims)

    def count_trim(self) -> None:
        """Record that memory was returned."""
        _FIELDS.pack_into(self._memory, 0, *self.longest, self.count, self.trims + 1)

    @property
    def _fields(self) -> tuple[float, float, float, float]:
        return _FIELDS.unpack_from(self._memory)


class Watch:
    """Records the turns of the running loop."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._before = _clocks()
        self._loop.add_signal_handler(TRIM, self._trim)
        self._timer: asyncio.Handle = self._loop.call_soon(self._turn)

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        self._loop.remove_signal_handler(TRIM)

    def _turn(self) -> None:
        now = _clocks()
        loop_s, process_s = (after - before for after, before in zip(now, self._before, strict=True))
        self._turns.add((loop_s, process_s))
        self._before = now
        self._timer = self._loop.call_later(TURN_S, self._turn)

    def _trim(self) -> None:
        gc.collect()
        pa.default_memory_pool().release_unused()
        with contextlib.suppress(AttributeError):  # Only glibc has it.
            ctypes.CDLL(None).malloc_trim(0)
        self._turns.count_trim()


def _clocks() -> tuple[float, float]:
    return time.thread_time(), time.process_time()


@contextlib.contextmanager
def watching(turns: Turns) -> Iterator[None]:
    """Have every server that starts within the context record its turns."""
    start = Server.startup
    watches: list[Watch] = []

    async def startup(server: Server, sockets: list[object] | None = None) -> None:
        await start(server, sockets)  # type: ignore[arg-type]  # passed on as it came
        watches.append(Watch(turns))

    with patch.object(Server, "startup", startup):
        yield


if __name__ == "__main__":
    with watching(Turns(Path(os.environ[FILE_VARIABLE]))):
        app(prog_name="tableside")
