"""One set of servers for a whole test run, shared by all its processes.

The process that starts the run owns the servers: it starts each when a test first needs it and stops all at the end.
The test processes ask it for addresses over a Unix socket.
"""

import contextlib
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import cast

from .dynamodb import dynamodb_local
from .kafka import kafka
from .postgres import postgres
from .redis import redis, redis_cluster

Address = str | list[str]

SERVERS: Mapping[str, Callable[[Path], AbstractContextManager[Address]]] = {
    "redis": redis,
    "cluster": redis_cluster,
    "postgres": postgres,
    "dynamodb": dynamodb_local,
    "kafka": kafka,
}


class Servers:
    """The servers of a run, by name."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._lock = threading.Lock()
        self._started: dict[str, Future[Address]] = {}
        # The kernel stops a server when the thread that started it ends: these threads last as long as the pool.
        self._threads = ThreadPoolExecutor(len(SERVERS), "servers")
        stack.callback(self._threads.shutdown)

    def address(self, name: str) -> Address:
        """Return the address of a server, and start it on first use. Raises `ServerFailed`."""
        with self._lock:
            if name not in self._started:
                self._started[name] = self._threads.submit(self._start, name)
        return self._started[name].result()

    def _start(self, name: str) -> Address:
        server = SERVERS[name](self._directory / name)
        address = server.__enter__()
        with self._lock:
            self._stack.push(server)
        return address


@contextlib.contextmanager
def servers() -> Iterator[Servers]:
    """Yield the servers of a run, and stop the started ones at the end."""
    with tempfile.TemporaryDirectory(prefix="tableside-servers-") as directory, ExitStack() as stack:
        yield Servers(Path(directory), stack)


@contextlib.contextmanager
def listening(owned: Servers) -> Iterator[tuple[str, str]]:
    """Serve the test processes. Yield the socket's path and the key that they connect with."""
    key = secrets.token_hex()
    with (
        tempfile.TemporaryDirectory(prefix="tableside-servers-") as directory,
        Listener(f"{directory}/socket", authkey=key.encode()) as listener,
    ):
        threading.Thread(target=_accept, args=(listener, owned), daemon=True).start()
        yield str(listener.address), key


@dataclass(frozen=True)
class Connected:
    """The servers of the process at the other end of a socket."""

    path: str
    key: str

    def address(self, name: str) -> Address:
        """Return the address of a server, which starts on first use. Raises `ServerFailed`."""
        with Client(self.path, authkey=self.key.encode()) as connection:
            connection.send(name)
            answer = connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return cast("Address", answer)


def _accept(listener: Listener, owned: Servers) -> None:
    while True:
        try:
            connection = listener.accept()
        except OSError:  # the run has ended
            return
        threading.Thread(target=_answer, args=(connection, owned), daemon=True).start()


def _answer(connection: Connection, owned: Servers) -> None:
    with connection:
        try:
            connection.send(owned.address(connection.recv()))
        except Exception as error:  # noqa: BLE001 - raised again in the process that asked
            connection.send(error)
