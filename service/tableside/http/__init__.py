"""Requests and responses: endpoints, wire formats, middleware, the console and the OpenAPI document.

An ASGI application without sockets: `server` runs it, `app` puts it together. Imports all packages from `core` to
`catalog`.
"""

from .access_log import RequestLog
from .allowed_hosts import Hosts
from .console import Console
from .endpoints import routes
from .load_shedder import PROBES
from .middleware import Edge, StartError
from .request_context import Observer
from .request_metrics import HttpMetrics
from .request_spans import RequestSpans
from .responses import problem_response
from .wire.problems import MethodNotAllowed, NotFound

__all__ = [
    "PROBES",
    "Console",
    "Edge",
    "Hosts",
    "HttpMetrics",
    "MethodNotAllowed",
    "NotFound",
    "Observer",
    "RequestLog",
    "RequestSpans",
    "StartError",
    "problem_response",
    "routes",
]
