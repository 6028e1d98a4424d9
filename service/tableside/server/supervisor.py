"""Several processes that serve together: starts them, replaces one that ends, and has all of them end in order.

They accept from one listening socket, which is this process's to close. Knows nothing of what they serve.
"""

import logging
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket
from types import FrameType

from uvicorn.config import STARTUP_FAILURE
from uvicorn.server import Server as UvicornServer
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from ..telemetry import DIRECTORY_VARIABLE
from .server import Config, Server
from .sockets import refuse_new

log = logging.getLogger(__name__)

LOOK_S = 0.1


class Worker(Process):
    """One process."""

    def __init__(self, config: Config, sockets: list[socket]) -> None:
        super().__init__(config, sockets)
        self._config = config

    @property
    def server(self) -> UvicornServer:
        """Return its server, made in the process itself."""
        if self._server is None:
            self._server = Server(self._config, supervised=True)
        return self._server


class Workers(Multiprocess):
    """The processes, as many as the configuration says. They share what is counted in a directory of files.

    SIGTERM and SIGINT are for this process, which tells the others; so is a second one, which kills them.
    SIGHUP is passed on.
    """

    def __init__(self, config: Config) -> None:
        probes = config.probes_socket()
        super().__init__(config, [config.bind_socket(), *([] if probes is None else [probes])])
        self._config = config
        self._limits = config.limits
        self._asked_at: float | None = None
        self._failed = False
        for sig in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sig, self._asked)

    def serve(self) -> int:
        """Run until told to end, and return the exit code: 0 if every worker ended in order."""
        with _metrics_directory():
            self.init_processes()
            try:
                while self._asked_at is None and not self._failed:
                    time.sleep(LOOK_S)
                    self.handle_signals()
                    self.keep_subprocess_alive()
                self._end()
            finally:
                for process in self.processes:
                    process.process.kill()
        return STARTUP_FAILURE if self._failed else int(any(process.exitcode != 0 for process in self.processes))

    def init_processes(self) -> None:
        """Start the processes."""
        self.processes = [self._started() for _ in range(self.processes_num)]

    def keep_subprocess_alive(self) -> None:
        """Replace who has ended or hangs, unless that was while starting: another would fare no better."""
        for place, process in enumerate(self.processes):
            if self._asked_at is not None or process.is_alive(self.config.timeout_worker_healthcheck):
                continue
            process.kill()
            process.join()
            if process.exitcode == STARTUP_FAILURE:
                self._failed = True
                return
            if self._asked_at is None:
                log.error("worker %s ended with code %s and is replaced", process.pid, process.exitcode)
                self.processes[place] = self._started()

    def handle_hup(self) -> None:
        """Have every worker look at the configuration; one that still starts reads it anyway."""
        for process in self.processes:
            if process.is_ready(timeout=1) and process.pid is not None:
                os.kill(process.pid, signal.SIGHUP)

    def handle_ttin(self) -> None:
        """Keep the number: how much each may do depends on it."""

    def handle_ttou(self) -> None:
        """Keep the number: how much each may do depends on it."""

    def _started(self) -> Worker:
        worker = Worker(self._config, self.sockets)
        worker.start()
        return worker

    def _asked(self, sig: int, frame: FrameType | None) -> None:
        if self._asked_at is not None:
            raise SystemExit(128 + sig)
        self._asked_at = time.monotonic()

    def _end(self) -> None:
        """Tell every worker, close the door, and wait for them, as long as there is time."""
        asked_at = self._asked_at or time.monotonic()
        for process in self.processes:
            process.terminate()
        time.sleep(max(0.0, min(self._limits.drain_s, self._limits.shutdown_s) + asked_at - time.monotonic()))
        refuse_new(self.sockets)
        for one in self.sockets:
            one.close()
        for process in self.processes:
            process.process.join(max(0.0, asked_at + self._limits.shutdown_s - time.monotonic()))
            if process.exitcode is None:
                log.error("worker %s did not end in time", process.pid)
                process.process.kill()
                process.process.join()


@contextmanager
def _metrics_directory() -> Iterator[None]:
    """Give the workers a directory for what they count, unless there is one."""
    if os.environ.get(DIRECTORY_VARIABLE):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tableside-metrics-", ignore_cleanup_errors=True) as directory:
        os.environ[DIRECTORY_VARIABLE] = directory
        yield
