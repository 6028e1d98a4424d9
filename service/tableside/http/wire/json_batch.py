"""Batches as JSON: decodes the request body into operations and encodes the outcomes.

The body is first divided into the texts of its operations, without making objects of their members.
"""

import re
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import msgspec
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ...core import NO_DEADLINE, Budget, InvalidOperation, MalformedRequest, TableError, TableSpec, TooLarge, values
from ...core.batch import ARROW_RECORDS_MIN, Results, joined_cells
from ...core.budget import value_bytes
from ...core.concurrency import PIECE_BYTES, PIECE_OPERATIONS, Pieces, chunks_of
from ...core.operations import Outcome, PartitionOutcome, Record, Written
from ...core.values import NotJson, not_json
from . import operation_members
from .answers import (
    PART_BYTES_MIN,
    RECORD_NOT_FOUND,
    Encoded,
    expiry_column,
    join_short,
    joined,
    rfc3339,
    status,
    to_array,
)
from .members import given_by
from .operation_columns import DecodedBatch, OperationColumns, decode_by_kind, joined_batch
from .problems import problem

ENCODED_BYTES = 2 * PART_BYTES_MIN
"""About how many bytes of values are copied into the response before they are freed."""


def decode(body: bytes, spec: TableSpec, operations_max: int, budget: Budget = NO_DEADLINE) -> Pieces[DecodedBatch]:
    """Decode a batch. Raise MalformedRequest or TooLarge only if none of its operations can be attempted.

    Operations that are not decoded by the deadline are DeadlineExceeded.
    """
    parts, columns, done = list[DecodedBatch](), OperationColumns(spec, texts=False), 0
    texts = yield from operation_texts(body, operations_max)
    bytes_max = PIECE_BYTES if len(body) > PIECE_BYTES else None
    for piece in chunks_of(texts, PIECE_OPERATIONS, bytes_max, lambda text: memoryview(text).nbytes):
        yield
        if done and budget.is_over():
            parts.append(DecodedBatch([], dict.fromkeys(range(len(texts) - done), budget.exceeded())))
            break
        parts.append(_decode_rows(columns, _parse_each(spec, body, piece, done)))
        done += len(piece)
    return joined_batch(parts)


def _decode_rows(columns: OperationColumns, documents: list[Any]) -> DecodedBatch:
    """Decode operations. One that could not be parsed is its error."""
    errors: dict[int, TableError] = {}
    if set(map(type, documents)) != {dict}:
        no_object = InvalidOperation("an operation must be an object")
        for at, document in enumerate(documents):
            if type(document) is not dict:
                errors[at] = document if isinstance(document, TableError) else no_object
                documents[at] = {}

    def decode_kind(op: str, positions: Sequence[int]) -> DecodedBatch:
        rows = documents if len(positions) == len(documents) else [documents[at] for at in positions]
        names = {"key"}.union(*rows) - {"op"}
        others = names - columns.known(op)
        doubtful = [at for at, row in enumerate(rows) if not others.isdisjoint(row)] if others else ()
        cells = {name: _cells(rows, name) for name in names - others}
        return columns.decode(op, cells, rows.__getitem__, doubtful)

    return decode_by_kind(_cells(documents, "op"), errors, decode_kind)


def _cells(rows: Sequence[dict[str, Any]], name: str) -> list[Any]:
    """Return a member of each row, None where it is absent."""
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]


def _parse_each(spec: TableSpec, body: bytes, raws: Sequence[memoryview | msgspec.Raw], start: int) -> list[Any]:
    """Parse the texts of operations. `start` is the position of the first one in the batch."""
    texts = list(map(bytes, raws))
    documents, rejected = list[Any](texts), [*range(len(texts))]
    if max(map(len, texts)) <= spec.value_bytes_max:
        documents, rejected = values.parse_all(texts)
    for at in rejected:
        try:
            operation_members.check_value_texts(spec, texts[at])
            documents[at] = values.parse(texts[at])
        except TooLarge as error:
            documents[at] = error.with_traceback(None)
        except NotJson as error:
            raise not_json_body(body, error.reason, start + at) from None
    return documents


