"""A supervisor that starts several worker processes, replaces workers that die, and shuts all of them down."""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from multiprocessing.context import SpawnProcess
from types import FrameType

from uvicorn.config import STARTUP_FAILURE

from ..telemetry import DIRECTORY_VARIABLE
from .server import Server, ServerConfig, bound_socket

log = logging.getLogger(__name__)

POLL_S = 0.1

_ENDED_DURING_STARTUP = -signal.SIGTERM
"""The exit code of a worker that SIGTERM ended before it served anything. Later, the worker handles the signal."""


class Supervisor:
    """Runs the worker processes. They share the ports and a directory with the files of their metrics.

    SIGTERM and SIGINT shut all workers down. A second one kills them. SIGHUP is passed on to the workers.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._sockets, self._probes = config.bind()
        for reserved in self._sockets if _EACH_LISTENS else ():
            # Set after binding: another service cannot use the same port, but the workers can.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._config = config
        self._workers: list[SpawnProcess] = []
        self._stopping_since: float | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        # SIGHUP is blocked: `serve` polls for it here. A worker inherits the mask and unblocks SIGHUP when it is ready.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})

    def serve(self) -> int:
        """Run until a signal, and return the exit code: 0 if no worker failed and each shut down in time."""
        with tempfile.TemporaryDirectory(prefix="tableside-metrics-", ignore_cleanup_errors=True) as directory:
            if not os.environ.get(DIRECTORY_VARIABLE):
                os.environ[DIRECTORY_VARIABLE] = directory
            try:
                self._workers = [self._start_worker() for _ in range(self._config.workers)]
                while self._stopping_since is None:
                    if signal.sigtimedwait({signal.SIGHUP}, POLL_S) is not None:
                        self._signal_workers(signal.SIGHUP)
                    if not self._replace_dead_workers():
                        return STARTUP_FAILURE
                self._signal_workers(signal.SIGTERM)
                for listener in (*self._sockets, *self._probes):
                    listener.close()
                kill_at = self._stopping_since + self._config.limits.shutdown_s
                for worker in self._workers:
                    worker.join(max(0.0, kill_at - time.monotonic()))
                    if worker.exitcode is None:
                        log.error("worker %s did not end in time", worker.pid)
                return int(any(worker.exitcode not in (0, _ENDED_DURING_STARTUP) for worker in self._workers))
            finally:
                for worker in self._workers:
                    worker.kill()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._stopping_since is not None:
            raise SystemExit(128 + number)
        self._stopping_since = time.monotonic()

    def _start_worker(self) -> SpawnProcess:
        arguments = self._config, self._sockets, self._probes
        worker = multiprocessing.get_context("spawn").Process(target=_work, args=arguments)
        worker.start()
        return worker

    def _signal_workers(self, number: int) -> None:
        for worker in self._workers:
            if worker.is_alive() and worker.pid is not None:
                os.kill(worker.pid, number)

    def _replace_dead_workers(self) -> bool:
        """Replace workers that died. Return False if one could not start: another would fail too."""
        for index, worker in enumerate(self._workers):
            if self._stopping_since is None and not worker.is_alive():
                if worker.exitcode == STARTUP_FAILURE:
                    return False
                log.error("worker %s ended with code %s and is replaced", worker.pid, worker.exitcode)
                self._workers[index] = self._start_worker()
        return True


class _WorkerServer(Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then reload the settings if a SIGHUP has arrived before."""
        await super().startup(sockets)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def _work(config: ServerConfig, sockets: list[socket.socket], probes: list[socket.socket]) -> None:
    # A terminal sends SIGINT to all processes, and the supervisor then sends SIGTERM.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    if _EACH_LISTENS:
        reserved, sockets = sockets, [bound_socket(each.family, each.getsockname(), shared=True) for each in sockets]
        for each in reserved:
            each.close()
    _WorkerServer(config, probes).run(sockets)


_EACH_LISTENS = sys.platform == "linux"
"""Whether each worker has a listening socket. On a common one, the first that wakes up accepts all connections."""
