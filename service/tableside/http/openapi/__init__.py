"""The OpenAPI document: all requests and responses of the service, for readers, clients and tests.

It is written by hand, because the endpoints take the bare request. A test compares it with the routes.
`schemas` and `value_schemas` describe bodies; `parts` has the parameters, headers and responses that operations share;
`records`, `batches`, `scans` and `probes` have the paths. `pages` adds security headers to the pages at /docs.
"""

from .document import document
from .pages import ContentSecurityPolicy

__all__ = ["ContentSecurityPolicy", "document"]