def encode(outcomes: Sequence[Outcome]) -> Pieces[Encoded]:
    """Encode the outcomes as the response body: in parts if it has large values.

    A list is empty afterwards, so that values and their copies are not in memory together. The last values are freed
    first: the C library returns memory to the operating system from the end of the heap. A piece takes the memory that
    the values of the piece before have left.
    """
    pieces: list[list[bytes | memoryview]] = []
    start = len(outcomes)
    while start:
        some = outcomes[max(0, start - PIECE_OPERATIONS) : start]
        if isinstance(outcomes, list):
            if (size_bytes := value_bytes(some)) > ENCODED_BYTES:
                some = some[-(len(some) * ENCODED_BYTES // size_bytes + 1) :]
            del outcomes[start - len(some) :]
        start -= len(some)
        pieces.append(join_short(_answers(some, b"," if start else b"")))
        del some
        yield
    return joined([b'{"results":[', *(part for piece in reversed(pieces) for part in piece), b"]}"])


def _answers(outcomes: Sequence[Outcome], separator: bytes) -> list[bytes | memoryview]:
    """Return the pieces of some answers, which follow a separator."""
    results = outcomes if isinstance(outcomes, Results) and len(outcomes) >= ARROW_RECORDS_MIN else None
    if results is not None and results.has_only(*_PLAIN[results.kind]):
        return [separator, _answers_together(results)]
    parts = list[bytes | memoryview]()
    for outcome in outcomes:
        parts += (separator, b"{", *_members(outcome), b"}")
        separator = b","
    return parts


def _answers_together(outcomes: Results) -> memoryview:
    """Return the answers to outcomes with only the fields of `_PLAIN`, with commas between them."""
    columns = outcomes.columns
    etags = to_array(columns["etag"], pa.utf8()).cast(pa.binary())
    if outcomes.kind is Written:
        members: list[Any] = [b',{"status":204,"etag":"', etags, b'"']
    else:
        members = [b',{"status":200,"value":', to_array(columns["value"], pa.binary()), b',"etag":"', etags, b'"']
        if "expires_ms" in columns:
            times = expiry_column(columns["expires_ms"]).cast(pa.binary())
            members.append(pc.binary_join_element_wise(b',"expires_at":"', times, b'"', b"").fill_null(b""))
    without_etag = b',{"status":204}' if outcomes.kind is Written else b"," + _NOT_FOUND
    answers = pc.binary_join_element_wise(*members, b"}", b"").fill_null(without_etag)
    if outcomes.failed:
        errors = [b",{%b}" % b"".join(_members(error)) for _, error in sorted(outcomes.failed.items())]
        mask = pa.array([at in outcomes.failed for at in range(len(outcomes))])
        answers = pc.replace_with_mask(answers, mask, pa.array(errors, pa.binary()))
    return joined_cells(answers)[1:]


_PLAIN = {Record: ("value", "etag", "expires_ms"), Written: ("etag", "expires_ms")}
"""The fields of outcomes whose answers have no other members."""


def encode_partitions(parts: Iterable[PartitionOutcome]) -> bytes:
    """Encode the outcomes of a write in each of its partitions."""
    each = [b'{"partition":%d,%b}' % (one.partition, b"".join(_members(one.outcome))) for one in parts]
    return b"[%b]" % b",".join(each)


def _members(outcome: Outcome) -> list[bytes]:
    """Return the pieces of an answer's members. Its value is not copied until the pieces are joined."""
    parts = [b'"status":%d' % status(outcome)]
    if outcome is None or isinstance(outcome, TableError):
        parts.append(b',"error":' + orjson.dumps(problem(RECORD_NOT_FOUND if outcome is None else outcome)))
    else:
        if outcome.value is not None:
            parts += (b',"value":', outcome.value)
        if outcome.etag is not None:
            parts.append(b',"etag":"%b"' % outcome.etag.encode())
        if outcome.expires_ms and outcome.value is not None:
            parts.append(b',"expires_at":"%b"' % rfc3339(outcome.expires_ms).encode())
        for name, member in given_by(outcome):
            parts.append(b',"%b":%b' % (name.encode(), orjson.dumps(member)))
    if (partitions := getattr(outcome, "partitions", None)) is not None:
        parts += (b',"partitions":', encode_partitions(partitions))
        if not partitions:
            parts.append(b',"dropped":true')
    return parts


_NOT_FOUND = b"{%b}" % b"".join(_members(None))

LOCATED_BYTES_MAX = 2**21
"""The exact position of an error is reported only for bodies of at most this size, because it is found by parsing."""

LISTED_BYTES_MAX = 2**20
"""The maximum size of a body that is divided in two calls, which take up to 8 ms. Others are divided in pieces."""

_OPENING, _CLOSING = b"[]"
_EMPTY = re.compile(rb"[ \t\r\n]*(?=\])")
_TRAILING = re.compile(r"JSON is malformed: trailing characters \(byte ([0-9]+)\)")


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    operations: msgspec.Raw


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode


def operation_texts(body: bytes, operations_max: int) -> Pieces[Sequence[memoryview | msgspec.Raw]]:
    """Return the texts of the operations. Whether each is JSON is known only after it has been parsed.

    Raise MalformedRequest if the body is no batch, TooLarge if it has more than `operations_max` operations.
    """
    try:
        array = memoryview(_decode_envelope(body).operations)
    except msgspec.ValidationError:
        raise MalformedRequest("a batch must be an object with the only member operations") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reasons = {RecursionError: "nested too deep", UnicodeDecodeError: "invalid UTF-8"}
        reason = reasons.get(type(error)) or str(error).removeprefix("JSON is malformed: ")
        raise not_json_body(body, reason) from None
    if array[0] != _OPENING:
        raise MalformedRequest("operations must be an array")
    yield
    large = len(body) > LISTED_BYTES_MAX
    texts = (yield from _one_by_one(array, operations_max + 1)) if large else _decode_list(array)
    if len(texts) > operations_max:
        raise TooLarge(f"a batch may have at most {operations_max} operations")
    return texts


def not_json_body(body: bytes, reason: str, operation: int | None = None) -> NotJson:
    """Return the error for a body that is not JSON: with its position if the body is small, else with the reason."""
    if len(body) > LOCATED_BYTES_MAX:
        return NotJson(reason, None, operation)
    error = not_json(body)
    return NotJson(error.reason, error.position, operation)


def _one_by_one(array: memoryview, count_max: int) -> Pieces[list[memoryview]]:
    """Return the first texts in an array that is JSON."""
    texts: list[memoryview] = []
    at = piece_at = 1
    while len(texts) < count_max and _EMPTY.match(array, at) is None:
        try:
            _decode_raw(array[at:])
        except msgspec.DecodeError as error:  # It says where the first text ends: before a comma or bracket.
            if (found := _TRAILING.fullmatch(str(error))) is None:
                raise
            end = at + int(found[1]) - 1
        else:
            raise AssertionError("an array of JSON ends with a bracket")
        texts.append(array[at:end])
        if array[end] == _CLOSING:
            break
        at = end + 1
        if len(texts) % PIECE_OPERATIONS == 0 or at - piece_at >= PIECE_BYTES:
            piece_at = at
            yield
    return texts
