"""The JSON bodies of requests and responses, as models for the OpenAPI document.

They describe bodies and do not parse them: `wire` decodes and encodes whole batches in a fraction of the time. A member
with the default ABSENT may be absent. Only a member whose type includes None may be null.
"""

from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Len
from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model

from ...core import INTEGER_MAX, INTEGER_MIN, MalformedRequest
from ...core.keys import STRING_BYTES_MAX
from ...core.update_operators import OPERATORS
from ...core.values import RESERVED_PREFIX
from ..wire import members, problems
from ..wire.members import OF_KIND, OUTCOME_MEMBERS
from ..wire.projections import FIELDS_MAX

ABSENT: Any = None

Name: TypeAlias = Annotated[str, Len(1)]
Index: TypeAlias = Annotated[int, Field(ge=0)]
Integer: TypeAlias = Annotated[int, Field(ge=INTEGER_MIN, le=INTEGER_MAX, json_schema_extra={"format": "int64"})]
KeyPart: TypeAlias = Annotated[str, Len(1, STRING_BYTES_MAX)] | Integer
Members: TypeAlias = dict[Name, Any]
Etag: TypeAlias = Annotated[str, Field(min_length=1, examples=["18798f0c2a51e3d4"])]
Expiry: TypeAlias = Annotated[
    str, Field(description="When the record expires; absent if it does not.", json_schema_extra={"format": "date-time"})
]
PartitionResults: TypeAlias = Annotated[
    "list[PartitionResult]",
    Field(description="For a write to a partitioned table: the result in each target partition, by index."),
]


class Body(BaseModel, extra="forbid"):
    """A JSON object without other members."""


class Key(
    RootModel[KeyPart | Annotated[list[KeyPart], Len(2, 8)]],
    json_schema_extra={"examples": ["user-1", 42, ["user-1", "2026-11-20"]]},
):
    """A string of 1 to 1,024 bytes of UTF-8, an integer of 64 bits, or an array of these for a composite key."""


class Value(
    RootModel[Members],
    json_schema_extra={
        "propertyNames": {"minLength": 1, "not": {"pattern": f"^{RESERVED_PREFIX}"}},
        "examples": [{"name": "Ada", "visits": 1}],
    },
):
    """A JSON object, nested at most 30 deep. A number equal to an integer within 64 bits becomes this integer.

    Any other is a finite double. Refused: integers beyond 64 bits, U+0000, lone surrogates, empty member names, and
    top-level names that begin with _ts.
    """


_OPERATORS = "|".join(sorted(operator.removeprefix("$") for operator in OPERATORS))


class MergePatch(
    RootModel[Members],
    json_schema_extra={
        "propertyNames": {"minLength": 1, "not": {"pattern": rf"^({RESERVED_PREFIX}|\$({_OPERATORS})$)"}},
        "examples": [{"name": "Ada Lovelace", "nickname": None}],
    },
):
    """RFC 7396: members replace, objects merge, null removes.

    As `application/merge-patch+json`, top-level members may have names such as `$schema`, but not the names of
    operators. In an update, none may begin with `$`.
    """


class Changes(
    Body, extra="allow", json_schema_extra={"examples": [{"$inc": {"visits": 1}, "$set": {"address.city": "Bern"}}]}
):
    """Operators with MongoDB's meanings, or a merge patch (RFC 7396), but not both.

    A path is a member name, or names with dots between them. It addresses objects only. No path may be another one's
    parent. The members of a merge patch have names that do not begin with `$`.
    """

    set_: Members = Field(
        ABSENT,
        alias="$set",
        examples=[{"address.city": "Bern"}],
        # Structs of Go have a method `Set` for the members of a merge patch.
        json_schema_extra={"x-go-name": "SetMembers"},
    )
    unset: list[Name] | dict[str, Any] = Field(ABSENT, alias="$unset", examples=[["nickname"]])
    inc: dict[Name, float] = Field(ABSENT, alias="$inc", examples=[{"visits": 1}])
    min_: dict[Name, float | str] = Field(ABSENT, alias="$min", examples=[{"first": "2026-11-20"}])
    max_: dict[Name, float | str] = Field(ABSENT, alias="$max", examples=[{"last": "2026-11-20"}])
    mul: dict[Name, float] = Field(ABSENT, alias="$mul", examples=[{"price": 1.1}])
    push: Members = Field(
        ABSENT,
        alias="$push",
        description='Adds one element, or all of `{"$each": […]}`, to the end of an array. Beside `$each`, `$sort` '
        "sorts the array, and `$slice` keeps its first elements, or with a negative number its last ones.",
        examples=[{"log": {"$each": [1, 2]}}],
    )
    add_to_set: Members = Field(
        ABSENT,
        alias="$addToSet",
        description="As `$push`, without the elements that the array already contains.",
        examples=[{"tags": "new"}],
    )
    pull: Members = Field(
        ABSENT,
        alias="$pull",
        description='Removes the elements that equal this one, or one of `{"$in": […]}`, as a whole.',
        examples=[{"tags": {"$in": ["old", "older"]}}],
    )
    set_on_insert: Members = Field(
        ABSENT,
        alias="$setOnInsert",
        description="As `$set`, but only if this update makes the record from its default.",
        examples=[{"first_seen": "2026-11-20"}],
    )


