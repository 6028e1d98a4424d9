"""The bodies of requests and answers, as JSON schemas (the dialect of OpenAPI 3.1)."""

from ...core import INTEGER_MAX, INTEGER_MIN
from ...core.keys import STRING_BYTES_MAX
from ...core.values import DEPTH_MAX, RESERVED_PREFIX
from ..wire import problems
from ..wire.operation_members import FIELDS_MAX, WRITER_CHARACTERS_MAX
from .parts import Described, example_problem, schema

_ETAG: Described = {"type": "string", "minLength": 1, "examples": ["18798f0c2a51e3d4"]}
_EXPIRES_AT: Described = {
    "type": "string",
    "format": "date-time",
    "description": "When the record expires; not there if it does not.",
}
_STRING_PART: Described = {"type": "string", "minLength": 1, "maxLength": STRING_BYTES_MAX}
_INTEGER: Described = {"type": "integer", "minimum": INTEGER_MIN, "maximum": INTEGER_MAX}
_PART: Described = {"anyOf": [_STRING_PART, _INTEGER]}


def _optional(found: Described) -> Described:
    """Allow null, which is as if the member were not given."""
    return {"anyOf": [found, {"type": "null"}]}


def _object(required: list[str], properties: Described, **more: object) -> Described:
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
        **more,
    }


_KEY: Described = {
    "description": f"A string of 1 to {STRING_BYTES_MAX:,} bytes of UTF-8, an integer of 64 bits, or, for a table with "
    "a composite key, an array of these.",
    "anyOf": [_STRING_PART, _INTEGER, {"type": "array", "items": _PART, "minItems": 2, "maxItems": 8}],
    "examples": ["user-1", 42, ["user-1", "2026-11-20"]],
}

_VALUE: Described = {
    "description": f"A JSON object, nested at most {DEPTH_MAX} deep. A number equal to an integer within 64 bits is "
    "that integer, any other is a finite double. Refused: integers beyond 64 bits, U+0000, lone surrogates, empty "
    f"member names, and top-level names that begin with {RESERVED_PREFIX}.",
    "type": "object",
    "propertyNames": {"minLength": 1, "not": {"pattern": f"^{RESERVED_PREFIX}"}},
    "examples": [{"name": "Ada", "visits": 1}],
}


def _of_paths(example: Described, **more: object) -> Described:
    return {"type": "object", "propertyNames": {"minLength": 1}, "examples": [example], **more}


_OPERATORS: Described = {
    "description": "Operators with MongoDB's meanings. A path is a member name, or names with dots between them; it "
    "addresses objects only. No path may be another one's parent.",
    "type": "object",
    "minProperties": 1,
    "additionalProperties": False,
    "properties": {
        "$set": _of_paths({"address.city": "Bern"}),
        "$unset": {
            "anyOf": [{"type": "array", "items": {"type": "string", "minLength": 1}}, {"type": "object"}],
            "examples": [["nickname"]],
        },
        "$inc": _of_paths({"visits": 1}, additionalProperties={"type": "number"}),
        "$min": _of_paths({"first": "2026-11-20"}, additionalProperties={"type": ["number", "string"]}),
        "$max": _of_paths({"last": "2026-11-20"}, additionalProperties={"type": ["number", "string"]}),
        "$push": _of_paths(
            {"log": {"$each": [1, 2]}},
            description='Adds one element, or all of `{"$each": […]}`, to the end of an array.',
        ),
        "$addToSet": _of_paths(
            {"tags": "new"}, description="As `$push`, without the elements that the array has already."
        ),
    },
    "examples": [{"$inc": {"visits": 1}, "$set": {"address.city": "Bern"}}],
}

_MERGE_PATCH: Described = {
    "description": "RFC 7396: members replace, objects merge, null removes.",
    "type": "object",
    "propertyNames": {"minLength": 1, "not": {"pattern": rf"^({RESERVED_PREFIX}|\$)"}},
    "examples": [{"name": "Ada Lovelace", "nickname": None}],
}

