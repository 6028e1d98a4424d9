"""The server: uvicorn's, which ends in order when it is told to.

In this order, and all of it within `limits.shutdown_s`: requests are served for a while by a service that says that it
is not ready, and that each answer is the connection's last; no more connections are taken, and none that was
established is lost; requests in flight are finished, or cancelled when time runs out; the stores are closed.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from types import FrameType
from typing import cast

import msgspec
import uvicorn
from uvicorn.config import STARTUP_FAILURE

from ..settings import LimitSettings
from .connection import Protocol, State
from .health_port import probes_only
from .slow_readers import late
from .sockets import bound, readable, refuse_new
from .tls import Renewal, Tls

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 75
"""Longer than clients keep an idle connection, so that they never send on one that is being closed."""

CLOSING_SHARE = 0.3
CLOSING_MAX_S = 2.0
"""How much of the time is kept for stores to be closed: a share of it, and at most so much."""

HANDSHAKE_S = 0.05
"""How long a connection may take whose first segment has come when no more are taken."""

HANDOVER_S = 0.3
"""How much later than its supervisor a worker stops to accept."""

FRESH_S = 1.0
"""How long somebody who has connected may take to send a request before the connection is closed."""

LATE_TICKS = 20
"""Every how many of the server's ticks, ten in a second, it looks for connections that say nothing."""

RENEWAL_TICKS = 50
"""Every how many of them it looks whether the certificate's files have changed."""

LOOK_S = 0.02


class Place(msgspec.Struct, frozen=True):
    """Where to listen: at the port for everything, and at another, in plain, for probes and metrics only."""

    host: str
    port: int
    probes_port: int | None = None
    tls: Tls | None = None


class Config(uvicorn.Config):
    """How to serve an application; one that several processes serve is given as the name of what makes it."""

    def __init__(self, app: object, limits: LimitSettings, place: Place, workers: int = 1) -> None:
        super().__init__(
            app,  # type: ignore[arg-type]  # an application or a name
            factory=isinstance(app, str),
            workers=workers,
            host=place.host,
            port=place.port,
            http=Protocol,
            ws="none",
            access_log=False,
            log_config=None,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=math.ceil(limits.shutdown_s),
            **(place.tls.options() if place.tls else {}),
        )
        self.limits = limits
        self.place = place

    def probes_socket(self) -> socket.socket | None:
        """Return a socket bound to the port for probes, if there is to be one. End the process if that is taken."""
        if self.place.probes_port is None:
            return None
        try:
            return bound(self.place.host, self.place.probes_port)
        except OSError as error:
            log.error("cannot listen on %s, port %s: %s", self.place.host, self.place.probes_port, error.strerror)
            sys.exit(STARTUP_FAILURE)


