"""Requests and responses: endpoints, wire formats, middleware, the console and the OpenAPI document.

An ASGI application without sockets: `server` runs it, `app` puts it together. Imports all packages from `core` to
`catalog`. An import with `as` exports its name.
"""

from .addresses import AllowedHosts as AllowedHosts, PathPrefix as PathPrefix
from .audit import AuditLog as AuditLog
from .console import Console as Console
from .endpoints import Router as Router, openapi as openapi, routes as routes
from .middleware import RequestMiddleware as RequestMiddleware, StartError as StartError, request_id as request_id
from .request_context import (
    BODY_BYTES_MAX_KEY as BODY_BYTES_MAX_KEY,
    DRAINING_KEY as DRAINING_KEY,
    IN_FLIGHT_KEY as IN_FLIGHT_KEY,
    PROBES as PROBES,
    SCOPE_KEY as SCOPE_KEY,
    Observer as Observer,
    RequestContext as RequestContext,
    headers_by_name as headers_by_name,
)
from .request_observers import (
    AccessLog as AccessLog,
    CallerMetrics as CallerMetrics,
    RequestMetrics as RequestMetrics,
    RequestSpans as RequestSpans,
)
from .responses import ProblemResponse as ProblemResponse
