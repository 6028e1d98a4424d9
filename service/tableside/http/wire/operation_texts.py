"""Divides the body of a JSON batch into the texts of its operations, without making objects of their members."""

import re
from collections.abc import Sequence

import msgspec

from ...core import MalformedRequest, TooLarge
from ...core.concurrency import Pieces
from ...core.json_errors import NotJson, not_json
from .answers import PIECE_OPERATIONS
from .operation_position import operation_at

LOCATED_BYTES_MAX = 2**21
"""The exact position of an error is reported only for bodies of at most this size, because it is found by parsing."""

LISTED_COMMAS_MAX = 2**18
"""The maximum number of commas in a body whose operations are listed in one call, before they are counted.

The list has at most one item more than there are commas. Bodies with more commas are divided one operation at a time,
which takes some microseconds for each.
"""

NO_BATCH = "a batch must be an object with the only member operations"
NO_ARRAY = "operations must be an array"

_OPENING, _CLOSING = b"[]"
_TRAILING = re.compile(r"JSON is malformed: trailing characters \(byte ([0-9]+)\)")


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    operations: msgspec.Raw


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode


def operation_texts(body: bytes, operations_max: int) -> Pieces[Sequence[bytes | msgspec.Raw]]:
    """Return the texts of the operations. Whether each is JSON is known only after it has been parsed.

    Raise MalformedRequest if the body is no batch, TooLarge if it has more than `operations_max` operations.
    """
    try:
        array = memoryview(_decode_envelope(body).operations)
    except msgspec.ValidationError:
        raise MalformedRequest(NO_BATCH) from None
    except RecursionError:
        raise not_json_body(body, "nested too deep") from None
    except msgspec.DecodeError as error:
        raise not_json_body(body, str(error).removeprefix("JSON is malformed: ")) from None
    if array[0] != _OPENING:
        raise MalformedRequest(NO_ARRAY)
    yield
    if body.count(b",") > LISTED_COMMAS_MAX:
        return (yield from _one_by_one(array, operations_max))
    texts = _decode_list(array)
    if len(texts) > operations_max:
        raise too_many(operations_max)
    return texts


def not_json_body(body: bytes, reason: str, operation: int | None = None) -> NotJson:
    """Return the error for a body that is not JSON: with its position if the body is small, else with the reason."""
    if len(body) > LOCATED_BYTES_MAX:
        return NotJson(reason, None, operation)
    error = not_json(body)
    return NotJson(error.reason, error.position, operation_at(body, error.position))


def too_many(operations_max: int) -> TooLarge:
    """Return the error for a batch of more than `operations_max` operations."""
    return TooLarge(f"a batch may have at most {operations_max} operations")


def _one_by_one(array: memoryview, operations_max: int) -> Pieces[list[bytes]]:
    """Return the texts in an array that is known to have the structure of JSON.

    A decoder that is given the rest of the array reports where the first text in it ends.
    """
    texts: list[bytes] = []
    at = 1
    while True:
        end = at + _first_end(array[at:])
        if len(texts) == operations_max:
            raise too_many(operations_max)
        texts.append(bytes(array[at:end]).strip())
        if array[end] == _CLOSING:
            return texts
        at = end + 1
        if len(texts) % PIECE_OPERATIONS == 0:
            yield


def _first_end(rest: memoryview) -> int:
    """Return where the first text of the rest of an array ends: the position of the comma or bracket after it."""
    try:
        _decode_raw(rest)
    except msgspec.DecodeError as error:
        if found := _TRAILING.fullmatch(str(error)):
            return int(found[1]) - 1
        raise NotJson(str(error)) from None
    raise AssertionError("the closing bracket of the array is missing")
