"""Sockets and processes: connections, TLS, limits on slow clients, worker processes and graceful shutdown.

It serves any ASGI application. It imports `core`, `settings`, `telemetry` and, for its connections, parts of `http`.
"""

from .server import ListenAddress
from .supervisor import Supervisor
from .tls import TlsError, TlsFiles

__all__ = [
    "ListenAddress",
    "Supervisor",
    "TlsError",
    "TlsFiles",
]
