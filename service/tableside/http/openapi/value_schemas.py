"""JSON schemas of keys, values, updates and the other members of operations (the dialect of OpenAPI 3.1)."""

from ...core import INTEGER_MAX, INTEGER_MIN
from ...core.keys import STRING_BYTES_MAX
from ...core.values import DEPTH_MAX, RESERVED_PREFIX
from ..wire.operation_members import FIELDS_MAX, WRITER_CHARACTERS_MAX
from .parts import Fragment, enum, schema

ETAG: Fragment = {"type": "string", "minLength": 1, "examples": ["18798f0c2a51e3d4"]}
EXPIRES_AT: Fragment = {
    "type": "string",
    "format": "date-time",
    "description": "When the record expires; absent if it does not.",
}
_STRING_PART: Fragment = {"type": "string", "minLength": 1, "maxLength": STRING_BYTES_MAX}
_INTEGER: Fragment = {"type": "integer", "minimum": INTEGER_MIN, "maximum": INTEGER_MAX}
_PART: Fragment = {"oneOf": [_STRING_PART, _INTEGER]}


def optional(found: Fragment) -> Fragment:
    """Return a schema that also allows null, which has the same meaning as an absent member."""
    return {"oneOf": [found, {"type": "null"}]}


def nullable(kind: str, **more: object) -> Fragment:
    """Return a schema of a type that also allows null, which has the same meaning as an absent member."""
    return {"type": [kind, "null"], **more}


def closed_object(required: list[str], properties: Fragment, **more: object) -> Fragment:
    """Return the schema of an object without other members than `properties`."""
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
        **more,
    }


KEY: Fragment = {
    "description": f"A string of 1 to {STRING_BYTES_MAX:,} bytes of UTF-8, an integer of 64 bits, or, for a table with "
    "a composite key, an array of these.",
    "oneOf": [_STRING_PART, _INTEGER, {"type": "array", "items": _PART, "minItems": 2, "maxItems": 8}],
    "examples": ["user-1", 42, ["user-1", "2026-11-20"]],
}

VALUE: Fragment = {
    "description": f"A JSON object, nested at most {DEPTH_MAX} deep. A number equal to an integer within 64 bits is "
    "that integer, any other is a finite double. Refused: integers beyond 64 bits, U+0000, lone surrogates, empty "
    f"member names, and top-level names that begin with {RESERVED_PREFIX}.",
    "type": "object",
    "propertyNames": {"minLength": 1, "not": {"pattern": f"^{RESERVED_PREFIX}"}},
    "examples": [{"name": "Ada", "visits": 1}],
}


def _of_paths(example: Fragment, **more: object) -> Fragment:
    return {"type": "object", "propertyNames": {"minLength": 1}, "examples": [example], **more}


OPERATORS: Fragment = {
    "description": "Operators with MongoDB's meanings. A path is a member name, or names with dots between them; it "
    "addresses objects only. No path may be another one's parent.",
    "type": "object",
    "minProperties": 1,
    "additionalProperties": False,
    "properties": {
        "$set": _of_paths({"address.city": "Bern"}),
        "$unset": {
            "oneOf": [{"type": "array", "items": {"type": "string", "minLength": 1}}, {"type": "object"}],
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
            {"tags": "new"}, description="As `$push`, without the elements that the array already contains."
        ),
    },
    "examples": [{"$inc": {"visits": 1}, "$set": {"address.city": "Bern"}}],
}

MERGE_PATCH: Fragment = {
    "description": "RFC 7396: members replace, objects merge, null removes.",
    "type": "object",
    "propertyNames": {"minLength": 1, "not": {"pattern": rf"^({RESERVED_PREFIX}|\$)"}},
    "examples": [{"name": "Ada Lovelace", "nickname": None}],
}

UPDATE: Fragment = {
    "description": "A merge patch, operators, or an array of these, applied in order as one atomic step.",
    "oneOf": [
        schema("MergePatch"),
        schema("Operators"),
        {"type": "array", "items": {"oneOf": [schema("MergePatch"), schema("Operators")]}},
    ],
}

TTL_S: Fragment = {
    "description": "Seconds until the record expires: above 0, or -1 for never. Null is the same as absent.",
    "type": ["number", "null"],
    "minimum": -1,
    "examples": [3600],
}

TOKEN: Fragment = closed_object(
    ["writer", "sequence"],
    {
        "writer": {"type": "string", "minLength": 1, "maxLength": WRITER_CHARACTERS_MAX},
        "sequence": {"type": "integer", "minimum": 0, "maximum": INTEGER_MAX},
    },
    description="Identifies a write. If the sequence is not above the writer's last one on this record, the write is "
    "acknowledged as replayed, and not applied.",
    examples=[{"writer": "w", "sequence": 7}],
)

FIELDS: Fragment = {
    "description": "The top-level members to return.",
    **nullable("array"),
    "items": {"type": "string", "minLength": 1},
    "maxItems": FIELDS_MAX,
}


PARTITIONS: Fragment = {
    "description": "For a partitioned table: the distinct indexes of the target partitions; an empty list means none. "
    "`all`, null and [-1] are all partitions. `default` and [null] are the partition of the key, as if absent.",
    "oneOf": [
        {"type": "array", "items": {"type": ["integer", "null"], "minimum": -1}},
        enum("all", "default"),
        {"type": "null"},
    ],
    "examples": [[0, 2], [], "all"],
}
