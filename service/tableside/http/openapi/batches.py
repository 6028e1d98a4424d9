"""The path of batches, in JSON and Arrow."""

from .parts import ARROW, JSON, TABLE_ERRORS, Fragment, enum, error_responses, parameters, response, schema

_ARROW_ROWS = """\
An Arrow IPC stream; its buffers may be compressed with lz4 or zstd. One row is one operation. A null is the same as an
absent column for that row. Columns:

| column | type | |
|---|---|---|
| `key` | utf8, large_utf8, integer, or a struct of these for a composite key | required |
| `op` | utf8, or a dictionary of it: get, put, update or delete | or the parameter `op`, for all rows |
| `value`, `update`, `default` | utf8 or binary: JSON text | as the members of those names in JSON |
| `if_match` | utf8 | |
| `if_absent` | bool | |
| `ttl_s` | integer or double | |
| `sequence` | integer | with `writer`: the token |
| `writer` | utf8 | or the parameter `writer`, for all rows |
| `partitions` | list or large_list of integers | as the member in JSON: null and [-1] are all, [null] is the default |
"""

_ARROW_RESULTS = """\
An Arrow IPC stream, if the request was one, with one row per operation, in the same order: `status` uint16, `value`
binary (JSON text, or null), `etag` utf8, `code` utf8, `detail` utf8, `retriable` bool, `applied` utf8, `replayed`
bool; then `expires_at` utf8 if any record expires. For a partitioned table two columns follow: `partitions`, a list
of structs of `partition` int32, the eight columns above and `expires_at` if any record expires, null for a get; and
`dropped` bool.
"""


def _arrow_parameter(name: str, description: str, schema: Fragment) -> Fragment:
    return {"name": name, "in": "query", "description": f"For Arrow only. {description}", "schema": schema}


_POST: Fragment = {
    "operationId": "apply_batch",
    "summary": "Apply a batch of operations",
    "description": "Each operation succeeds or fails on its own: the status of the response is 200 even if some "
    "fail, and an error only if none was attempted. Operations on one key take effect in their order, and a later one "
    "sees the earlier. After one with a retriable or unknown outcome, later ones on the same key are not attempted. A "
    "batch is not a transaction.\n\n"
    f"As `{ARROW}`, the body is: {_ARROW_ROWS}",
    "tags": ["batches"],
    "parameters": [
        _arrow_parameter("op", "The operation of every row.", enum("get", "put", "update", "delete")),
        _arrow_parameter("writer", "The writer of the tokens.", {"type": "string", "minLength": 1, "maxLength": 128}),
        _arrow_parameter("return", "Whether the results of writes contain the value.", {"type": "boolean"}),
        _arrow_parameter("fields", "Comma-separated names of the top-level members to return.", {"type": "string"}),
        *parameters("Cache-Control", "Prefer"),
    ],
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": schema("Batch")},
            ARROW: {"schema": {"type": "string", "format": "binary", "description": _ARROW_ROWS}},
        },
    },
    "responses": {
        "200": response(
            "One result per operation, in the same order.",
            content={
                JSON: {"schema": schema("Results")},
                ARROW: {"schema": {"type": "string", "format": "binary", "description": _ARROW_RESULTS}},
            },
        ),
        **error_responses(*TABLE_ERRORS, "not_acceptable", "unsupported_media_type", "too_large"),
    },
}

PATHS: Fragment = {"/v1/tables/{table}/batch": {"parameters": parameters("table"), "post": _POST}}
