"""A connection for threads."""

import socket
import ssl
from contextlib import suppress

import httpx

from tableside_client.http1 import Http1, Reply, Request, host_and_port

_READ_BYTES = 64 * 1024


class BlockingConnection:
    """A connection that opens with its first request, and again after an error. It has one request at a time."""

    def __init__(self, base: httpx.URL, context: ssl.SSLContext | None) -> None:
        self._base = base
        self._context = context
        self._http = Http1(base)
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
