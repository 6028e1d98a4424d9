"""The OpenAPI document: all requests and responses of the service, for readers, clients and tests.

It is written by hand in YAML, because the endpoints take the bare request: `paths.yaml`, their `components.yaml`, the
`schemas.yaml` of bodies, and the rest in `document.yaml`. Tests compare it with the routes, the limits and the
responses of the service. `pages` adds security headers to the pages at /docs, and
serves their files without ranges.
"""

from .document import document
from .pages import ContentSecurityPolicy, WholeFiles

__all__ = ["ContentSecurityPolicy", "WholeFiles", "document"]
