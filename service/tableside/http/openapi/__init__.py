"""The OpenAPI document: all that the service takes and answers over HTTP, for people, clients and tests.

It is written by hand, since the routes take the bare request; a test holds it against the routes.
`schemas` are the bodies, `parts` the parameters, headers and answers that operations share, and `records`, `batches`,
`scans` and `probes` the paths. `pages` is what the pages that show it are sent with.
"""

from .document import document
from .pages import Guarded

__all__ = ["Guarded", "document"]
