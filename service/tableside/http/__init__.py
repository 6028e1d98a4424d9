"""Requests and responses: endpoints, wire formats, middleware, the console and the OpenAPI document.

An ASGI application without sockets: `server` runs it, `app` puts it together. Imports all packages from `core` to
`catalog`.
"""

from .access_log import AccessLog
from .allowed_hosts import AllowedHosts
from .console import Console
from .endpoints import routes
from .middleware import RequestMiddleware, StartError
from .readiness import ReadinessLog
from .request_context import DRAINING_KEY, IN_FLIGHT_KEY, PROBES, SCOPE_KEY, Observer, RequestContext, request_id
from .request_metrics import RequestMetrics
from .request_spans import RequestSpans
from .responses import problem_response
from .wire.problems import MethodNotAllowed, NotFound

__all__ = [
    "DRAINING_KEY",
    "IN_FLIGHT_KEY",
    "PROBES",
    "SCOPE_KEY",
    "AccessLog",
    "AllowedHosts",
    "Console",
    "MethodNotAllowed",
    "NotFound",
    "Observer",
    "ReadinessLog",
    "RequestContext",
    "RequestMetrics",
    "RequestMiddleware",
    "RequestSpans",
    "StartError",
    "problem_response",
    "request_id",
    "routes",
]
