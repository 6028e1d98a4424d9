"""A supervisor that starts several worker processes, replaces those that die, and shuts all of them down."""

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
from uvicorn.supervisors.multiprocess import Process

from ..telemetry import DIRECTORY_VARIABLE
from .server import Server, ServerConfig

log = logging.getLogger(__name__)

POLL_S = 0.1

STARTUP_MAX_S = 30.0
"""How long after its start a worker need not answer health checks: on a busy machine its imports take long."""


class Worker(Process):
    """A worker process."""

    config: ServerConfig

    def __init__(self, config: ServerConfig, sockets: list[socket]) -> None:
        super().__init__(config, sockets)
        self.started_at = time.monotonic()

    @property
    def server(self) -> Server:
        """The server of the worker, created in its process."""
        if self._server is None:
            self._server = Server(self.config, supervised=True)
        assert isinstance(self._server, Server)
        return self._server

    def is_healthy(self) -> bool:
        """Return whether the process runs and, unless it may still be starting, answers a health check."""
        if time.monotonic() - self.started_at < STARTUP_MAX_S:
            return self.process.is_alive()
        return self.is_alive(self.config.timeout_worker_healthcheck)


class Supervisor:
    """Runs the worker processes. They share the listening sockets and a directory with the files of their metrics.

    SIGTERM and SIGINT shut all workers down; a second one kills them. SIGHUP is passed on to the workers.
    """

    def __init__(self, config: ServerConfig) -> None:
        probes = config.probes_socket()
        self._sockets = [config.bind_socket(), *([] if probes is None else [probes])]
        self._config = config
        self._limits = config.limits
        self._workers: list[Worker] = []
        self._stopping_since: float | None = None
        self._hangup = False
        self._failed = False
        for sig in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sig, self._stop)
        signal.signal(signal.SIGHUP, self._note_hangup)

    def serve(self) -> int:
        """Run until a signal, and return the exit code: 0 if every worker shut down gracefully."""
        with _metrics_directory():
            self._workers = [self._start_worker() for _ in range(self._config.workers)]
            try:
                while self._stopping_since is None and not self._failed:
                    time.sleep(POLL_S)
                    self._pass_hangup_on()
                    self._replace_dead_workers()
                self._stop_workers()
            finally:
                for worker in self._workers:
                    worker.process.kill()
        return STARTUP_FAILURE if self._failed else int(any(worker.exitcode != 0 for worker in self._workers))

    def _start_worker(self) -> Worker:
        worker = Worker(self._config, self._sockets)
        worker.start()
        return worker

    def _stop(self, sig: int, frame: FrameType | None) -> None:
        if self._stopping_since is not None:
            raise SystemExit(128 + sig)
        self._stopping_since = time.monotonic()

    def _note_hangup(self, sig: int, frame: FrameType | None) -> None:
        self._hangup = True

    def _pass_hangup_on(self) -> None:
        """Make the workers reload the settings. A worker that is still starting reads the new ones anyway."""
        if not self._hangup:
            return
        self._hangup = False
        for worker in self._workers:
            if worker.is_ready(timeout=1) and worker.pid is not None:
                os.kill(worker.pid, signal.SIGHUP)

    def _replace_dead_workers(self) -> None:
        """Replace workers that died or hang. Fail if one could not start: another would fail too."""
        for index, worker in enumerate(self._workers):
            if self._stopping_since is not None or worker.is_healthy():
                continue
            worker.kill()
            worker.join()
            if worker.exitcode == STARTUP_FAILURE:
                self._failed = True
                return
            if self._stopping_since is None:
                log.error("worker %s ended with code %s and is replaced", worker.pid, worker.exitcode)
                self._workers[index] = self._start_worker()

    def _stop_workers(self) -> None:
        """Tell every worker to shut down, close the listening sockets, and kill the workers that take too long."""
        stopping_since = self._stopping_since or time.monotonic()
        for worker in self._workers:
            worker.terminate()
        for listener in self._sockets:
            listener.close()
        for worker in self._workers:
            worker.process.join(max(0.0, stopping_since + self._limits.shutdown_s - time.monotonic()))
            if worker.exitcode is None:
                log.error("worker %s did not end in time", worker.pid)
                worker.process.kill()
                worker.process.join()


@contextmanager
def _metrics_directory() -> Iterator[None]:
    """Give the workers a directory for the files of their metrics, unless the environment names one."""
    if os.environ.get(DIRECTORY_VARIABLE):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tableside-metrics-", ignore_cleanup_errors=True) as directory:
        os.environ[DIRECTORY_VARIABLE] = directory
        yield
