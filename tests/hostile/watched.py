"""Runs `tableside` as its command line does, and measures how long its event loop is blocked.

Between two calls of a timer, the loop serves no other request. The CPU time of its thread measures such a turn better
than the clock, because other processes delay a turn on a busy machine.

Each connection to the socket `turns` in the working directory gets the longest turn since the connection before.
"""

import asyncio
import contextlib
import ctypes
import gc
import json
import time
from pathlib import Path
from socket import socket
from unittest.mock import patch

import pyarrow as pa

from tableside.cli import app
from tableside.server.server import Server

SOCKET = "turns"
TURN_S = 0.002


class Watch:
    """Measures the turns of the running loop. `longest` has CPU seconds of its thread, and of the process."""

    longest: tuple[float, float]
    _before: tuple[float, float]

    def __init__(self) -> None:
        self._reset()

    async def run(self, path: Path) -> None:
        """Measure turns until cancelled, and listen on a socket at this path."""
        async with await asyncio.start_unix_server(self._answer, path):
            while True:
                await asyncio.sleep(TURN_S)
                now = _clocks()
                turn = now[0] - self._before[0], now[1] - self._before[1]
                self.longest = max(self.longest[0], turn[0]), max(self.longest[1], turn[1])
                self._before = now

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send the longest turn, return unused memory to the operating system, and begin again."""
        writer.write(json.dumps(self.longest).encode())
        gc.collect()
        pa.default_memory_pool().release_unused()
        with contextlib.suppress(AttributeError):  # Only glibc has it.
            ctypes.CDLL(None).malloc_trim(0)
        self._reset()
        writer.close()

    def _reset(self) -> None:
        self.longest = (0.0, 0.0)
        self._before = _clocks()


def _clocks() -> tuple[float, float]:
    return time.thread_time(), time.process_time()


def main() -> None:
    """Run the command line with a watch on the loop of its server."""
    start = Server.startup
    watches: list[asyncio.Task[None]] = []

    async def startup(server: Server, sockets: list[socket] | None = None) -> None:
        await start(server, sockets)
        watches.append(asyncio.create_task(Watch().run(Path(SOCKET))))

    with patch.object(Server, "startup", startup):
        app(prog_name="tableside")


if __name__ == "__main__":
    main()
