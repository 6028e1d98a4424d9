"""Batches as JSON: decodes the request body into operations and encodes the answers."""

from collections.abc import Iterable, Sequence

import msgspec
import orjson

from ...core import Get, InvalidOperation, MalformedRequest, Operation, TableError, TableSpec, TooLarge, values
from ...core.json_errors import NotJson
from . import operation_members
from .answers import Answer, Fields, rfc3339
from .operation_position import operation_at
from .problems import problem

MEDIA_TYPE = "application/json"


class Batch(msgspec.Struct, frozen=True):
    """A decoded batch: an operation or its error at each position.

    `fields` contains the requested members of values at each position, and is None if all operations request all.
    """

    operations: list[Operation | TableError]
    fields: list[Fields] | None


def decode(body: bytes, spec: TableSpec, operations_max: int) -> Batch:
    """Decode a batch. Raise MalformedRequest or TooLarge only if none of its operations can be attempted."""
    try:
        document = values.parse(body)
    except NotJson as error:
        raise NotJson(error.reason, error.position, operation_at(body, error.position)) from None
    if not isinstance(document, dict) or document.keys() != {"operations"}:
        raise MalformedRequest("a batch must be an object with the only member operations")
    raws = document["operations"]
    if not isinstance(raws, list):
        raise MalformedRequest("operations must be an array")
    if len(raws) > operations_max:
        raise TooLarge(f"a batch may have at most {operations_max} operations")
    return _decoded(raws, spec)


def encode(answers: Sequence[Answer]) -> bytes:
    """Encode the answers as the response body."""
    return b'{"results":[' + b",".join([_encode(answer) for answer in answers]) + b"]}"


def _decoded(raws: list[values.Json], spec: TableSpec) -> Batch:
    operations: list[Operation | TableError] = []
    fields: list[Fields] = []
    projected = False
    from_json = spec.key.from_json
    for raw in raws:
        only: Fields = None
        try:
            if type(raw) is not dict:
                raise InvalidOperation("an operation must be an object")
            if len(raw) == 2 and raw.get("op") == "get" and "key" in raw:
                operations.append(Get(from_json(raw["key"])))
            else:
                only = operation_members.fields(raw.get("fields"))
                operations.append(operation_members.operation(spec, raw))
        except TableError as error:
            operations.append(error.with_traceback(None))  # The traceback would keep the whole request alive.
        projected = projected or only is not None
        fields.append(only)
    return Batch(operations, fields if projected else None)


def _encode(answer: Answer) -> bytes:
    return b"{%b}" % _encode_members(answer)


def encode_partitions(parts: Iterable[tuple[int, Answer]]) -> bytes:
    """Encode the answers of a write in each of its partitions."""
    return b"[" + b",".join([b'{"partition":%d,%b}' % (index, _encode_members(part)) for index, part in parts]) + b"]"


def _encode_members(answer: Answer) -> bytes:
    encoded = [b'"status":%d' % answer.status]
    if answer.error is not None:
        encoded.append(b'"error":' + orjson.dumps(problem(answer.error)))
    if answer.value is not None:
        encoded.append(b'"value":' + answer.value)
    if answer.etag is not None:
        encoded.append(b'"etag":"' + answer.etag.encode() + b'"')
    if answer.expires_ms:
        encoded.append(b'"expires_at":"' + rfc3339(answer.expires_ms).encode() + b'"')
    if answer.replayed:
        encoded.append(b'"replayed":true')
    if answer.partitions is not None:
        encoded.append(b'"partitions":' + encode_partitions(answer.partitions))
        if answer.dropped:
            encoded.append(b'"dropped":true')
    return b",".join(encoded)
