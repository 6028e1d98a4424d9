"""The paths that read a whole table."""

from .parts import ARROW, JSON, TABLE_ERRORS, Fragment, error_responses, parameters, response, schema

INTEGER_MAX = 10**18 - 1
"""The largest number that the service parses. Numbers above a page's limit count as the limit."""


def _query(name: str, description: str, schema: Fragment) -> Fragment:
    return {"name": name, "in": "query", "description": description, "schema": schema}


_SCAN: Fragment = {
    "operationId": "scan_records",
    "summary": "Scan records, page by page",
    "description": "A record that exists during the whole scan is returned at least once, possibly twice. A page may "
    "be short or empty: the scan ends only if the cursor is null.",
    "tags": ["scans"],
    "parameters": [
        _query(
            "prefix", "Prefix of the first part of the key; with `partition`, of the second part.", {"type": "string"}
        ),
        _query(
            "partition", "For a composite key: only records with this first part.", {"type": "string", "minLength": 1}
        ),
        _query(
            "limit",
            "Maximum number of records in a page. Above 10,000 it is 10,000.",
            {"type": "integer", "minimum": 1, "maximum": INTEGER_MAX, "default": 1000},
        ),
        _query(
            "cursor",
            "The cursor of the previous page. `prefix`, `partition` and `split` must be the same.",
            {"type": "string"},
        ),
        _query("split", "One of the table's splits: only the records in it.", {"type": "string"}),
        _query(
            "partitions",
            "For a partitioned table: the comma-separated indexes of the partitions to read, or `all`.",
            {"type": "string", "pattern": "^(all|[0-9]{1,3}(,[0-9]{1,3})*)$"},
        ),
        *parameters("fields", "Prefer"),
    ],
    "responses": {
        "200": response(
            "A page. In Arrow it has the columns `key`, `value` and `etag`, then `expires_at` if any record expires, "
            "and for a partitioned table `partition` int32. The cursor is in the schema's metadata and in a header.",
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
    "summary": "Split a table for parallel readers",
    "description": "The splits are disjoint and together cover the table.",
    "tags": ["scans"],
    "parameters": [
        _query(
            "count",
            "Maximum number of splits.",
            {"type": "integer", "minimum": 1, "maximum": INTEGER_MAX, "default": 8},
        ),
        *parameters("Prefer"),
    ],
    "responses": {
        "200": response(
            "The splits, for the parameter `split` of scans.",
            content={JSON: {"schema": schema("Splits")}},
            links={
                "read": {
                    "operationId": "scan_records",
                    "description": "Read the first split.",
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
