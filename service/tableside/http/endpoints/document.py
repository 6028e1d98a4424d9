"""The OpenAPI document, which FastAPI generates from the declared endpoints, and the parts that endpoints share in it.

Swagger UI at /docs shows it, generators make clients from it, and tests compare it with the responses of the service.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema
from starlette.routing import BaseRoute

from ..wire import problems
from ..wire.members import OUTCOME_MEMBERS
from . import models

Fragment: TypeAlias = dict[str, Any]
"""A part of the document, as JSON."""

Responses: TypeAlias = dict[int | str, Fragment]
"""The documented responses of an endpoint, by status."""

_SCHEMAS, _PARAMETERS, _HEADERS = (f"#/components/{kind}/" for kind in ("schemas", "parameters", "headers"))

DESCRIPTION_ERRORS = ("overloaded", "internal", "malformed_request", "unauthenticated", "forbidden", "not_acceptable")
TABLE_ERRORS = (
    *("overloaded", "internal", "malformed_request", "unauthenticated", "forbidden", "table_not_found"),
    *("generation_not_found",),
    *("invalid_operation", "throttled", "unsupported", "store_unavailable", "deadline_exceeded"),
)
WRITE_ERRORS = (
    *(*TABLE_ERRORS, "precondition_failed", "contended", "record_unreadable", "not_acceptable", "too_large"),
    *("unsupported_media_type", "generation_sealed"),
)
"""The codes of errors that many endpoints have."""

ABOUT = """\
Random access by key to tables in RocksDB, Redis, PostgreSQL and DynamoDB.

A **table** is a named set of **records**; a record is a key and a value, which is a JSON object. An **operation**
(get, put, update, delete) works on one record; a **batch** is many operations sent together, each of which succeeds
or fails by itself. Every response with a status of 400 or more is an RFC 9457 problem.

A key in a path is percent-encoded, one segment per part: `a%2Fb` is the key `a/b`, and the key
`["user-1", "2026-11-20"]` of a table with a composite key is `user-1/2026-11-20`. The keys `.` and `..` work only in
a batch, because clients remove these segments from paths.

