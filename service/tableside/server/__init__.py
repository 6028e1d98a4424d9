"""Sockets and processes: connections, TLS, limits on slow clients, worker processes and graceful shutdown.

Serves an ASGI application and does not use tables. Imports `core`, `settings`, `telemetry` and the parts of `http` that
connections need.
"""

from .server import Place
from .supervisor import Workers
from .tls import TlsError, TlsFiles

__all__ = [
    "Place",
    "TlsError",
    "TlsFiles",
    "Workers",
]
