"""Requests and responses: endpoints, wire formats, middleware, the console and the OpenAPI document.

An ASGI application without sockets: `server` runs it, `app` puts it together. Imports all packages from `core` to
`catalog`.
"""

from .addresses import AllowedHosts, PathPrefix
from .audit import AuditLog
from .console import Console
from .endpoints import Router, openapi, routes
from .middleware import RequestMiddleware, StartError, request_id
from .request_context import (
    BODY_BYTES_MAX_KEY,
    DRAINING_KEY,
    IN_FLIGHT_KEY,
    PROBES,
    SCOPE_KEY,
    Observer,
    RequestContext,
    headers_by_name,
)
from .request_observers import AccessLog, CallerMetrics, RequestMetrics, RequestSpans
from .responses import problem_response

__all__ = [
    "BODY_BYTES_MAX_KEY",
    "DRAINING_KEY",
    "IN_FLIGHT_KEY",
    "PROBES",
    "SCOPE_KEY",
    "AccessLog",
    "AllowedHosts",
    "AuditLog",
    "CallerMetrics",
    "Console",
    "Observer",
    "PathPrefix",
    "RequestContext",
    "RequestMetrics",
    "RequestMiddleware",
    "RequestSpans",
    "Router",
    "StartError",
    "headers_by_name",
    "openapi",
    "problem_response",
    "request_id",
    "routes",
]