If the service requires authentication, a request carries a bearer token, which may allow reading some tables and
writing others. A request without permission is `forbidden`; in a batch, only the result of that operation is.
"""

TAGS = {
    "records": "Operations on one record.",
    "batches": "Many operations in one request, as JSON or as Arrow.",
    "scans": "Scans of a whole table, page by page and in parallel.",
    "generations": "The complete contents of a table: replacing all its records at once.",
    "tables": "The tables and their capabilities.",
    "service": "For probes and monitoring.",
}


def _header(description: str, *, required: bool = False, example: object = None, **schema: object) -> Fragment:
    shown = {} if example is None else {"example": example}
    return {"description": description, "required": required, "schema": {"type": "string", **schema}, **shown}


_ETAG: dict[str, Any] = {"pattern": '^"[!#-~]+"$', "example": '"18798f0c2a51e3d4"'}

HEADERS: dict[str, Fragment] = {
    "X-Request-Id": _header(
        "The request's id: the client's, or a generated one.", required=True, minLength=1, maxLength=128
    ),
    "ETag": _header("The version of the record: it changes whenever the value does.", required=True, **_ETAG),
    "ETag-If-Present": _header(
        "The version of the record; absent if a replay found the record deleted, or if the write went to several "
        "partitions, or to none.",
        **_ETAG,
    ),
    "Tableside-Expires-At": _header(
        "When the record expires (RFC 3339, UTC); absent if it does not.",
        format="date-time",
        example="2030-01-01T00:00:00.000Z",
    ),
    "Age": _header(
        "Seconds since the record was read; only if it was not read for this request.",
        type="integer",
        minimum=0,
        example=3,
    ),
    **{f"Tableside-{member.name.title()}": _header(member.header, enum=["true"]) for member in OUTCOME_MEMBERS},
    "Tableside-Partitions": _header(
        "For a partitioned table: the indexes of the partitions that the operation was sent to.",
        pattern="^[0-9]{1,3}(,[0-9]{1,3})*$",
        example="0,2",
    ),
    "Tableside-Dropped": _header("The write named no partition: it was acknowledged, and not applied.", enum=["true"]),
    "Preference-Applied": _header("The preference that was applied.", enum=["return=representation"]),
    "Tableside-Cursor": _header("The cursor of the next page; absent on the last page.", minLength=1),
    "Retry-After": _header(
        "Seconds to wait before a retry: always for 429 and 503, and for 409 if it is known.",
        type="integer",
        minimum=1,
        example=1,
    ),
    "WWW-Authenticate": _header("The authentication scheme.", required=True, enum=["Bearer"]),
    "Accept-Patch": _header(
        "The media types of an update.", required=True, enum=["application/json, application/merge-patch+json"]
    ),
    "Vary": _header("The media type depends on `Accept`.", enum=["Accept"]),
}
"""The documented headers of responses. Those whose name has a suffix `-If-…` are not in every response."""

_ERROR_HEADERS = {401: ["WWW-Authenticate"], 409: ["Retry-After"], 429: ["Retry-After"], 503: ["Retry-After"]}

PARAMETERS: dict[str, Fragment] = {
    "X-Request-Id": _header(
        "Identifies the request in logs, and is returned. Generated unless it has 1 to 128 visible ASCII characters."
    ),
    "traceparent": _header(
        "W3C Trace Context; ignored if it is invalid.",
        example="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
}
"""The headers that every request may have. The middleware reads them."""


def response(
    description: str,
    *headers: str,
    model: type[BaseModel] | None = None,
    content: Fragment | None = None,
    links: Fragment | None = None,
) -> Fragment:
    """Return the documentation of a response: its description, the names of its `HEADERS`, and its body in JSON.

    `content` has its bodies in other media types.
    """
    names = (*headers, "X-Request-Id")  # Every response has this one.
    references = {name.partition("-If-")[0]: {"$ref": _HEADERS + name} for name in names}
    bodies = {**({} if model is None else {"application/json": json_body(model)}), **(content or {})}
    found = {"description": description, "headers": references, "content": bodies, "links": links}
    return {name: part for name, part in found.items() if part}


def link(operation: str, description: str, parameters: Mapping[str, str]) -> Fragment:
    """Return the documentation of a request that may follow a response."""
    return {"operationId": operation, "description": description, "parameters": parameters}


def without_bodies(responses: Responses) -> Responses:
    """Return the documentation of the responses to HEAD, from the one of the responses to GET."""
    return {
        status: {name: one for name, one in found.items() if name != "content"} for status, found in responses.items()
    }


def errors(*codes: str, headers: Mapping[int, Sequence[str]] = MappingProxyType({})) -> Responses:
    """Return the documentation of the responses with these error codes.

    `headers` are the names of additional `HEADERS` by status.
    """
    by_status: dict[int, list[str]] = {}
    for code in codes:
        status, meaning = problems.CODES[code]
        by_status.setdefault(status, []).append(f"`{code}`: {meaning}")
    content = {problems.MEDIA_TYPE: json_body(models.Problem)}
    return {
        status: response(
            "; ".join(meanings), *_ERROR_HEADERS.get(status, ()), *headers.get(status, ()), content=content
        )
        for status, meanings in by_status.items()
    }


def binary(description: str) -> Fragment:
    """Return the documentation of a body in Arrow."""
    return {"schema": {"type": "string", "format": "binary", "description": description}}


def request_body(content: Fragment, *, required: bool = True) -> Fragment:
    """Return the documentation of a body in its media types, as `openapi_extra` of an endpoint."""
    return {"requestBody": {"required": required, "content": content}}


def json_body(model: type[BaseModel], **more: object) -> Fragment:
    """Return the documentation of a body with the schema of a model."""
    return {"schema": {"$ref": _SCHEMAS + model.__name__}, **more}


def generate(routes: Sequence[BaseRoute], version: str) -> Fragment:
    """Return the OpenAPI document of the endpoints among the routes."""
    found = get_openapi(
        title="Tableside",
        version=version,
        openapi_version="3.1.0",
        description=ABOUT,
        routes=routes,
        tags=[{"name": name, "description": description} for name, description in TAGS.items()],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    bearer = "A token that the configuration accepts. Without `auth` there, no token is required."
    for item in found["paths"].values():
        for operation in item.values():
            # FastAPI adds titles of parameters, and a response of its own for invalid ones.
            for parameter in operation.get("parameters", ()):
                parameter["schema"].pop("title", None)
                if examples := parameter["schema"].pop("examples", None):
                    parameter["example"] = examples[0]
            documented = {status: one for status, one in operation["responses"].items() if "headers" in one}
            operation["responses"] = dict(sorted(documented.items()))
        item["parameters"] = [{"$ref": _PARAMETERS + name} for name in PARAMETERS]
    found["security"] = [{}, {"bearer": []}]  # Whether a token is required depends on the configuration.
    bodies: list[tuple[type[BaseModel], Literal["validation"]]] = [(model, "validation") for model in models.BODIES]
    _, generated = models_json_schema(bodies, ref_template=_SCHEMAS + "{model}", schema_generator=_SchemaGenerator)
    schemas = generated["$defs"]
    for schema in schemas.values():
        schema.pop("title")
    found["components"] = {
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": bearer}},
        "parameters": {name: {"name": name, "in": "header", **one} for name, one in PARAMETERS.items()},
        "headers": HEADERS,
        "schemas": {name: schemas[name] for name in {**vars(models), **schemas} if name in schemas},
    }
    return found


class _SchemaGenerator(GenerateJsonSchema):
    """Generates schemas that generators of clients understand: without `anyOf`, `const`, defaults and titles."""

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        return {"type": "string", "enum": schema["expected"]}

    def get_union_of_schemas(self, schemas: list[JsonSchemaValue]) -> JsonSchemaValue:
        parts = [part for one in schemas for part in (one["oneOf"] if one.keys() == {"oneOf"} else [one])]
        given = [part for part in parts if part != {"type": "null"}]
        if len(given) == 1 and "type" in given[0] and len(parts) == 2:
            return {**given[0], "type": [given[0]["type"], "null"]}
        return {"oneOf": parts}

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: object) -> bool:
        return False
