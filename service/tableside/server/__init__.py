"""Sockets and processes: connections, TLS, limits on slow clients, worker processes and graceful shutdown.

It serves any ASGI application. It imports `core`, `settings`, `telemetry` and, for its connections, parts of `http`. An
import with `as` exports its name.
"""

from .server import ListenAddress as ListenAddress
from .supervisor import Supervisor as Supervisor
from .tls import TlsError as TlsError, TlsFiles as TlsFiles