class UpdateDocument(RootModel[Changes | list[Changes]]):
    """A merge patch, operators, or an array of these, applied in order as one atomic step."""


class Partitions(
    RootModel[list[Annotated[int, Field(ge=-1)]] | Literal["all", "default"] | None],
    json_schema_extra={"examples": [[0, 2], [], "all"]},
):
    """For a partitioned table: the distinct indexes of the target partitions.

    An empty list means none. `all`, null and [-1] are all partitions. `default` is the partition of the key, as if
    absent.
    """


class _Change(Body):
    update: UpdateDocument
    default: Value | None = ABSENT
    ttl_s: members.TtlS = ABSENT


class UpdateRequest(
    _Change, json_schema_extra={"examples": [{"update": {"$inc": {"visits": 1}}, "default": {"visits": 0}}]}
):
    """An update of one record, with a default that it changes if there is no record."""


class _Addressed(Body):
    key: Key
    fields: Annotated[list[Name], Len(0, FIELDS_MAX)] | None = Field(
        ABSENT, description="The top-level members to return."
    )
    partitions: Partitions = ABSENT


def _with_members(kind: str) -> Any:
    """Return the model of an operation of one kind, without those of its members that it needs."""
    fields: dict[str, Any] = {member.name: (member.form, ABSENT) for member in OF_KIND[kind]}
    return create_model(kind, __base__=_Addressed, **fields)


class Get(_Addressed):
    """Read a record."""

    op: Literal["get"]


class Put(_with_members("put")):  # type: ignore[misc]
    """Replace the record's value."""

    op: Literal["put"]
    value: Value


class Update(_with_members("update"), _Change):  # type: ignore[misc]
    """Update a record, or the default if there is no record."""

    op: Literal["update"]


class Delete(_with_members("delete")):  # type: ignore[misc]
    """Delete the record. An absent record is a success."""

    op: Literal["delete"]


class Operation(RootModel[Annotated[Get | Put | Update | Delete, Field(discriminator="op")]]):
    """One operation of a batch."""


_BATCH = [
    {"op": "put", "key": "b", "value": {"n": 1}, "ttl_s": 60},
    {"op": "update", "key": "c", "update": {"$inc": {"n": 1}}, "default": {"n": 0}, "return": True},
    {"op": "get", "key": "b", "fields": ["n"]},
    {"op": "delete", "key": "d"},
]


class Batch(Body, json_schema_extra={"examples": [{"operations": _BATCH}]}):
    """Operations. Those on one key take effect in their order."""

    operations: list[Operation]


_PROBLEM = problems.problem(MalformedRequest("not JSON at byte 5: unexpected end of data"))


class Problem(BaseModel, json_schema_extra={"examples": [_PROBLEM]}):
    """RFC 9457 problem details."""

    type: str = Field(json_schema_extra={"format": "uri"})
    title: str
    status: int = Field(json_schema_extra={"enum": sorted({status for status, _ in problems.CODES.values()})})  # type: ignore[dict-item]
    detail: str
    code: str = Field(json_schema_extra={"enum": sorted(problems.CODES)})  # type: ignore[dict-item]
    retriable: bool = Field(description="Whether a retry may succeed.")
    applied: Literal["no", "unknown"] = Field(description="Whether a write may have been applied.")
    retry_after_s: float = Field(
        ABSENT, ge=0, description="How long to wait before a retry, if known.", json_schema_extra={"format": "double"}
    )
    partitions: PartitionResults = ABSENT


