"""The endpoints of the service: each reads a request, calls one method of a table or of the catalog, and responds.

They are plain Starlette routes that read the request themselves, because FastAPI's resolution of declared parameters
takes longer than a whole operation. `openapi` documents their requests and responses.
"""

from starlette.routing import Route

from . import batches, records, scans, service
from .endpoint import Router


def routes() -> list[Route]:
    """Return every route of the service."""
    return [records.route(), batches.route(), *scans.routes(), *service.routes()]


__all__ = ["Router", "routes"]
