"""The paths that describe tables, and those for probes, monitoring and readers of this document."""

from .parts import JSON, OF_THE_SERVICE, Described, answer, parameters, refusals, schema

_PUBLIC: Described = {"security": []}

_OF_A_DESCRIPTION = (*OF_THE_SERVICE, "malformed_request", "unauthenticated", "forbidden", "not_acceptable")


def _get(operation: str, tag: str, summary: str, responses: Described) -> Described:
    return {"operationId": operation, "summary": summary, "tags": [tag], "responses": responses}


def _json(description: str, schema: Described) -> Described:
    return {"200": answer(description, content={JSON: {"schema": schema}})}


_TABLES = _get(
    "tables",
    "tables",
    "Describe every table",
    {**_json("The tables, by name.", schema("Tables")), **refusals(*_OF_A_DESCRIPTION)},
)
_TABLE = _get(
    "table",
    "tables",
    "Describe a table",
    {
        **_json("The table.", schema("Table")),
        **refusals(*_OF_A_DESCRIPTION, "table_not_found", "unsupported", "store_unavailable"),
    },
)
_LIVEZ = _get(
    "livez",
    "service",
    "Whether the process runs; no store is asked",
    _json("It does.", {"type": "object", "required": ["status"], "properties": {"status": {"const": "alive"}}}),
)
_READYZ = _get(
    "readyz",
    "service",
    "Whether operations can be served",
    {**_json("They can.", schema("Readiness")), **refusals("store_unavailable")},
)
_METRICS = _get(
    "metrics",
    "service",
    "Metrics in Prometheus' text format",
    {
        "200": answer("Every metric.", content={"text/plain": {"schema": {"type": "string"}}}),
        **refusals("unauthenticated", "forbidden"),
    },
)
_OPENAPI = _get(
    "openapi",
    "service",
    "This document",
    {**_json("An OpenAPI 3.1 document.", {"type": "object", "required": ["openapi"]}), **refusals("overloaded")},
)
_DOCS = _get(
    "docs",
    "service",
    "This document, to read and try in a browser; it needs no network",
    {"200": answer("A page.", content={"text/html": {"schema": {"type": "string"}}}), **refusals("overloaded")},
)

PATHS: Described = {
    "/v1/tables": {"get": _TABLES},
    "/v1/tables/{table}": {"parameters": parameters("table"), "get": _TABLE},
    "/livez": {"get": _LIVEZ | _PUBLIC},
    "/readyz": {"get": _READYZ | _PUBLIC},
    "/metrics": {"get": _METRICS},
    "/openapi.json": {"get": _OPENAPI | _PUBLIC},
    "/docs": {"get": _DOCS | _PUBLIC},
}