_UPDATE: Described = {
    "description": "What to change: a merge patch, operators, or an array of these, applied in order as one step.",
    "anyOf": [
        schema("MergePatch"),
        schema("Operators"),
        {"type": "array", "items": {"anyOf": [schema("MergePatch"), schema("Operators")]}},
    ],
}

_TTL_S: Described = {
    "description": "Seconds until the record expires; -1 is never, null is as if not given.",
    "anyOf": [{"const": -1}, {"type": "number", "exclusiveMinimum": 0}, {"type": "null"}],
}

_TOKEN: Described = _object(
    ["writer", "sequence"],
    {
        "writer": {"type": "string", "minLength": 1, "maxLength": WRITER_CHARACTERS_MAX},
        "sequence": {"type": "integer", "minimum": 0, "maximum": INTEGER_MAX},
    },
    description="Names a write of a writer: one whose sequence is not above the writer's last on this record is "
    "acknowledged as replayed, and not applied.",
    examples=[{"writer": "w", "sequence": 7}],
)

_FIELDS: Described = {
    "description": "Only these top-level members are answered.",
    "type": "array",
    "items": {"type": "string", "minLength": 1},
    "maxItems": FIELDS_MAX,
}


_PARTITIONS: Described = {
    "description": "Of a partitioned table: the indexes of the partitions that it goes to, each once; none is nowhere. "
    "`all`, null and [-1] are all of them; `default` and [null] are as if it were not given: where the key is placed.",
    "anyOf": [
        {"type": "array", "items": {"type": "integer", "minimum": 0}},
        {"type": "array", "items": {"enum": [-1, None]}, "minItems": 1, "maxItems": 1},
        {"enum": ["all", "default", None]},
    ],
    "examples": [[0, 2], [], "all"],
}


def _operation(op: str, required: list[str], properties: Described, description: str) -> Described:
    key_and_fields = {
        "op": {"const": op},
        "key": schema("Key"),
        "fields": _optional(_FIELDS),
        "partitions": schema("Partitions"),
    }
    return _object(["op", "key", *required], {**key_and_fields, **properties}, description=description)


_CONDITION: Described = {
    "if_match": _optional({**_ETAG, "description": "Only if the record is in this version; `*` is any."})
}
_COMMON: Described = {**_CONDITION, "token": _optional(schema("Token")), "return": _optional({"type": "boolean"})}

_OPERATIONS: Described = {
    "Get": _operation("get", [], {}, "Ask for a record."),
    "Put": {
        **_operation(
            "put",
            ["value"],
            {
                "value": schema("Value"),
                "if_absent": _optional({"type": "boolean", "description": "Only if there is no such record."}),
                "ttl_s": schema("TtlS"),
                **_COMMON,
            },
            "Make the record's value exactly this one.",
        ),
        "not": {
            "required": ["if_match", "if_absent"],
            "properties": {"if_match": {"type": "string"}, "if_absent": {"const": True}},
        },
    },
    "Update": _operation(
        "update",
        ["update"],
        {"update": schema("UpdateDocument"), "default": _optional(schema("Value")), "ttl_s": schema("TtlS"), **_COMMON},
        "Change a record, starting from the default where there is none.",
    ),
    "Delete": _operation("delete", [], _COMMON, "Make the record absent; fine if it is."),
}

