"""The optional members of operations and of the outcomes of writes, each declared once.

JSON, Arrow, headers, queries and the OpenAPI document read these declarations. To add a member, add its field to the
operations in `core`, and one entry to `MEMBERS`.

`OUTCOME_MEMBERS` are flags, the names of fields of `Written`. In JSON and in headers they are true or absent. Metrics
count them (`core.operations.FLAGS`).
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from annotated_types import Len
from fastapi import Header, Query
from pydantic import BaseModel, Field, PlainValidator, RootModel, WithJsonSchema

from ...core import INTEGER_MAX, INTEGER_MIN, InvalidOperation, operations
from ...core.operations import (
    WRITER_CHARACTERS_MAX,
    Delete,
    Get,
    Operation,
    Put,
    Record,
    Update,
    Written,
    checked_token,
)
from ...core.transitions import checked_ttl_s
from . import request_headers as texts

KINDS: dict[str, type[Operation]] = {"get": Get, "put": Put, "update": Update, "delete": Delete}

EXACT_MAX = 2**53
"""The largest order that may be written as a double. A larger one may have lost digits of its text."""

ETAG = '"18798f0c2a51e3d4"'
ETAGS = r'^(\*|(W/)?"[!#-~]*"(, *(W/)?"[!#-~]*")*)$'


class Member(msgspec.Struct, frozen=True):
    """A member of some kinds of operations. Null is the same as absent.

    `parse` returns the value of the `field` for a value of JSON or of one of the `parameters`, which are headers or
    parts of queries, or raises InvalidOperation. `form` is its type in the document, `column` that in Arrow. `cells`
    are its types in a batch, none for an object. If it is `lenient`, an operation of any kind may have it as null, and
    a flag also as false. Requests that cannot have it `refuse` its parameters.
    """

    name: str
    kinds: tuple[str, ...]
    parse: Callable[[Any], Any]
    form: Any
    parameters: Mapping[str, Any] = MappingProxyType({})
    cells: tuple[type, ...] = ()
    column: str = ""
    field: str = ""
    lenient: bool = False
    refuse: Literal["", "batch", "all"] = ""


def _flag(name: str, raw: Any) -> bool:
    if not isinstance(raw := raw or False, bool):
        raise InvalidOperation(f"{name} must be true or false")
    return raw


def _if_match(raw: Any) -> tuple[str, ...]:
    if not isinstance(raw, (str, tuple)):
        raise InvalidOperation("if_match must be an etag")
    return (raw,) if isinstance(raw, str) else raw


def _token(raw: Any) -> operations.Token:
    if isinstance(raw, operations.Token):
        return raw
    if not isinstance(raw, dict) or raw.keys() != {"writer", "sequence"}:
        raise InvalidOperation("a token must have the members writer and sequence")
    return checked_token(**raw)


def _order(raw: Any) -> int:
    if isinstance(raw, float) and raw.is_integer() and abs(raw) <= EXACT_MAX:
        raw = int(raw)
    if type(raw) is int and INTEGER_MIN <= raw <= INTEGER_MAX:
        return raw
    raise InvalidOperation("order must be an integer from -2^63 to 2^63-1")


class TtlS(
    RootModel[Annotated[float, Field(ge=-1)] | None], json_schema_extra={"format": "double", "examples": [3600]}
):
    """Seconds until the record expires: above 0, or -1 for never. Null is the same as absent."""


class Token(BaseModel, extra="forbid", json_schema_extra={"examples": [{"writer": "w", "sequence": 7}]}):
    """Identifies a write.

    If the sequence is not above the writer's last one on this record, the write is acknowledged as replayed, and not
    applied.
    """

    writer: Annotated[str, Len(1, WRITER_CHARACTERS_MAX)]
    sequence: Annotated[int, Field(ge=0, le=INTEGER_MAX, json_schema_extra={"format": "int64"})]


class Order(
    RootModel[Annotated[int, Field(ge=INTEGER_MIN, le=INTEGER_MAX)] | None],
    json_schema_extra={"format": "int64", "examples": [1732700000000000]},
):
    """The order of the write: it changes only members that no write with a higher order has written.

    An ordered write has no conditions and no default. An ordered update sets and removes top-level members. Null is the
    same as absent.
    """


_KEY = rf'^([^"].{{0,{WRITER_CHARACTERS_MAX - 1}}}|"([^"\\]|\\["\\]){{1,{WRITER_CHARACTERS_MAX}}}")$'
IdempotencyKey: TypeAlias = Annotated[
    operations.Token | None,
    PlainValidator(texts.parse_idempotency_key),
    WithJsonSchema({"type": "string", "pattern": _KEY, "examples": ['"8e03978e-40d5-43e8-bc93-6894a57f9324"']}),
    Header(
        alias="Idempotency-Key",
        description="Identifies this write: repeating the request with the same key does not apply the write again. "
        "The same as the token `<key>/1`. Quotes around the key are not part of it. Cannot be combined with "
        "`Tableside-Token`.",
    ),
]


def _header(name: str, parse: Callable[[str], Any], description: str, example: str, **schema: object) -> dict[str, Any]:
    form = WithJsonSchema({"type": "string", **schema, "examples": [example]})
    return {name: Annotated[Any, PlainValidator(parse), form, Header(alias=name, description=description)]}


def _query(name: str, parse: Callable[[str], Any], description: str, **schema: object) -> dict[str, Any]:
    return {name: Annotated[Any, PlainValidator(parse), WithJsonSchema(schema), Query(description=description)]}


_IF_NONE_MATCH = _header(
    "If-None-Match",
    texts.parse_create_only,
    "`*`: the write is applied only if the record does not exist.",
    "*",
    enum=["*"],
)
_IF_MATCH = _header(
    "If-Match",
    texts.parse_if_match,
    "Comma-separated etags in quotes: the write is applied only if the record has one of these versions. `*` is any "
    "version. For an absent record the response is 412.",
    ETAG,
    pattern=ETAGS,
)
_TTL = _query(
    "ttl_s",
    texts.parse_ttl_s,
    "Seconds until the record expires; -1 is never. Without it a put takes the table's default, and an update keeps "
    "the expiry that the record has. The body of an update must not have it as well.",
    type="number",
    format="double",
    minimum=-1,
    examples=[3600],
)
_TOKEN = _header(
    "Tableside-Token",
    texts.parse_token,
    "`<writer>/<sequence>`: identifies this write, so that a repetition is acknowledged and not applied. The writer "
    "sends its sequences for one key in ascending order. A sequence is an integer from 0 to 2^63-1.",
    "etl-3/42",
    pattern=f"^.{{1,{WRITER_CHARACTERS_MAX}}}/[0-9]{{1,19}}$",
)
_ORDER = _header(
    "Tableside-Order",
    lambda text: _order(int(text) if re.fullmatch("-?[0-9]{1,19}", text) else text),
    "A signed 64-bit integer, for instance the time of an event in microseconds: the write changes only members that "
    "no write with a higher order has written.",
    "1732700000000000",
    pattern="^-?[0-9]{1,19}$",
)
_FORGET = _query(
    "forget",
    partial(texts.parse_boolean, what="forget"),
    "`true` also removes the tokens and orders that the record remembers, for example after a write with a wrong "
    "order. Cannot be combined with a token or an order.",
    type="boolean",
    default=False,
)

_OnlyNew = Annotated[bool | None, Field(description="Only if the record does not exist; not with `if_match`.")]
_OnlyVersion = Annotated[
    Annotated[str, Len(1)] | None, Field(description="Only if the record has this version; `*` is any version.")
]
_AlsoForget = Annotated[
    bool | None, Field(description="Also remove the tokens and orders of the record; not with `token` and `order`.")
]
_PUT, _UPDATE, _WRITES = ("put",), ("put", "update"), ("put", "update", "delete")

MEMBERS = (
    Member("if_absent", _PUT, partial(_flag, "if_absent"), _OnlyNew, _IF_NONE_MATCH, (bool,), "bool", lenient=True),
    Member("if_match", _WRITES, _if_match, _OnlyVersion, _IF_MATCH, (str,), "utf8"),
    Member("return", _WRITES, partial(_flag, "return"), bool | None, {}, (bool,), field="returning"),
    Member("ttl_s", _UPDATE, checked_ttl_s, TtlS, _TTL, (int, float), "integer or double"),
    Member("token", _WRITES, _token, Token | None, _TOKEN | {"Idempotency-Key": IdempotencyKey}, refuse="batch"),
    Member("order", _WRITES, _order, Order, _ORDER, (int,), "integer", lenient=True, refuse="all"),
    Member("forget", ("delete",), partial(_flag, "forget"), _AlsoForget, _FORGET, (bool,)),
)
"""The members in the sequence in which they are checked."""

BY_NAME = {member.name: member for member in MEMBERS}
OF_KIND = {kind: tuple(member for member in MEMBERS if kind in member.kinds) for kind in KINDS}


def conflict(kind: str, given: Mapping[str, Any]) -> str:
    """Return why the members of an operation cannot be combined, or no text. `given` are the values of its fields."""
    if kind == "put" and given.get("if_absent") and "if_match" in given:
        return "if_match and if_absent cannot be combined"
    if kind == "delete" and given.get("forget") and not given.keys().isdisjoint({"token", "order"}):
        return "forget cannot be combined with a token or an order"
    return ""


class OutcomeMember(msgspec.Struct, frozen=True):
    """A flag: what its header means, its result in JSON, and the outcomes that metrics count for it.

    Answers in Arrow have it if the request has the column `requires`, "" for any request.
    """

    name: str
    header: str
    result: str
    counted: str
    requires: str = ""


OUTCOME_MEMBERS = (
    OutcomeMember(
        "replayed",
        "The write is a repetition by its token, and was not applied again.",
        "True for a repeated write, which was not applied again; else absent.",
        "Repeated writes, recognized by their token and not applied again",
    ),
    OutcomeMember(
        "superseded",
        "All members of the ordered write have higher orders.",
        "True if all members have higher orders; else absent.",
        "Ordered writes that arrived after newer ones, and changed nothing",
        requires="order",
    ),
)

_NAMES = [member.name for member in OUTCOME_MEMBERS]
_VALUES = attrgetter(*_NAMES)


def given_by(outcome: Record | Written) -> list[tuple[str, Any]]:
    """Return the names and values of the members that an answer has. That of a read has none."""
    if isinstance(outcome, Record) or not any(given := _VALUES(outcome)):
        return []
    return [(name, value) for name, value in zip(_NAMES, given, strict=True) if value]
