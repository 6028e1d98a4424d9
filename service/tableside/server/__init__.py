"""Sockets and processes: connections, TLS, limits on slow clients, worker processes and graceful shutdown.

Serves an ASGI application and does not use tables. Imports `core`, `settings`, `telemetry` and the parts of `http` that
connections need.
"""

from .server import Place
from .supervisor import Workers
from .tls import Tls, TlsError

__all__ = [
    "Place",
    "Tls",
    "TlsError",
    "Workers",
]
