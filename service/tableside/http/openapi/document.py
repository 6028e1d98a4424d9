"""Assembles the whole document."""

from . import batches, probes, records, scans
from .parts import COMMON_PARAMETERS, HEADERS, PARAMETERS, Fragment
from .schemas import SCHEMAS

_ABOUT = """\
Random access by key to tables that live elsewhere.

A **table** is a named set of **records**; a record is a key and a value, which is a JSON object. An **operation**
(get, put, update, delete) works on one record; a **batch** is many operations sent together, each of which succeeds
or fails by itself. Every response with a status of 400 or more is an RFC 9457 problem.

A key in a path is percent-encoded, one segment per part: `a%2Fb` is the key `a/b`, and the key
`["user-1", "2026-11-20"]` of a table with a composite key is `user-1/2026-11-20`. The keys `.` and `..` are sent in a
batch, since clients resolve them away.

If the service requires authentication, a request carries a bearer token, which may allow reading some tables and
writing others. A request without permission is `forbidden`; in a batch, only the result of that operation is.
"""

_SECURITY_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token that the configuration accepts. Without `auth` there, no token is required.",
    }
}
_SECURITY: list[Fragment] = [{}, {"bearer": []}]
"""Whether a token is required depends on the configuration."""

_TAGS = [
    {"name": "records", "description": "Operations on one record."},
    {"name": "batches", "description": "Many operations in one request, as JSON or as Arrow."},
    {"name": "scans", "description": "Scans of a whole table, page by page and in parallel."},
    {"name": "tables", "description": "The tables and their capabilities."},
    {"name": "service", "description": "For probes and monitoring."},
]


def document(version: str) -> Fragment:
    """Return the OpenAPI document of the service."""
    paths = {**records.PATHS, **batches.PATHS, **scans.PATHS, **probes.PATHS}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tableside",
            "version": version,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The service that serves this document."}],
        "tags": _TAGS,
        "paths": {path: _with_common_parameters(item) for path, item in paths.items()},
        "security": _SECURITY,
        "components": {
            "schemas": SCHEMAS,
            "parameters": PARAMETERS,
            "headers": HEADERS,
            "securitySchemes": _SECURITY_SCHEMES,
        },
    }


def _with_common_parameters(item: Fragment) -> Fragment:
    return {**item, "parameters": [*item.get("parameters", []), *COMMON_PARAMETERS]}