class Server(uvicorn.Server):
    """Serves an application until it is told to end, by SIGTERM or SIGINT; a second one ends the process at once.

    With a supervisor several such processes share their listening sockets. It closes those, and is who is told twice.
    """

    def __init__(self, config: Config, *, supervised: bool = False) -> None:
        super().__init__(config)
        self.server_state: State = State()
        self._limits = config.limits
        self._place = config.place
        self._probes_socket = config.probes_socket
        self._renewal: Renewal | None = None
        self._supervised = supervised
        self._asked_at: float | None = None

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve, with as many connections as this process may have."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        super().run(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the application's stores, then listen: on the sockets of a supervisor, else on one's own."""
        probes = self._probes_socket() if sockets is None else next(iter(sockets[1:]), None)
        if self._place.tls is not None:
            self._renewal = Renewal(self._place.tls)
            self.config.ssl = self._renewal.context
        await super().startup(None if sockets is None else sockets[:1])
        if probes is not None:
            self.servers.append(await self._listening_for_probes(probes))

    async def on_tick(self, counter: int) -> bool:
        """Look whether it is time to end; now and then, who says nothing, and whether a certificate is new."""
        if counter % RENEWAL_TICKS == 0 and self._renewal is not None:
            self._renewal.look()
        if counter % LATE_TICKS == 0:
            for connection in late(self._connections(), asyncio.get_running_loop().time()):
                connection.transport.abort()
        return await super().on_tick(counter)

    async def _listening_for_probes(self, probes: socket.socket) -> asyncio.Server:
        config = copy(self.config)
        config.loaded_app = probes_only(config.loaded_app)

        def protocol() -> Protocol:
            return Protocol(config=config, server_state=self.server_state, app_state=self.lifespan.state)

        loop = asyncio.get_running_loop()
        server = await loop.create_server(protocol, sock=probes, backlog=config.backlog)
        log.info("probes and metrics are answered on port %s", server.sockets[0].getsockname()[1])
        return server

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, when a signal says so."""
        if self._asked_at is None:
            self._ask()
            # Whatever hangs, be it this process's own loop: a thread of its own ends it, and says what hung. Not a
            # signal, since those end no process that is the first one of a container.
            faulthandler.dump_traceback_later(self._limits.shutdown_s, exit=True)
        elif not self._supervised:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
            os._exit(128 + sig)  # of a container's first process

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in order."""
        if self._asked_at is None:
            self._ask()
        assert self._asked_at is not None
        ends_at = self._asked_at + self._limits.shutdown_s
        cancel_at = ends_at - min(CLOSING_MAX_S, CLOSING_SHARE * self._limits.shutdown_s)
        log.info("about to stop, within %g s", self._limits.shutdown_s)
        await self._drain(cancel_at)
        await self._stop_listening(sockets or [], cancel_at)
        await self._finish(cancel_at)
        await self._cancel((ends_at - cancel_at) / 4)
        await self._close_stores(ends_at)

    def _ask(self) -> None:
        self.should_exit = True
        self.server_state.draining = True
        self._asked_at = time.monotonic()

    async def _drain(self, cancel_at: float) -> None:
        for connection in self._connections():
            connection.last_answer()
        assert self._asked_at is not None
        await asyncio.sleep(min(self._asked_at + self._limits.drain_s, cancel_at) - time.monotonic())

    async def _stop_listening(self, sockets: Sequence[socket.socket], cancel_at: float) -> None:
        """Accept who is connected, then nobody any more."""
        with _duplicates(self.servers) as listeners:
            if not self._supervised:
                refuse_new(listeners)
            await asyncio.sleep(min(HANDOVER_S if self._supervised else HANDSHAKE_S, cancel_at - time.monotonic()))
            # The loop accepts them, and tells nobody.
            while readable(listeners) and time.monotonic() < cancel_at:  # noqa: ASYNC110
                await asyncio.sleep(0)
            for server in self.servers:
                server.close()
        for one in sockets:
            one.close()

    async def _finish(self, cancel_at: float) -> None:
        """Return when everybody is answered, or when it is time to cancel."""
        fresh_until = min(time.monotonic() + FRESH_S, cancel_at)
        fresh = True
        while self._is_needed(fresh=fresh) and time.monotonic() < cancel_at:
            fresh = time.monotonic() < fresh_until
            for connection in self._connections():
                if not (connection.fresh and fresh):
                    connection.shutdown()
            await asyncio.sleep(LOOK_S)

    def _is_needed(self, *, fresh: bool) -> bool:
        """Whether somebody is to be answered, or has connected a moment ago and may still ask."""
        state = self.server_state
        return bool(state.connections or state.tasks or (fresh and state.beginning))

    async def _cancel(self, answer_s: float) -> None:
        """Cancel what is not finished, and let that be said to whoever waits for it."""
        if tasks := list(self.server_state.tasks):
            log.warning("%d requests were not finished in time", len(tasks))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=answer_s)
        await asyncio.sleep(LOOK_S)  # so that answers leave
        for connection in self._connections():
            connection.transport.abort()

    async def _close_stores(self, ends_at: float) -> None:
        try:
            async with asyncio.timeout(ends_at - time.monotonic() - LOOK_S):
                await self.lifespan.shutdown()
        except TimeoutError:
            log.error("stores were not closed in time")
            logging.shutdown()
            os._exit(1)

    def _connections(self) -> list[Protocol]:
        return cast("list[Protocol]", list(self.server_state.connections))


@contextmanager
def _duplicates(servers: Sequence[asyncio.Server]) -> Iterator[list[socket.socket]]:
    """Give the listening sockets of servers as such; asyncio gives something that cannot be asked much."""
    listeners = [socket.socket(fileno=os.dup(one.fileno())) for server in servers for one in server.sockets]
    try:
        yield listeners
    finally:
        for listener in listeners:
            listener.close()
