"""JSON schemas of the bodies of requests and responses (the dialect of OpenAPI 3.1)."""

from ..wire import problems
from .parts import Fragment, enum, example_problem, schema
from .value_schemas import (
    ETAG,
    EXPIRES_AT,
    FIELDS,
    KEY,
    MERGE_PATCH,
    OPERATORS,
    PARTITIONS,
    TOKEN,
    TTL_S,
    UPDATE,
    VALUE,
    closed_object,
    nullable,
    optional,
)


def _operation(op: str, required: list[str], properties: Fragment, description: str) -> Fragment:
    key_and_fields = {
        "op": enum(op),
        "key": schema("Key"),
        "fields": FIELDS,
        "partitions": schema("Partitions"),
    }
    return closed_object(["op", "key", *required], {**key_and_fields, **properties}, description=description)


_CONDITION: Fragment = {
    "if_match": nullable("string", minLength=1, description="Only if the record has this version; `*` is any version.")
}
_COMMON: Fragment = {**_CONDITION, "token": optional(schema("Token")), "return": nullable("boolean")}

_OPERATIONS: Fragment = {
    "Get": _operation("get", [], {}, "Read a record."),
    "Put": _operation(
        "put",
        ["value"],
        {
            "value": schema("Value"),
            "if_absent": nullable("boolean", description="Only if the record does not exist; not with `if_match`."),
            "ttl_s": schema("TtlS"),
            **_COMMON,
        },
        "Replace the record's value.",
    ),
    "Update": _operation(
        "update",
        ["update"],
        {"update": schema("UpdateDocument"), "default": optional(schema("Value")), "ttl_s": schema("TtlS"), **_COMMON},
        "Update a record, or the default if there is no record.",
    ),
    "Delete": _operation("delete", [], _COMMON, "Delete the record; succeeds if it is absent."),
}

_BATCH: Fragment = closed_object(
    ["operations"],
    {
        "operations": {
            "description": "Operations on one key take effect in this order.",
            "type": "array",
            "items": schema("Operation"),
        }
    },
    examples=[
        {
            "operations": [
                {"op": "put", "key": "b", "value": {"n": 1}, "ttl_s": 60},
                {"op": "update", "key": "c", "update": {"$inc": {"n": 1}}, "default": {"n": 0}, "return": True},
                {"op": "get", "key": "b", "fields": ["n"]},
                {"op": "delete", "key": "d"},
            ]
        }
    ],
)

_RESULT_MEMBERS: Fragment = {
    "status": {"description": "The status that the single request would have.", "type": "integer"},
    "value": schema("Value"),
    "etag": ETAG,
    "expires_at": EXPIRES_AT,
    "replayed": {
        "description": "True for a repeated write, which was not applied again; else absent.",
        "type": "boolean",
    },
    "error": schema("Problem"),
}

_STATUS_MATCHES_ERROR: Fragment = {
    "if": {"required": ["error"]},
    "then": {"properties": {"status": {"type": "integer", "minimum": 400, "maximum": 599}}},
    "else": {"properties": {"status": {"type": "integer", "enum": [200, 201, 204]}}},
}

_PARTITION_RESULTS: Fragment = {
    "description": "For a write to a partitioned table: the result in each target partition, by index.",
    "type": "array",
    "items": schema("PartitionResult"),
}

_RESULT: Fragment = closed_object(
    ["status"],
    {
        **_RESULT_MEMBERS,
        "partitions": _PARTITION_RESULTS,
        "dropped": {"description": "True for a write to no partition; else absent.", "type": "boolean"},
    },
    description="The result of one operation. With several partitions, only their results have an etag and a value.",
    **_STATUS_MATCHES_ERROR,
)

_PARTITION_RESULT: Fragment = closed_object(
    ["partition", "status"],
    {"partition": {"type": "integer", "minimum": 0}, **_RESULT_MEMBERS},
    description="The result of a write in one partition.",
    **_STATUS_MATCHES_ERROR,
)