class _Answered(Body):
    status: int = Field(description="The status that the single request would have.")
    value: Value = ABSENT
    etag: Etag = ABSENT
    expires_at: Expiry = ABSENT


_members: dict[str, Any] = {member.name: (bool, Field(ABSENT, description=member.result)) for member in OUTCOME_MEMBERS}


class _Outcome(create_model("_Written", __base__=_Answered, **_members)):  # type: ignore[misc]
    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["error"]},
            "then": {"properties": {"status": {"type": "integer", "minimum": 400, "maximum": 599}}},
            "else": {"properties": {"status": {"type": "integer", "enum": [200, 201, 204]}}},
        }
    )
    error: Problem = ABSENT


class PartitionResult(_Outcome):
    """The result of a write in one partition."""

    partition: Index


class Result(_Outcome):
    """The result of one operation. With several partitions, only their results have an etag and a value."""

    partitions: PartitionResults = ABSENT
    dropped: bool = Field(ABSENT, description="True for a write to no partition; else absent.")


class Results(Body):
    """One result per operation, in the same order."""

    results: list[Result]


class Store(Body):
    """The store of a table."""

    name: str
    kind: str


class KeyField(Body):
    """One part of a key. The name is null if the configuration has none."""

    name: str | None
    type: Literal["string", "integer"]


class Table(BaseModel):
    """A table, with its capabilities, limits and policies."""

    name: str
    store: Store
    key: list[KeyField] = Field(min_length=1, description="The parts of a key, in order.")
    capabilities: dict[str, bool] = Field(
        description="The capabilities of the table; in a list, empty until its store was first reached."
    )
    limits: dict[str, Annotated[int, Field(json_schema_extra={"format": "int64"})]]
    policies: dict[str, Any]
    partitions: int = Field(ABSENT, ge=1, description="The number of partitions; only for a partitioned table.")
    generation: int = Field(ABSENT, ge=1, description="The current generation; only for a table that can have several.")


class Tables(Body):
    """The tables that the caller has a permission for, by name."""

    tables: list[Table]


class Record(Body):
    """A record of a page."""

    key: Key
    value: Value
    etag: Etag
    expires_at: Expiry = ABSENT
    partition: Index = Field(ABSENT, description="The partition of the record; only for a partitioned table.")


class Page(Body):
    """A page of a scan."""

    records: list[Record]
    cursor: str | None = Field(description="The cursor of the next page; null on the last page.")


class DeletedPage(Body):
    """A page of deleted records."""

    deleted: int
    cursor: str | None = Field(description="The cursor of the next page; null on the last page.")


class Splits(Body):
    """Disjoint parts of a table, which together cover it."""

    splits: Annotated[list[Name], Len(1)]


class NewGeneration(Body):
    """A generation to create."""

    note: str = Field("", max_length=1000, description="Kept and shown, for example the job that loads it.")


class GenerationEntry(Body):
    """A complete content of a table."""

    generation: int = Field(ge=1, json_schema_extra={"format": "int64"})
    state: Literal["loading", "current", "kept"]
    created_at: str | None = Field(description="Null if it is not known.")
    activated_at: str | None = Field(description="When it last became current; null if it never did, or is not known.")
    records_estimate: int | None = Field(description="About the number of records; null if the store cannot tell.")
    bytes_estimate: int | None = Field(description="About the size in the store; null if the store cannot tell.")
    note: str | None


class GenerationList(Body):
    """The generations of a table, by number."""

    generations: list[GenerationEntry]


class Liveness(BaseModel):
    """The process runs."""

    status: Literal["alive"]


class StoreReadiness(Body):
    """Whether a store can be reached, and if not, why."""

    ready: bool
    detail: str | None


class Readiness(Body):
    """The service can process operations, with each of its stores."""

    status: Literal["ready"]
    stores: dict[str, StoreReadiness]


BODIES = (
    *(Batch, DeletedPage, GenerationList, MergePatch, NewGeneration, Liveness, Page),
    *(Problem, Readiness, Results, Splits, Tables, UpdateRequest),
)
"""The models of whole bodies. The document also has the models that they consist of."""
