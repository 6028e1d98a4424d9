"""Connections for threads, and for the tasks of an event loop."""

import asyncio
import socket
import ssl
from contextlib import suppress
from functools import partial
from typing import Any, cast

import httpx

from tableside_client.http1 import Http1, Reply, Request, host_and_port

_READ_BYTES = 64 * 1024


class BlockingConnection:
    """A connection that opens with its first request, and again after an error. It has one request at a time."""

    def __init__(self, base: httpx.URL, context: ssl.SSLContext | None) -> None:
        self._base, self._context, self._http = base, context, Http1(base)
        self._socket: socket.socket | None = None

    def send(self, request: Request) -> Reply:
        """Send a request and return its reply. Raises `httpx.TransportError`."""
        if (opened := self._socket) is None or _is_readable(opened):
            self.close()
            self._http, self._socket = Http1(self._base), (opened := self._open(request.connect_timeout_s))
        try:
            opened.settimeout(request.timeout_s)
            _write(opened, self._http.request(request))
            while (reply := self._http.receive(_read(opened))) is None:
                pass
            return reply
        finally:
            if not self._http.is_idle:
                self.close()

    def close(self) -> None:
        """Close the connection. A request in flight fails."""
        if (opened := self._socket) is not None:
            self._socket = None
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
            opened.close()

    def _open(self, timeout_s: float) -> socket.socket:
        host, port = host_and_port(self._base)
        try:
            opened = socket.create_connection((host, port), timeout_s)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return opened if self._context is None else self._context.wrap_socket(opened, server_hostname=host)
        except TimeoutError as error:
            raise httpx.ConnectTimeout("the connection timed out") from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error


def _is_readable(idle: socket.socket) -> bool:
    """Return whether the service has closed the connection, or has sent something that is no reply."""
    try:
        idle.settimeout(0)
        socket.socket.recv(idle, 1, socket.MSG_PEEK)  # below TLS
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _write(connected: socket.socket, parts: list[bytes]) -> None:
    try:
        for part in parts:
            connected.sendall(part)
    except TimeoutError as error:
        raise httpx.WriteTimeout("timed out") from error
    except OSError:
        pass  # A service that rejects a request may close the connection after its reply.


def _read(connected: socket.socket) -> bytes:
    try:
        return connected.recv(_READ_BYTES)
    except TimeoutError as error:
        raise httpx.ReadTimeout("timed out") from error
    except OSError as error:
        raise httpx.ReadError(str(error)) from error


_NEXT_ADDRESS_S = 0.25
"""The time after which a connection to the next address of a host is tried (RFC 8305), in seconds."""


class AsyncConnection:
    """A connection that opens with its first request, and again after an error. It has one request at a time."""

    def __init__(self, base: httpx.URL, context: ssl.SSLContext | None) -> None:
        self._base, self._context = base, context
        self._exchanges: _Exchanges | None = None

    async def send(self, request: Request) -> Reply:
        """Send a request and return its reply. Raises `httpx.TransportError`."""
        if self._exchanges is None or not self._exchanges.is_open:
            self._exchanges = await self._open(request.connect_timeout_s)
        return await self._exchanges.send(request)

    async def close(self) -> None:
        """Close the connection. A request in flight fails."""
        if self._exchanges is not None:
            self._exchanges.abort()
            await asyncio.sleep(0)  # The event loop closes the socket.

    async def _open(self, timeout_s: float) -> "_Exchanges":
        loop, (host, port) = asyncio.get_running_loop(), host_and_port(self._base)
        options: dict[str, Any] = {} if self._context is None else {"ssl": self._context, "server_hostname": host}
        if isinstance(loop, asyncio.BaseEventLoop):  # uvloop does not have this option.
            options["happy_eyeballs_delay"] = _NEXT_ADDRESS_S
        create = partial(_Exchanges, Http1(self._base))
        exchanges: _Exchanges
        try:
            async with asyncio.timeout(timeout_s):
                _, exchanges = await loop.create_connection(create, host, port, **options)
        except TimeoutError as error:
            raise httpx.ConnectTimeout("the connection timed out") from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        return exchanges


class _Exchanges(asyncio.Protocol):
    def __init__(self, http: Http1) -> None:
        self._http = http
        self._loop = asyncio.get_running_loop()
        self._reply: asyncio.Future[Reply] | None = None
        self._timeout_s = 0.0
        self.is_open = True

    async def send(self, request: Request) -> Reply:
        """Send a request and return its reply. After an error or a cancellation the connection is closed."""
        self._reply, self._timeout_s = self._loop.create_future(), request.timeout_s
        self._timer = self._loop.call_later(self._timeout_s, self._time_out)
        try:
            for part in self._http.request(request):
                self._transport.write(part)
            return await self._reply
        finally:
            self._timer.cancel()
            self._reply = None
            if not self._http.is_idle:
                self.abort()

    def abort(self) -> None:
        self.is_open = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def resume_writing(self) -> None:
        """Start the timeout again, because most of a long request has been sent."""
        self._restart_timer()

    def data_received(self, data: bytes) -> None:
        if self._reply is None:  # nobody asked
            self.abort()
        elif not self._reply.done():
            try:
                reply = self._http.receive(data)
            except httpx.RemoteProtocolError as error:
                self._fail(error)
                return
            if reply is None:
                self._restart_timer()
            else:
                self._reply.set_result(reply)

    def eof_received(self) -> None:
        self.data_received(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        error = httpx.ReadError(str(exc or "the connection was closed"))
        error.__cause__ = exc
        self.is_open = False
        self._fail(error)

    def _restart_timer(self) -> None:
        if self._reply is not None:
            self._timer.cancel()
            self._timer = self._loop.call_later(self._timeout_s, self._time_out)

    def _time_out(self) -> None:
        self._fail(httpx.ReadTimeout("timed out"))

    def _fail(self, error: Exception) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)
