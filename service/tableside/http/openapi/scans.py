"""The paths that read a whole table."""

from .parts import ARROW, JSON, TABLE_ERRORS, Fragment, error_responses, parameters, response, schema

INTEGER_MAX = 10**18 - 1
"""The largest number that the service parses. Numbers above a page's limit count as the limit."""


def _query(name: str, description: str, schema: Fragment) -> Fragment:
    return {"name": name, "in": "query", "description": description, "schema": schema}


_SCAN: Fragment = {
    "operationId": "scan_records",
    "summary": "Read records, in pages",
    "description": "A record that is present throughout is returned at least once, possibly twice. A page may be short "
    "or empty: only a cursor that is null ends the scan.",
    "tags": ["scans"],
    "parameters": [
        _query(
            "prefix", "What the first part of the key begins with; with a partition, the second.", {"type": "string"}
        ),
        _query("partition", "For a composite key: its first part.", {"type": "string", "minLength": 1}),
        _query(
            "limit",
            "How many records a page may have.",
            {"type": "integer", "minimum": 1, "maximum": INTEGER_MAX, "default": 1000},
        ),
        _query("cursor", "From the page before, whose other parameters these are.", {"type": "string"}),
        _query("split", "One of the table's splits: only its records.", {"type": "string"}),
        _query(
            "partitions",
            "Of a partitioned table: the indexes of the partitions to read, with commas between them, or `all`.",
            {"type": "string", "pattern": "^(all|[0-9]{1,3}(,[0-9]{1,3})*)$"},
        ),
        *parameters("fields", "Prefer"),
    ],
    "responses": {
        "200": response(
            "A page. As Arrow it has the columns `key`, `value`, `etag`, where a record expires `expires_at`, and "
            "of a partitioned table, as the last, `partition` int32; the cursor stands in the schema's metadata and in "
            "a header.",
            "Tableside-Cursor",
            "Vary",
            content={
                JSON: {"schema": schema("Page")},
                ARROW: {"schema": {"type": "string", "format": "binary"}},
            },
            links={
                "next": {
                    "operationId": "scan_records",
                    "description": "The next page.",
                    "parameters": {"table": "$request.path.table", "cursor": "$response.body#/cursor"},
                }
            },
        ),
        **error_responses(*TABLE_ERRORS, "not_acceptable", "record_unreadable"),
    },
}

_SPLITS: Fragment = {
    "operationId": "list_splits",
    "summary": "Divide a table for parallel readers",
    "description": "The parts are disjoint and together cover the table.",
    "tags": ["scans"],
    "parameters": [
        _query(
            "count",
            "How many parts there may be.",
            {"type": "integer", "minimum": 1, "maximum": INTEGER_MAX, "default": 8},
        ),
        *parameters("Prefer"),
    ],
    "responses": {
        "200": response(
            "The parts, each to be given to a scan as `split`.",
            content={JSON: {"schema": schema("Splits")}},
            links={
                "read": {
                    "operationId": "scan_records",
                    "description": "Read the first part.",
                    "parameters": {"table": "$request.path.table", "split": "$response.body#/splits/0"},
                }
            },
        ),
        **error_responses(*TABLE_ERRORS, "not_acceptable"),
    },
}

PATHS: Fragment = {
    "/v1/tables/{table}/records": {"parameters": parameters("table"), "get": _SCAN},
    "/v1/tables/{table}/splits": {"parameters": parameters("table"), "get": _SPLITS},
}
