"""The parameters of requests: the name, the description and the parser of each, declared once.

Those that give members of operations are in `wire.members`. `Accept` is none of them: OpenAPI describes it by the media
types of the responses.

An endpoint names its parameters in its signature. If a request has one, `Endpoint` calls its parser with the text.
FastAPI describes them in the OpenAPI document with the given schema, since parsers decide themselves what they accept.
"""

from typing import Annotated, Any, TypeAlias

from fastapi import Header, Path, Query
from pydantic import PlainValidator, WithJsonSchema

from ...core.keys import STRING_BYTES_MAX
from ...settings import NAME
from ..wire import request_headers
from ..wire.members import ETAG, ETAGS
from ..wire.operation_members import parse_partitions_query
from ..wire.projections import Fields
from ..wire.request_headers import INTEGER_MAX, Preferences


def text(example: str | None = None, **schema: object) -> WithJsonSchema:
    """Return the schema of a text."""
    shown = {} if example is None else {"examples": [example]}
    return WithJsonSchema({"type": "string", **schema, **shown})


def count(default: int) -> WithJsonSchema:
    """Return the schema of a number of at least 1."""
    return WithJsonSchema(
        {"type": "integer", "format": "int64", "minimum": 1, "maximum": INTEGER_MAX, "default": default}
    )


TableName: TypeAlias = Annotated[str, text("profiles", pattern=NAME), Path(description="The table's name.")]

KeyPath: TypeAlias = Annotated[
    str,
    text("user-1", minLength=1, maxLength=STRING_BYTES_MAX),
    Path(
        description="The record's key, percent-encoded. An integer is decimal. A composite key has one segment per "
        "part."
    ),
]

FieldsQuery: TypeAlias = Annotated[
    Fields,
    PlainValidator(request_headers.parse_fields),
    text("name,visits"),
    Query(description="Comma-separated names of the top-level members to return."),
]

PartitionsQuery: TypeAlias = Annotated[
    Any,
    PlainValidator(parse_partitions_query),
    text("0,2", pattern="^(all|default|-1|[0-9]{1,3}(,[0-9]{1,3})*)?$"),
    Query(
        description="For a partitioned table: the comma-separated indexes of the target partitions; `all`; `default`, "
        "the partition of the key, which is the default; or nothing, for no partition. A get needs exactly one."
    ),
]

IfNoneMatch: TypeAlias = Annotated[
    str | None,
    text(ETAG, pattern=ETAGS),
    Header(
        alias="If-None-Match",
        description="Etags in quotes, or `*`: if the record has one of these versions, the response is 304 without a "
        "body.",
    ),
]

Prefer: TypeAlias = Annotated[
    Preferences | None,
    PlainValidator(request_headers.parse_preferences),
    text("return=representation, wait=10"),
    Header(
        alias="Prefer",
        description="RFC 7240. `return=representation` requests the value after a PUT or PATCH. `wait=S` is the "
        "client's deadline in seconds: after it the response is 504. Unknown preferences are ignored.",
    ),
]

CacheControl: TypeAlias = Annotated[
    float | None,
    PlainValidator(request_headers.parse_cache_control),
    text("max-age=5"),
    Header(
        alias="Cache-Control",
        description="RFC 9111, for a table that has a cache. `no-cache` reads from the store and refreshes the cache. "
        "`max-age=N`: a record from the cache is at most N seconds old. Other directives are ignored. In a batch it "
        "applies to every get.",
    ),
]
