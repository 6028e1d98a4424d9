"""The parameters of requests: the name, the description and the parser of each, declared once.

An endpoint names its parameters in its signature. If a request has one, `Endpoint` calls its parser with the text.
FastAPI describes them in the OpenAPI document with the given schema, since parsers decide themselves what they accept.
"""

from functools import partial
from typing import Annotated, Any, NewType, TypeAlias

from fastapi import Header, Path, Query
from pydantic import PlainValidator, WithJsonSchema

from ...core.keys import STRING_BYTES_MAX
from ...core.operations import Token
from ...settings import NAME
from ..wire import request_headers
from ..wire.json_batch import MEDIA_TYPE as JSON
from ..wire.operation_members import WRITER_CHARACTERS_MAX, parse_partitions_query
from ..wire.projections import Fields
from ..wire.request_headers import INTEGER_MAX, Preferences

_ETAGS = r'^(\*|(W/)?"[!#-~]*"(, *(W/)?"[!#-~]*")*)$'
_ETAG = '"18798f0c2a51e3d4"'


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

Segments = NewType("Segments", list[bytes])
"""The percent-encoded segments of a path. FastAPI supports no lists in paths."""

KeySegments: TypeAlias = Annotated[
    Segments,
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

TtlQuery: TypeAlias = Annotated[
    float | None,
    PlainValidator(request_headers.parse_ttl_s),
    WithJsonSchema({"type": "number", "format": "double", "minimum": -1, "examples": [3600]}),
    Query(
        description="Seconds until the record expires; -1 is never. Without it a put takes the table's default, and an "
        "update keeps the expiry that the record has. The body of an update must not have it as well."
    ),
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

IfMatch: TypeAlias = Annotated[
    tuple[str, ...] | None,
    PlainValidator(request_headers.parse_if_match),
    text(_ETAG, pattern=_ETAGS),
    Header(
        alias="If-Match",
        description="Comma-separated etags in quotes: the write is applied only if the record has one of these "
        "versions. `*` is any version. For an absent record the response is 412.",
    ),
]

IfNoneMatch: TypeAlias = Annotated[
    str | None,
    text(_ETAG, pattern=_ETAGS),
    Header(
        alias="If-None-Match",
        description="Etags in quotes, or `*`: if the record has one of these versions, the response is 304 without a "
        "body.",
    ),
]

CreateOnly: TypeAlias = Annotated[
    bool | None,
    PlainValidator(request_headers.parse_create_only),
    text("*", enum=["*"]),
    Header(alias="If-None-Match", description="`*`: the write is applied only if the record does not exist."),
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

TokenHeader: TypeAlias = Annotated[
    Token | None,
    PlainValidator(request_headers.parse_token),
    text("etl-3/42", pattern=f"^.{{1,{WRITER_CHARACTERS_MAX}}}/[0-9]{{1,19}}$"),
    Header(
        alias="Tableside-Token",
        description="`<writer>/<sequence>`: identifies this write, so that a repetition is acknowledged and not "
        "applied. The writer sends its sequences for one key in ascending order. A sequence is an integer from 0 to "
        "2^63-1.",
    ),
]

IdempotencyKey: TypeAlias = Annotated[
    Token | None,
    PlainValidator(request_headers.parse_idempotency_key),
    text(
        '"8e03978e-40d5-43e8-bc93-6894a57f9324"',
        pattern=rf'^([^"].{{0,{WRITER_CHARACTERS_MAX - 1}}}|"([^"\\]|\\["\\]){{1,{WRITER_CHARACTERS_MAX}}}")$',
    ),
    Header(
        alias="Idempotency-Key",
        description="Identifies this write: repeating the request with the same key does not apply the write again. "
        "The same as the token `<key>/1`. Quotes around the key are not part of it. Cannot be combined with "
        "`Tableside-Token`.",
    ),
]

OrderHeader: TypeAlias = Annotated[
    int | None,
    PlainValidator(request_headers.parse_order),
    text("1732700000000000", pattern="^-?[0-9]{1,19}$"),
    Header(
        alias="Tableside-Order",
        description="A signed 64-bit integer, for instance the time of an event in microseconds: the write changes "
        "only members that no write with a higher order has written.",
    ),
]

ForgetQuery: TypeAlias = Annotated[
    bool,
    PlainValidator(partial(request_headers.parse_boolean, what="forget")),
    WithJsonSchema({"type": "boolean", "default": False}),
    Query(
        description="`true` also removes the tokens and orders that the record remembers, for example after a write "
        "with a wrong order. Cannot be combined with a token or an order."
    ),
]

Accept: TypeAlias = Annotated[str | None, Header(alias="Accept", include_in_schema=False)]
"""Not described as a parameter, because OpenAPI describes it by the media types of the responses."""

AcceptJson: TypeAlias = Annotated[
    None,
    PlainValidator(partial(request_headers.check_accepts, media=JSON)),
    Header(alias="Accept", include_in_schema=False),
]
"""For endpoints that answer in JSON only. The parser rejects requests that do not accept it."""
