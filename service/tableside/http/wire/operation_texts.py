"""Divides the body of a JSON batch into the texts of its operations, without making objects of their members."""

import re
from collections.abc import Sequence

import msgspec

from ...core import MalformedRequest, TooLarge
from ...core.concurrency import PIECE_BYTES, PIECE_OPERATIONS, Pieces
from ...core.json_text import NotJson, not_json

LOCATED_BYTES_MAX = 2**21
"""The exact position of an error is reported only for bodies of at most this size, because it is found by parsing."""

LISTED_BYTES_MAX = 2**20
"""The maximum size of a body whose operations are listed in two calls, which take up to 8 ms.

Larger bodies are divided one operation at a time, which takes 1.5 microseconds for each.
"""

NO_BATCH = "a batch must be an object with the only member operations"
NO_ARRAY = "operations must be an array"

_OPENING, _CLOSING, _COMMA = b"[],"
_START = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"operations"[ \t\r\n]*:[ \t\r\n]*\[')
_END = re.compile(rb"\][ \t\r\n]*\}[ \t\r\n]*")
_EMPTY = re.compile(rb"[ \t\r\n]*(?=\])")
_TRAILING = re.compile(r"JSON is malformed: trailing characters \(byte ([0-9]+)\)")
_AT_BYTE = re.compile(r"(?<=\(byte )[0-9]+")


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    operations: msgspec.Raw


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode


def operation_texts(body: bytes, operations_max: int) -> Pieces[Sequence[memoryview | msgspec.Raw]]:
    """Return the texts of the operations. Whether each is JSON is known only after it has been parsed.

    Raise MalformedRequest if the body is no batch, TooLarge if it has more than `operations_max` operations.
    """
    listed = len(body) <= LISTED_BYTES_MAX
    if not listed and (start := _START.match(body)) is not None:
        texts, end = yield from _one_by_one(body, memoryview(body), start.end(), operations_max)
        if _END.fullmatch(body, end):
            return texts
    array = memoryview(_array(body))
    yield
    if not listed:
        return (yield from _one_by_one(body, array, 1, operations_max))[0]
    raws = _decode_list(array)
    if len(raws) > operations_max:
        raise too_many(operations_max)
    return raws


def not_json_body(body: bytes, reason: str, operation: int | None = None) -> NotJson:
    """Return the error for a body that is not JSON: with its position if the body is small, else with the reason."""
    if len(body) > LOCATED_BYTES_MAX:
        return NotJson(reason, None, operation)
    error = not_json(body)
    return NotJson(error.reason, error.position, operation_at(body, error.position))


def too_many(operations_max: int) -> TooLarge:
    """Return the error for a batch of more than `operations_max` operations."""
    return TooLarge(f"a batch may have at most {operations_max} operations")


def _array(body: bytes) -> msgspec.Raw:
    """Return the text of the array of operations."""
    try:
        array = _decode_envelope(body).operations
    except msgspec.ValidationError:
        raise MalformedRequest(NO_BATCH) from None
    except RecursionError:
        raise not_json_body(body, "nested too deep") from None
    except UnicodeDecodeError:
        raise not_json_body(body, "invalid UTF-8") from None
    except msgspec.DecodeError as error:
        raise not_json_body(body, _reason(error)) from None
    if memoryview(array)[0] != _OPENING:
        raise MalformedRequest(NO_ARRAY)
    return array


def _one_by_one(body: bytes, data: memoryview, at: int, operations_max: int) -> Pieces[tuple[list[memoryview], int]]:
    """Return the texts in an array of the body, and the position of its closing bracket. `at` is after the opening one.

    A decoder that is given the rest of the array reports where the first text in it ends.
    """
    texts: list[memoryview] = []
    piece_at = at
    if (empty := _EMPTY.match(data, at)) is not None:
        return texts, empty.end()
    while True:
        try:
            end = at + _first_end(data[at:])
            if data[end] not in (_COMMA, _CLOSING):
                raise msgspec.DecodeError(f"expected ',' or ']' (byte {end - at})")
        except RecursionError:
            raise not_json_body(body, "nested too deep", len(texts)) from None
        except msgspec.DecodeError as error:
            raise not_json_body(body, _reason(error, at), len(texts)) from None
        if len(texts) == operations_max:
            raise too_many(operations_max)
        texts.append(data[at:end])
        if data[end] == _CLOSING:
            return texts, end
        at = end + 1
        if len(texts) % PIECE_OPERATIONS == 0 or at - piece_at >= PIECE_BYTES:
            piece_at = at
            yield


def _first_end(rest: memoryview) -> int:
    """Return where the first text of the rest of an array ends: the position of the comma or bracket after it."""
    try:
        _decode_raw(rest)
    except msgspec.DecodeError as error:
        if found := _TRAILING.fullmatch(str(error)):
            return int(found[1]) - 1
        raise
    raise msgspec.DecodeError("Input data was truncated")


def _reason(error: msgspec.DecodeError, at: int = 0) -> str:
    """Return the reason in an error of msgspec. `at` is where in the data the decoded part began."""
    text = str(error).removeprefix("JSON is malformed: ")
    return _AT_BYTE.sub(lambda found: str(at + int(found[0])), text)


SEARCHED_BYTES_MAX = 2**20
"""The search decodes the operations before the position again, so it is limited to a few milliseconds."""


def operation_at(body: bytes, position: int | None) -> int | None:
    """Return the index of the operation that contains the first wrong byte of a body.

    Return None if the byte is in no operation, or so far from the start that the search would take too long.
    """
    start = _START.match(body)
    if start is None or position is None or not start.end() <= position <= SEARCHED_BYTES_MAX:
        return None
    data, index, at = memoryview(body), 0, start.end()
    while True:
        try:
            end = at + _first_end(data[at:])
        except (msgspec.DecodeError, RecursionError):
            return index
        if position <= end:
            return index
        if data[end] != _COMMA:
            return None
        index, at = index + 1, end + 1
