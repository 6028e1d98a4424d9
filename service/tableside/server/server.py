"""uvicorn's server with a graceful shutdown that ends within `limits.shutdown_s`.

The shutdown has five steps. The service keeps serving for `limits.drain_s`, reports that it is not ready and closes
each connection with its next response. It closes the listening sockets. It finishes requests in flight and closes idle
connections. Shortly before the end it cancels the requests that remain. It closes the stores.
"""

import asyncio
import faulthandler
import logging
import math
import os
import resource
import signal
import socket
import sys
import time
from copy import copy
from types import FrameType
from typing import cast

import msgspec
import uvicorn
from uvicorn.config import STARTUP_FAILURE

from ..settings import LimitSettings
from .connection import HttpConnection, SharedState, late_connections
from .health_port import probes_only
from .tls import CertificateReloader, TlsFiles

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 75
"""Longer than clients keep an idle connection, so that they never send on one that is being closed."""

CLOSING_SHARE = 0.3
CLOSING_MAX_S = 2.0
"""The time reserved for closing the stores: this share of `limits.shutdown_s`, and at most this long."""

LATE_CHECK_TICKS = 20
CERTIFICATE_CHECK_TICKS = 50
"""The intervals of the checks for slow clients and for renewed certificates; the server ticks ten times per second."""

POLL_S = 0.02


class ListenAddress(msgspec.Struct, frozen=True):
    """The address to listen on, and the port of a second listener for probes and metrics, without TLS."""

    host: str
    port: int
    probes_port: int | None = None
    tls: TlsFiles | None = None


class ServerConfig(uvicorn.Config):
    """The configuration of a server. With several workers `app` is the name of an application factory."""

    def __init__(self, app: object, limits: LimitSettings, address: ListenAddress, workers: int = 1) -> None:
        tls = address.tls
        super().__init__(
            app,  # type: ignore[arg-type]  # an application or a name
            factory=isinstance(app, str),
            workers=workers,
            host=address.host,
            port=address.port,
            http=HttpConnection,
            ws="none",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=math.ceil(limits.shutdown_s),
            # The server replaces the TLS context that uvicorn creates from these.
            ssl_certfile=tls.certificate if tls else None,
            ssl_keyfile=tls.key if tls else None,
            ssl_keyfile_password=tls.password if tls else None,
        )
        self.limits = limits
        self.address = address

    def probes_socket(self) -> socket.socket | None:
        """Return a bound socket for the probes' port, if there is one. Exit the process if the port is in use."""
        host, port = self.address.host, self.address.probes_port
        if port is None:
            return None
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            log.error("cannot listen on %s, port %s: %s", host, port, error.strerror)
            sys.exit(STARTUP_FAILURE)
        listener.set_inheritable(True)
        return listener


class Server(uvicorn.Server):
    """Serves an application until SIGTERM or SIGINT. A second signal ends the process at once.

    With `supervised`, several processes share the listening sockets, and the supervisor handles the second signal.
    """

    server_state: SharedState
    config: ServerConfig

    def __init__(self, config: ServerConfig, *, supervised: bool = False) -> None:
        super().__init__(config)
        self.server_state = SharedState()
        self._limits = config.limits
        self._certificates: CertificateReloader | None = None
        self._supervised = supervised
        self._stopping_since: float | None = None

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve, with as many open files as the process may have."""
        _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
        super().run(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the application's stores, then listen on the supervisor's sockets or on new ones."""
        probes = self.config.probes_socket() if sockets is None else next(iter(sockets[1:]), None)
        if self.config.address.tls is not None:
            self._certificates = CertificateReloader(self.config.address.tls)
            self.config.ssl = self._certificates.context
        await super().startup(None if sockets is None else sockets[:1])
        if probes is not None:
            self.servers.append(await self._listen_for_probes(probes))

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop. Close the connections of slow clients and load renewed certificates now and then."""
        if counter % CERTIFICATE_CHECK_TICKS == 0 and self._certificates is not None:
            self._certificates.check()
        if counter % LATE_CHECK_TICKS == 0:
            for connection in late_connections(self._connections(), asyncio.get_running_loop().time()):
                connection.transport.abort()
        return await super().on_tick(counter)

    async def _listen_for_probes(self, probes: socket.socket) -> asyncio.Server:
        config = copy(self.config)
        config.loaded_app = probes_only(config.loaded_app)

        def protocol() -> HttpConnection:
            return HttpConnection(config=config, server_state=self.server_state, app_state=self.lifespan.state)

        server = await asyncio.get_running_loop().create_server(protocol, sock=probes, backlog=config.backlog)
        log.info("serving probes and metrics on port %s", server.sockets[0].getsockname()[1])
        return server

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the shutdown, or end the process if it has started already."""
        if self._stopping_since is None:
            self._start_shutdown()
            # If anything hangs, even the event loop, a thread dumps the stacks and ends the process. A signal would
            # not do: its default action does not end the first process of a container.
            faulthandler.dump_traceback_later(self._limits.shutdown_s, exit=True)
        elif not self._supervised:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
            os._exit(128 + sig)  # the first process of a container is still running

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down gracefully."""
        stopping_since = self._start_shutdown()
        ends_at = stopping_since + self._limits.shutdown_s
        cancel_at = ends_at - min(CLOSING_MAX_S, CLOSING_SHARE * self._limits.shutdown_s)
        log.info("about to stop, within %g s", self._limits.shutdown_s)
        for connection in self._connections():
            connection.announce_close()
        await asyncio.sleep(min(stopping_since + self._limits.drain_s, cancel_at) - time.monotonic())
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        self.server_state.closing = True
        await self._finish_requests(cancel_at)
        await self._cancel_requests((ends_at - cancel_at) / 4)
        await self._close_stores(ends_at)

    def _start_shutdown(self) -> float:
        """Return when the shutdown started, which is now unless it started before."""
        if self._stopping_since is None:
            self.should_exit = self.server_state.draining = True
            self._stopping_since = time.monotonic()
        return self._stopping_since

    async def _finish_requests(self, cancel_at: float) -> None:
        state = self.server_state
        while (state.connections or state.tasks) and time.monotonic() < cancel_at:
            await asyncio.sleep(POLL_S)  # reads requests that have arrived, before their connections are closed as idle
            for connection in self._connections():
                connection.shutdown()

    async def _cancel_requests(self, timeout_s: float) -> None:
        """Cancel the remaining requests, let them respond, and close all connections."""
        if tasks := list(self.server_state.tasks):
            log.warning("%d requests were not finished in time", len(tasks))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=timeout_s)
        await asyncio.sleep(POLL_S)  # sends the responses
        for connection in self._connections():
            connection.transport.abort()

    async def _close_stores(self, ends_at: float) -> None:
        try:
            async with asyncio.timeout(ends_at - time.monotonic() - POLL_S):
                await self.lifespan.shutdown()
        except TimeoutError:
            log.error("stores were not closed in time")
            logging.shutdown()
            os._exit(1)

    def _connections(self) -> list[HttpConnection]:
        return cast("list[HttpConnection]", list(self.server_state.connections))