_BATCH: Described = _object(
    ["operations"],
    {
        "operations": {
            "description": "In the order in which operations on one key take effect.",
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

_TOLD: Described = {
    "status": {"description": "What the single request would have answered.", "type": "integer"},
    "value": schema("Value"),
    "etag": _ETAG,
    "expires_at": _EXPIRES_AT,
    "replayed": {"const": True},
    "error": schema("Problem"),
}

_FAILED_OR_NOT: Described = {
    "if": {"required": ["error"]},
    "then": {"properties": {"status": {"minimum": 400, "maximum": 599}}},
    "else": {"properties": {"status": {"enum": [200, 201, 204]}}},
}

_OF_PARTITIONS: Described = {
    "description": "Of a write to a partitioned table: what became of it in each partition that it went to, by index.",
    "type": "array",
    "items": schema("PartitionResult"),
}

_RESULT: Described = _object(
    ["status"],
    {
        **_TOLD,
        "partitions": _OF_PARTITIONS,
        "dropped": {"description": "It was for no partition.", "const": True},
    },
    description="What became of one operation. Where it went to several partitions, etag and value are only theirs.",
    **_FAILED_OR_NOT,
)

_PARTITION_RESULT: Described = _object(
    ["partition", "status"],
    {"partition": {"type": "integer", "minimum": 0}, **_TOLD},
    description="What became of a write in one partition.",
    **_FAILED_OR_NOT,
)

_PROBLEM: Described = {
    "description": "RFC 9457 problem details.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "retriable", "applied"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer", "enum": sorted(set(problems.STATUS.values()))},
        "detail": {"type": "string"},
        "code": {"type": "string", "enum": sorted(problems.STATUS)},
        "retriable": {"description": "Whether asking again may help.", "type": "boolean"},
        "applied": {"description": "Whether a write may have happened.", "enum": ["no", "unknown"]},
        "retry_after_s": {"description": "How long to wait first, where known.", "type": "number", "minimum": 0},
        "partitions": _OF_PARTITIONS,
    },
    "examples": [example_problem()],
}

_TABLE: Described = {
    "type": "object",
    "required": ["name", "store", "key", "capabilities", "limits", "policies"],
    "properties": {
        "name": {"type": "string"},
        "store": _object(["name", "kind"], {"name": {"type": "string"}, "kind": {"type": "string"}}),
        "key": {
            "description": "The parts of a key, in order; the name is null where the configuration names none.",
            "type": "array",
            "minItems": 1,
            "items": _object(
                ["name", "type"], {"name": {"type": ["string", "null"]}, "type": {"enum": ["string", "integer"]}}
            ),
        },
        "capabilities": {
            "description": "What the table can do; in a list, empty until its store could first be asked.",
            "type": "object",
            "additionalProperties": {"type": "boolean"},
        },
        "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
        "policies": {"type": "object"},
        "partitions": {"description": "How many it has, where it is partitioned.", "type": "integer", "minimum": 1},
    },
}

_WHERE: Described = {
    "partition": {"description": "Where it is, of a partitioned table.", "type": "integer", "minimum": 0}
}

_RECORD: Described = _object(
    ["key", "value", "etag"],
    {"key": schema("Key"), "value": schema("Value"), "etag": _ETAG, "expires_at": _EXPIRES_AT, **_WHERE},
)

SCHEMAS: Described = {
    "Key": _KEY,
    "Value": _VALUE,
    "MergePatch": _MERGE_PATCH,
    "Operators": _OPERATORS,
    "UpdateDocument": _UPDATE,
    "TtlS": _TTL_S,
    "Token": _TOKEN,
    "UpdateRequest": _object(
        ["update"],
        {"update": schema("UpdateDocument"), "default": _optional(schema("Value")), "ttl_s": schema("TtlS")},
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
    "Partitions": _PARTITIONS,
    "Result": _RESULT,
    "PartitionResult": _PARTITION_RESULT,
    "Results": _object(
        ["results"],
        {"results": {"description": "One per operation, in its order.", "type": "array", "items": schema("Result")}},
    ),
    "Problem": _PROBLEM,
    "Table": _TABLE,
    "Tables": _object(["tables"], {"tables": {"type": "array", "items": schema("Table")}}),
    "Record": _RECORD,
    "Page": _object(
        ["records", "cursor"],
        {
            "records": {"type": "array", "items": schema("Record")},
            "cursor": {"description": "Where the next page begins; null ends.", "type": ["string", "null"]},
        },
    ),
    "Splits": _object(
        ["splits"], {"splits": {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}}
    ),
    "Readiness": _object(
        ["status", "stores"],
        {
            "status": {"const": "ready"},
            "stores": {
                "type": "object",
                "additionalProperties": _object(
                    ["ready", "detail"], {"ready": {"type": "boolean"}, "detail": {"type": ["string", "null"]}}
                ),
            },
        },
    ),
}