_PROBLEM: Fragment = {
    "description": "RFC 9457 problem details.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "retriable", "applied"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer", "enum": sorted(set(problems.STATUS.values()))},
        "detail": {"type": "string"},
        "code": {"type": "string", "enum": sorted(problems.STATUS)},
        "retriable": {"description": "Whether a retry may succeed.", "type": "boolean"},
        "applied": {"description": "Whether a write may have been applied.", **enum("no", "unknown")},
        "retry_after_s": {"description": "How long to wait before a retry, if known.", "type": "number", "minimum": 0},
        "partitions": _PARTITION_RESULTS,
    },
    "examples": [example_problem()],
}

_TABLE: Fragment = {
    "type": "object",
    "required": ["name", "store", "key", "capabilities", "limits", "policies"],
    "properties": {
        "name": {"type": "string"},
        "store": closed_object(["name", "kind"], {"name": {"type": "string"}, "kind": {"type": "string"}}),
        "key": {
            "description": "The parts of a key, in order; the name is null if the configuration has none.",
            "type": "array",
            "minItems": 1,
            "items": closed_object(
                ["name", "type"], {"name": {"type": ["string", "null"]}, "type": enum("string", "integer")}
            ),
        },
        "capabilities": {
            "description": "The capabilities of the table; in a list, empty until its store was first reached.",
            "type": "object",
            "additionalProperties": {"type": "boolean"},
        },
        "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
        "policies": {"type": "object"},
        "partitions": {
            "description": "The number of partitions; only for a partitioned table.",
            "type": "integer",
            "minimum": 1,
        },
    },
}

_PARTITION_MEMBER: Fragment = {
    "partition": {
        "description": "The partition of the record; only for a partitioned table.",
        "type": "integer",
        "minimum": 0,
    }
}

_RECORD: Fragment = closed_object(
    ["key", "value", "etag"],
    {"key": schema("Key"), "value": schema("Value"), "etag": ETAG, "expires_at": EXPIRES_AT, **_PARTITION_MEMBER},
)

SCHEMAS: Fragment = {
    "Key": KEY,
    "Value": VALUE,
    "MergePatch": MERGE_PATCH,
    "Operators": OPERATORS,
    "UpdateDocument": UPDATE,
    "TtlS": TTL_S,
    "Token": TOKEN,
    "UpdateRequest": closed_object(
        ["update"],
        {"update": schema("UpdateDocument"), "default": optional(schema("Value")), "ttl_s": schema("TtlS")},
        examples=[{"update": {"$inc": {"visits": 1}}, "default": {"visits": 0}}],
    ),
    **_OPERATIONS,
    "Operation": {
        "oneOf": [schema(name) for name in _OPERATIONS],
        "discriminator": {
            "propertyName": "op",
            "mapping": {name.lower(): f"#/components/schemas/{name}" for name in _OPERATIONS},
        },
    },
    "Batch": _BATCH,
    "Partitions": PARTITIONS,
    "Result": _RESULT,
    "PartitionResult": _PARTITION_RESULT,
    "Results": closed_object(
        ["results"],
        {
            "results": {
                "description": "One per operation, in the same order.",
                "type": "array",
                "items": schema("Result"),
            }
        },
    ),
    "Problem": _PROBLEM,
    "Table": _TABLE,
    "Tables": closed_object(["tables"], {"tables": {"type": "array", "items": schema("Table")}}),
    "Record": _RECORD,
    "Page": closed_object(
        ["records", "cursor"],
        {
            "records": {"type": "array", "items": schema("Record")},
            "cursor": {
                "description": "The cursor of the next page; null on the last page.",
                "type": ["string", "null"],
            },
        },
    ),
    "Splits": closed_object(
        ["splits"], {"splits": {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}}
    ),
    "Readiness": closed_object(
        ["status", "stores"],
        {
            "status": enum("ready"),
            "stores": {
                "type": "object",
                "additionalProperties": closed_object(
                    ["ready", "detail"], {"ready": {"type": "boolean"}, "detail": {"type": ["string", "null"]}}
                ),
            },
        },
    ),
}
