"""uvicorn's server with a graceful shutdown that ends within `limits.shutdown_s`.

The shutdown has five steps. The service keeps serving for `limits.drain_s`, reports that it is not ready and closes
each connection with its next response. It closes the listening sockets. It finishes requests in flight and closes idle
connections. Shortly before the end it cancels the requests that remain. It closes the stores.
"""

import asyncio
import faulthandler
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from types import FrameType
from typing import Any, cast

import msgspec
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE

from ..http import DRAINING_KEY, PROBES, ProblemResponse
from ..http.wire import problems
from ..settings import LimitSettings
from .connection import HttpConnection
from .exchange import SharedState
from .tls import RenewedContext, TlsFiles

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 75
"""Longer than clients keep an idle connection, so that they never send on one that is being closed."""

CLOSING_SHARE = 0.3
CLOSING_MAX_S = 2.0
"""The time reserved for closing the stores: this share of `limits.shutdown_s`, and at most this long."""

LATE_CHECK_TICKS = 20
CERTIFICATE_CHECK_TICKS = 50
"""The intervals of the checks for slow clients and for renewed certificates. The server ticks ten times per second."""


class ListenAddress(msgspec.Struct, frozen=True):
    """The address to listen on, the port for probes and metrics without TLS, and the HTML pages to log at start."""

    host: str
    port: int
    probes_port: int | None = None
    tls: TlsFiles | None = None
    pages: tuple[str, ...] = ()


class ServerConfig(uvicorn.Config):
    """The configuration of a server. With several workers, `app` is a function that each calls for its application."""

    def __init__(
        self, app: ASGIApp | Callable[[], ASGIApp], limits: LimitSettings, address: ListenAddress, workers: int = 1
    ) -> None:
        tls = address.tls
        super().__init__(
            app,
            factory=workers > 1,
            workers=workers,
            host=address.host,
            port=address.port,
            http=HttpConnection,
            ws="none",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,  # The service uses the address of the proxy, and not the scheme of a client.
            timeout_keep_alive=KEEP_ALIVE_S,
            # The server replaces the TLS context that uvicorn creates from these.
            ssl_certfile=tls.certificate if tls else None,
            ssl_keyfile=tls.key if tls else None,
            ssl_keyfile_password=tls.password if tls else None,
        )
        self.limits = limits
        self.address = address

    def bind(self) -> tuple[list[socket.socket], list[socket.socket]]:
        """Return bound sockets for the service and for its probes. Exit the process if a port cannot be used."""
        host, probes_port = self.address.host, self.address.probes_port
        return bound_sockets(host, self.address.port), [] if probes_port is None else bound_sockets(host, probes_port)


class Server(uvicorn.Server):
    """Serves an application until SIGTERM or SIGINT. A second signal ends the process immediately."""

    server_state: SharedState
    config: ServerConfig

    def __init__(self, config: ServerConfig, probes: Sequence[socket.socket] = ()) -> None:
        super().__init__(config)
        self._probes = probes
        self.server_state = SharedState()
        self._certificates: RenewedContext | None = None
        self._stopping_since: float | None = None
        self._owns_process = False

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on these sockets or on new ones, with as many open files as the process may have."""
        _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
        self._owns_process = True
        if sockets is None:  # Bind before any store is opened.
            sockets, self._probes = self.config.bind()
        super().run(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the application's stores, then listen."""
        address = self.config.address
        if address.tls is not None:
            registry = self.config.loaded_app.state.exposition.registry
            self.config.ssl = self._certificates = RenewedContext(address.tls, registry)
        await super().startup(sockets)
        for server in self.servers[:1]:
            host, port = server.sockets[0].getsockname()[:2]
            origin = f"{'https' if address.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
            for path in address.pages:
                log.info("page: %s%s", origin, path)
        for probes in self._probes:
            config = copy(self.config)
            config.loaded_app = probes_only(config.loaded_app)
            protocol = partial(HttpConnection, config, self.server_state, self.lifespan.state)
            loop = asyncio.get_running_loop()
            self.servers.append(await loop.create_server(protocol, sock=probes, backlog=config.backlog))
            log.info("serving probes and metrics on port %s", probes.getsockname()[1])
        if self._owns_process:  # Each garbage collection would spend up to 35 ms on the objects of the drivers.
            gc.collect()
            gc.freeze()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop. Regularly close the connections of slow clients and load renewed certificates."""
        if counter % CERTIFICATE_CHECK_TICKS == 0 and self._certificates is not None:
            self._certificates.check()
        if counter % LATE_CHECK_TICKS == 0:
            now = time.monotonic()
            for connection in [*self.server_state.connections]:
                if connection.is_late(now):
                    connection.sender.abort()
                elif connection.sender.unread_bytes:  # also of small responses
                    self.server_state.unread.count(connection.sender)
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the shutdown, or end the process if it has started already."""
        if self._stopping_since is None:
            self._stopping_since, self.should_exit = time.monotonic(), True
            # If anything hangs, even the event loop, a thread dumps the stacks and ends the process. A signal would
            # not do: its default action does not end the first process of a container.
            faulthandler.dump_traceback_later(self.config.limits.shutdown_s, exit=True)
        else:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
            os._exit(128 + sig)  # the first process of a container is still running

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down gracefully."""
        limits, started_at = self.config.limits, self._stopping_since or time.monotonic()
        cancel_at = started_at + limits.shutdown_s - min(CLOSING_MAX_S, CLOSING_SHARE * limits.shutdown_s)
        log.info("shutting down, within %g s", limits.shutdown_s)
        self.server_state.draining = self.lifespan.state[DRAINING_KEY] = True
        await asyncio.sleep(min(started_at + limits.drain_s, cancel_at) - time.monotonic())
        self.server_state.closing = True
        self.config.timeout_graceful_shutdown = cast("int", max(0.0, cancel_at - time.monotonic()))
        await super().shutdown(sockets)


def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """Return a bound socket for each address of a host, which worker processes inherit.

    Exit the process with one line in the log if the port is in use, or the host has another fault.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return [bound_socket(family, address) for family, address in dict.fromkeys((one[0], one[4]) for one in found)]
    except OSError as error:
        log.error("cannot listen on %s, port %s: %s", host, port, error.strerror)
        sys.exit(STARTUP_FAILURE)


def bound_socket(family: int, address: Any, *, shared: bool = False) -> socket.socket:
    """Return a bound socket, with a port that other sockets can use if it is `shared`."""
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind(address)
    listener.set_inheritable(True)
    return listener


def probes_only(app: ASGIApp) -> ASGIApp:
    """Return an application that serves the probes and metrics of `app`, whose clients need no certificate."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            await app(scope, receive, send)
        else:
            error = problems.NotFound("this port serves only probes and metrics")
            await ProblemResponse(error)(scope, receive, send)

    return serve
