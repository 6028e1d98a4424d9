"""The endpoints of the service: each reads a request, calls one method of a table or of the catalog, and responds.

FastAPI generates the OpenAPI document from their declarations. `Endpoint` calls them, with the declared parameters.
"""

from functools import cache

from starlette.routing import BaseRoute

from . import batches, document, generations, records, scans, service
from .routing import Router as Router


def routes() -> list[BaseRoute]:
    """Return every route of the service."""
    routers = (records.router, batches.router, scans.router, generations.router, service.tables, service.router)
    return [route for router in routers for route in router.routes]


@cache
def openapi(version: str) -> document.Fragment:
    """Return the OpenAPI document of the service."""
    return document.generate(routes(), version)
