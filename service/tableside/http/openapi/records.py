"""The paths of single records."""

from .parts import JSON, MERGE_PATCH, TABLE_ERRORS, Fragment, error_responses, parameters, response, schema

_WRITE_ERRORS = (*TABLE_ERRORS, "precondition_failed", "contended", "record_unreadable", "not_acceptable", "too_large")

_WRITE_HEADERS = ("Tableside-Replayed", "Tableside-Partitions", "Tableside-Dropped")

_SAME_RECORD = {"table": "$request.path.table", "key": "$request.path.key"}


def _link(operation: str, description: str, **parameters: str) -> Fragment:
    return {"operationId": operation, "description": description, "parameters": {**_SAME_RECORD, **parameters}}


_ETAG = "$response.header.ETag"

_AFTER_A_WRITE: Fragment = {
    "read": _link("get_record", "Read the record."),
    "look": _link("head_record", "Read the version of the record."),
    "replace": _link("put_record", "Replace this version.", **{"header.If-Match": _ETAG}),
    "update": _link("patch_record", "Update this version.", **{"header.If-Match": _ETAG}),
    "delete": _link("delete_record", "Delete this version.", **{"header.If-Match": _ETAG}),
}
_AFTER_A_READ: Fragment = {
    "revalidate": _link("get_record", "Check whether the record changed.", **{"header.If-None-Match": _ETAG}),
    "replace": _link("put_record", "Replace this version.", **{"header.If-Match": _ETAG}),
    "delete": _link("delete_record", "Delete this version.", **{"header.If-Match": _ETAG}),
}
_AFTER_A_DELETE: Fragment = {
    "make": _link("put_record", "Create the record again.", **{"header.If-None-Match": "*"}),
    "repeat": _link("delete_record", "Delete the absent record, which succeeds."),
}

_VALUE = {JSON: {"schema": schema("Value")}}


def _read(operation: str, summary: str, content: Fragment | None) -> Fragment:
    return {
        "operationId": operation,
        "summary": summary,
        "tags": ["records"],
        "parameters": parameters("fields", "partitions", "If-None-Match", "Cache-Control", "Prefer"),
        "responses": {
            "200": response(
                "The record.",
                "ETag",
                "Tableside-Expires-At",
                "Age",
                "Tableside-Partitions",
                content=content,
                links=_AFTER_A_READ,
            ),
            "304": response(
                "The client already has this version.", "ETag", "Tableside-Expires-At", "Age", "Tableside-Partitions"
            ),
            **_read_errors(content, "record_not_found"),
        },
    }


def _read_errors(content: Fragment | None, *codes: str) -> Fragment:
    found = error_responses(*TABLE_ERRORS, "not_acceptable", "record_unreadable", *codes)
    if content is None:  # The answer to a HEAD has no body.
        found = {status: {name: one[name] for name in one if name != "content"} for status, one in found.items()}
    return found


_GET = _read("get_record", "Get a record's value", _VALUE)
_HEAD = _read("head_record", "Get a record's version and expiry", None)

_TOKENS = ("Tableside-Token", "Idempotency-Key")

_PUT: Fragment = {
    "operationId": "put_record",
    "summary": "Put a record",
    "description": "Creates the record or replaces its value; a plain PUT answers 204 in both cases. To learn whether "
    "the record is new, send `If-None-Match: *`: the response is 201 if it was created, and 412 if it existed.",
    "tags": ["records"],
    "parameters": parameters("ttl_s", "partitions", "If-Match", "If-Absent", "Prefer", *_TOKENS),
    "requestBody": {
        "required": True,
        "content": {JSON: {"schema": schema("Value"), "example": {"name": "Ada", "visits": 1}}},
    },
    "responses": {
        "200": response(
            "Written. The body is the value, as `Prefer` requested.",
            "ETag",
            "Tableside-Expires-At",
            "Tableside-Replayed",
            "Tableside-Partitions",
            "Preference-Applied",
            content=_VALUE,
            links=_AFTER_A_WRITE,
        ),
        "201": response(
            "Created, with `If-None-Match: *`. The body is the value if `Prefer` requested it, else empty.",
            "ETag-If-Present",
            "Tableside-Expires-At",
            "Tableside-Partitions",
            "Preference-Applied",
            links=_AFTER_A_WRITE,
        ),
        "204": response("Created or replaced.", "ETag-If-Present", *_WRITE_HEADERS, links=_AFTER_A_WRITE),
        **error_responses(*_WRITE_ERRORS, "unsupported_media_type"),
    },
}

_PATCH_RESPONSES: Fragment = {
    "200": response(
        "Updated. The body is the value, as `Prefer` requested.",
        "ETag",
        "Tableside-Expires-At",
        "Tableside-Replayed",
        "Tableside-Partitions",
        "Preference-Applied",
        content=_VALUE,
        links=_AFTER_A_WRITE,
    ),
    "201": response(
        "Created from the default. The body is the value if `Prefer` requested it, else empty.",
        "ETag-If-Present",
        "Tableside-Expires-At",
        "Tableside-Partitions",
        "Preference-Applied",
        links=_AFTER_A_WRITE,
    ),
    "204": response("Updated.", "ETag-If-Present", *_WRITE_HEADERS, links=_AFTER_A_WRITE),
    **error_responses(*_WRITE_ERRORS, "record_not_found", "unsupported_media_type"),
}
_PATCH_RESPONSES["415"]["headers"]["Accept-Patch"] = {"$ref": "#/components/headers/Accept-Patch"}

_PATCH: Fragment = {
    "operationId": "patch_record",
    "summary": "Update a record, or create it from a default",
    "description": f"As `{MERGE_PATCH}` the body is a merge patch, and there is no default. As `{JSON}` it is an "
    "object with the update and, optionally, a default and `ttl_s`.",
    "tags": ["records"],
    "parameters": parameters("ttl_s", "partitions", "If-Match", "Prefer", *_TOKENS),
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": schema("UpdateRequest"),
                "example": {"update": {"$inc": {"visits": 1}}, "default": {"visits": 0}},
            },
            MERGE_PATCH: {"schema": schema("MergePatch"), "example": {"name": "Ada Lovelace"}},
        },
    },
    "responses": _PATCH_RESPONSES,
}

_DELETE: Fragment = {
    "operationId": "delete_record",
    "summary": "Delete a record",
    "tags": ["records"],
    "parameters": parameters("partitions", "If-Match", "Prefer", *_TOKENS),
    "responses": {
        "204": response(
            "Deleted, or absent before. It has an etag only if a replay found a later record.",
            "ETag-If-Present",
            *_WRITE_HEADERS,
            links=_AFTER_A_DELETE,
        ),
        **error_responses(*TABLE_ERRORS, "precondition_failed", "contended", "record_unreadable"),
    },
}

PATHS: Fragment = {
    "/v1/tables/{table}/records/{key}": {
        "parameters": parameters("table", "key"),
        "get": _GET,
        "head": _HEAD,
        "put": _PUT,
        "patch": _PATCH,
        "delete": _DELETE,
    }
}
