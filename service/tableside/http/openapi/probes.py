"""The paths for table descriptions, probes, metrics and this document."""

from .parts import JSON, SERVICE_ERRORS, Fragment, enum, error_responses, parameters, response, schema

_PUBLIC: Fragment = {"security": []}

_DESCRIPTION_ERRORS = (*SERVICE_ERRORS, "malformed_request", "unauthenticated", "forbidden", "not_acceptable")


def _get(operation: str, tag: str, summary: str, responses: Fragment) -> Fragment:
    return {"operationId": operation, "summary": summary, "tags": [tag], "responses": responses}


def _json(description: str, schema: Fragment) -> Fragment:
    return {"200": response(description, content={JSON: {"schema": schema}})}


_TABLES = _get(
    "list_tables",
    "tables",
    "List the tables",
    {
        **_json("The tables, by name. `policies` has only those that differ from their defaults.", schema("Tables")),
        **error_responses(*_DESCRIPTION_ERRORS),
    },
)
_TABLE = _get(
    "describe_table",
    "tables",
    "Describe a table",
    {
        **_json("The table.", schema("Table")),
        **error_responses(*_DESCRIPTION_ERRORS, "table_not_found", "unsupported", "store_unavailable"),
    },
)
_LIVEZ = _get(
    "check_liveness",
    "service",
    "Check whether the process runs, without checking stores",
    _json("The process runs.", {"type": "object", "required": ["status"], "properties": {"status": enum("alive")}}),
)
_READYZ = _get(
    "check_readiness",
    "service",
    "Check whether the service can process operations",
    {**_json("The service can process operations.", schema("Readiness")), **error_responses("store_unavailable")},
)
_METRICS = _get(
    "get_metrics",
    "service",
    "Get the metrics in Prometheus' text format",
    {
        "200": response("All metrics.", content={"text/plain": {"schema": {"type": "string"}}}),
        **error_responses("unauthenticated", "forbidden"),
    },
)
_OPENAPI = _get(
    "get_openapi",
    "service",
    "Get this document",
    {**_json("An OpenAPI 3.1 document.", {"type": "object", "required": ["openapi"]}), **error_responses("overloaded")},
)
_DOCS = _get(
    "get_docs",
    "service",
    "Get a page that shows this document and sends requests; it works without a network",
    {
        "200": response("A page.", content={"text/html": {"schema": {"type": "string"}}}),
        **error_responses("overloaded"),
    },
)

PATHS: Fragment = {
    "/v1/tables": {"get": _TABLES},
    "/v1/tables/{table}": {"parameters": parameters("table"), "get": _TABLE},
    "/livez": {"get": _LIVEZ | _PUBLIC},
    "/readyz": {"get": _READYZ | _PUBLIC},
    "/metrics": {"get": _METRICS},
    "/openapi.json": {"get": _OPENAPI | _PUBLIC},
    "/docs": {"get": _DOCS | _PUBLIC},
}
