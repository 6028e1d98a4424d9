"""A batch as JSON: the body to operations, and answers to the body."""

from collections.abc import Iterable, Sequence

import msgspec
import orjson

from ...core import Get, InvalidOperation, MalformedRequest, Operation, TableError, TableSpec, TooLarge, values
from . import operation_members as members
from .answers import Answer, Fields, rfc3339
from .problems import problem

MEDIA_TYPE = "application/json"


class Batch(msgspec.Struct, frozen=True):
    """Operations, or why one was refused; and, where any asks for less than the whole value, which members of it."""

    operations: list[Operation | TableError]
    fields: list[Fields] | None


def decode(body: bytes, spec: TableSpec, operations_max: int) -> Batch:
    """Read a batch. Raise MalformedRequest or TooLarge only if nothing of it can be attempted."""
    document = values.parse(body)
    if not isinstance(document, dict) or document.keys() != {"operations"}:
        raise MalformedRequest("a batch is an object whose one member is operations")
    raws = document["operations"]
    if not isinstance(raws, list):
        raise MalformedRequest("operations is an array")
    if len(raws) > operations_max:
        raise TooLarge(f"a batch may have {operations_max} operations")
    return _decoded(raws, spec)


def encode(answers: Sequence[Answer]) -> bytes:
    """Write the answers, one after another."""
    return b'{"results":[' + b",".join([_encoded(answer) for answer in answers]) + b"]}"


def _decoded(raws: list[values.Json], spec: TableSpec) -> Batch:
    operations: list[Operation | TableError] = []
    fields: list[Fields] = []
    projected = False
    from_json = spec.key.from_json
    for raw in raws:
        only: Fields = None
        try:
            if type(raw) is not dict:
                raise InvalidOperation("an operation is an object")
            if len(raw) == 2 and raw.get("op") == "get" and "key" in raw:
                operations.append(Get(from_json(raw["key"])))
            else:
                only = members.fields(raw.get("fields"))
                operations.append(members.operation(spec, raw))
        except TableError as error:
            operations.append(error.with_traceback(None))  # which would hold the whole request
        projected = projected or only is not None
        fields.append(only)
    return Batch(operations, fields if projected else None)


def _encoded(answer: Answer) -> bytes:
    return b"{%b}" % _members(answer)


def encoded_parts(parts: Iterable[tuple[int, Answer]]) -> bytes:
    """Write what a write came to in each of its partitions, by index."""
    return b"[" + b",".join([b'{"partition":%d,%b}' % (index, _members(part)) for index, part in parts]) + b"]"


def _members(answer: Answer) -> bytes:
    members = [b'"status":%d' % answer.status]
    if answer.error is not None:
        members.append(b'"error":' + orjson.dumps(problem(answer.error)))
    if answer.value is not None:
        members.append(b'"value":' + answer.value)
    if answer.etag is not None:
        members.append(b'"etag":"' + answer.etag.encode() + b'"')
    if answer.expires_ms:
        members.append(b'"expires_at":"' + rfc3339(answer.expires_ms).encode() + b'"')
    if answer.replayed:
        members.append(b'"replayed":true')
    if answer.partitions is not None:
        members.append(b'"partitions":' + encoded_parts(answer.partitions))
        if answer.dropped:
            members.append(b'"dropped":true')
    return b",".join(members)
