"""A second process that parses and encodes large values.

Parsing some megabytes of JSON is one call in C. It keeps the interpreter's lock, so no other request of this process
continues, in whatever thread the call runs. A call in another process delays no request, and uses another core.
"""

import asyncio
import contextlib
import ctypes
import io
import logging
import os
import pickle
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

from .errors import TableError
from .shortest_first import ShortestFirst

log = logging.getLogger(__name__)

Result = TypeVar("Result")

NICENESS = 5
"""The helper yields the processor to the service, which answers short requests."""

RESTART_PAUSE_S = 10.0
"""How long the service computes in threads after the helper could not be started or has failed."""

TRIM_BYTES_MIN = 2**20
"""After work with this many bytes, the helper returns unused memory to the operating system."""

PART_BYTES_MIN = 2**16
"""Byte strings of at least this size are sent without a copy."""

START_MAX_S = 30.0
STOP_MAX_S = 2.0

Message: TypeAlias = list[bytes]
"""A pickled object, after the long byte strings that it contains."""

_NUMBER = struct.Struct("=Q")


class HelperFailed(Exception):
    """The helper has not done the work, perhaps because it has ended. The work may be done elsewhere."""


class HelperProcess:
    """Starts the process when it is first used, and gives it one piece of work at a time.

    A thread sends each piece and receives its result. The process ends when its socket is closed, so also when the
    service is killed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "tableside-helper")
        self._turns = ShortestFirst()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._starting = self._closed = False
        self._start_at = -RESTART_PAUSE_S
        self.ready = False

    @property
    def pid(self) -> int | None:
        """The id of the process, None before its first start."""
        return None if self._process is None else self._process.pid

    def start_soon(self) -> None:
        """Start the process in the background, unless it is running, starting, or has just failed."""
        if not (self.ready or self._starting or self._closed) and self._clock() >= self._start_at:
            self._starting = True
            self._thread.submit(self._start)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Call a picklable function in the process. Return its result, or raise the TableError that it raises.

        Raise HelperFailed if the process did not do it. Short work comes first, and work of cancelled callers is not
        started.
        """
        try:
            message = _packed(work)  # Copies no long byte string.
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise HelperFailed(f"not picklable: {error}") from error
        await self._turns.take(sum(map(len, message)))
        try:
            result: Result = await asyncio.get_running_loop().run_in_executor(self._thread, self._call, message)
        finally:
            self._turns.give()
        return result

    async def close(self) -> None:
        """End the process. Work in progress raises HelperFailed."""
        self._closed, self.ready = True, False
        if self._socket is not None:
            with contextlib.suppress(OSError):  # The process may have ended.
                self._socket.shutdown(socket.SHUT_RDWR)
        await asyncio.to_thread(self._thread.shutdown)
        await asyncio.to_thread(self._stop)

    def _start(self) -> None:
        ours, its = socket.socketpair()
        code = f"from {__name__} import serve; serve({its.fileno()})"
        try:
            with its:
                self._process = subprocess.Popen(  # noqa: S603  # our own command line
                    [sys.executable, "-P", "-c", code],
                    pass_fds=[its.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C reaches only the service.
                )
            self._socket = ours
            ours.settimeout(START_MAX_S)
            _receive(ours)
            ours.settimeout(None)
            self.ready = not self._closed
        except (OSError, HelperFailed) as error:
            self._socket = ours
            self._fail(error)
        finally:
            self._starting = False

    def _call(self, message: Message) -> Any:
        if not self.ready or self._socket is None:
            raise HelperFailed
        try:
            _send(self._socket, message)
            done, result = _unpacked(_receive(self._socket))
        except (OSError, HelperFailed) as error:
            self._fail(error)
            raise HelperFailed from error
        if done:
            return result
        if isinstance(result, TableError):
            raise result
        raise HelperFailed(result)

    def _fail(self, error: Exception) -> None:
        self.ready = False
        if not self._closed:
            self._start_at = self._clock() + RESTART_PAUSE_S
            self._stop()
            status = None if self._process is None else self._process.returncode
            log.warning("the helper process has failed (%s, exit status %s): threads replace it", error, status)

    def _stop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            try:
                self._process.wait(STOP_MAX_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def serve(number: int) -> None:
    """Do the work that arrives at the socket with this file number, until it is closed."""
    os.nice(NICENESS)
    with socket.socket(fileno=number) as connection:
        _send(connection, [])
        while True:
            try:
                answer = _answer(_receive(connection))
                _send(connection, answer)
            except (OSError, HelperFailed):
                return
            size_bytes = sum(map(len, answer))
            del answer
            if size_bytes >= TRIM_BYTES_MIN:
                _trim()


def _answer(message: Message) -> Message:
    """Return true and the result, or false and the error: a TableError, or the description of another one."""
    try:
        return _packed((True, _unpacked(message)()))
    except TableError as error:
        return _packed((False, error.with_traceback(None)))
    except Exception as error:  # noqa: BLE001  # the service repeats the work in a thread, where it raises the error
        return _packed((False, repr(error)))


def _packed(content: object) -> Message:
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    pickler.dump(content)
    return [*pickler.parts, buffer.getvalue()]


def _unpacked(message: Message) -> Any:
    return _Unpickler(message).load()


class _Pickler(pickle.Pickler):
    """Leaves long byte strings out, because copying them blocks the interpreter."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.parts: Message = []

    def persistent_id(self, content: object) -> int | None:
        """Return the index of a long byte string among the parts, or None for other objects."""
        if type(content) is not bytes or len(content) < PART_BYTES_MIN:
            return None
        self.parts.append(content)
        return len(self.parts) - 1


class _Unpickler(pickle.Unpickler):
    """Restores an object with its parts."""

    def __init__(self, message: Message) -> None:
        super().__init__(io.BytesIO(message.pop()))
        self._parts = message

    def persistent_load(self, index: int) -> bytes:
        """Return the part with this index."""
        return self._parts[index]


def _send(connection: socket.socket, message: Message) -> None:
    """Send the parts of a message. The interpreter's lock is released while their bytes are copied."""
    connection.sendall(_NUMBER.pack(len(message)))
    for part in message:
        connection.sendall(_NUMBER.pack(len(part)))
        connection.sendall(part)


def _receive(connection: socket.socket) -> Message:
    """Return the next message. Raise HelperFailed if the connection is closed before or within it."""
    count = _receive_number(connection)
    return [_receive_bytes(connection, _receive_number(connection)) for _ in range(count)]


def _receive_number(connection: socket.socket) -> int:
    [number] = _NUMBER.unpack(_receive_bytes(connection, _NUMBER.size))
    return int(number)


def _receive_bytes(connection: socket.socket, size_bytes: int) -> bytes:
    data = connection.recv(size_bytes, socket.MSG_WAITALL)
    while len(data) < size_bytes:  # A signal may have interrupted the call.
        more = connection.recv(size_bytes - len(data), socket.MSG_WAITALL)
        if not more:
            raise HelperFailed("the connection was closed")
        data += more
    return data


def _trim() -> None:
    with contextlib.suppress(AttributeError, OSError):  # Only glibc has it.
        ctypes.CDLL(None).malloc_trim(0)
