"""Batches as JSON: decodes the request body into operations and encodes the answers."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
import orjson

from ...core import (
    InvalidOperation,
    Operation,
    Record,
    Results,
    TableError,
    TableSpec,
    TooLarge,
    Written,
    chunks_of,
    values,
)
from ...core.concurrency import PIECE_BYTES, PIECE_OPERATIONS, Pieces
from ...core.json_text import NotJson
from . import operation_members
from .answers import RECORD_NOT_FOUND, Answer, answer, never, not_decoded, rfc3339
from .body_parts import PART_BYTES_MIN, Encoded, join_short, joined
from .members import KINDS
from .operation_columns import BatchBuilder, DecodedBatch, DecodedRows, OperationColumns, decode_each
from .operation_texts import not_json_body, operation_texts
from .problems import problem
from .projections import Fields, fields_of

MEDIA_TYPE = "application/json"

ENCODED_BYTES = 2 * PART_BYTES_MIN
"""About how many bytes of values are copied into the response before they are freed."""


def decode(
    body: bytes, spec: TableSpec, operations_max: int, expired: Callable[[], bool] = never
) -> Pieces[DecodedBatch]:
    """Decode a batch. Raise MalformedRequest or TooLarge only if none of its operations can be attempted.

    Once the deadline has `expired`, the other operations are DeadlineExceeded.
    """
    batch, decoder = BatchBuilder(), _RowDecoder(spec)
    texts = yield from operation_texts(body, operations_max)
    bytes_max = PIECE_BYTES if len(body) > PIECE_BYTES else None
    for piece in chunks_of(texts, PIECE_OPERATIONS, bytes_max, lambda text: memoryview(text).nbytes):
        yield
        if expired() and batch.count:
            batch.skip(len(texts) - batch.count, not_decoded(spec))
            break
        batch.add(len(piece), decoder.decode(_parse_each(spec, body, piece, batch.count)))
    return batch.build()


class _RowDecoder:
    """Decodes operations from JSON objects."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec
        self._columns = OperationColumns(spec, texts=False)

    def decode(self, raws: Sequence[values.Json | TableError]) -> DecodedRows:
        """Decode operations. One that could not be parsed is its error."""
        row = partial(self._decode_row, raws)
        rows: Any = raws
        doubtful = list[int]()
        if set(map(type, raws)) != {dict}:
            rows = [raw if type(raw) is dict else {} for raw in raws]
            doubtful = [at for at, raw in enumerate(raws) if type(raw) is not dict]
        try:
            ops = {each.get("op") for each in rows}
        except TypeError:  # an array or an object
            return decode_each(len(raws), row)
        if len(known := ops & KINDS.keys()) != 1:
            return decode_each(len(raws), row)
        [op] = known
        if len(ops) > 1:
            doubtful = [at for at, each in enumerate(rows) if each.get("op") != op]
        names = {"key"}.union(*rows) - {"op"}
        return self._columns.decode(op, {name: [each.get(name) for each in rows] for name in names}, row, doubtful)

    def _decode_row(self, raws: Sequence[values.Json | TableError], at: int) -> tuple[Operation, Fields]:
        raw = raws[at]
        if type(raw) is not dict:
            raise raw if isinstance(raw, TableError) else InvalidOperation("an operation must be an object")
        only = fields_of(raw.get("fields"))
        return operation_members.operation(self._spec, raw), only


def _parse_each(
    spec: TableSpec, body: bytes, raws: Sequence[memoryview | msgspec.Raw], start: int
) -> list[values.Json | TableError]:
    """Parse the texts of operations. `start` is the position of the first one in the batch."""
    texts = list(map(bytes, raws))
    if max(map(len, texts)) <= spec.value_bytes_max and (parsed := values.parse_all(texts)) is not None:
        return [*parsed]
    documents: list[values.Json | TableError] = []
    for text in texts:
        try:
            operation_members.check_value_texts(spec, text)
            documents.append(values.parse(text))
        except TooLarge as error:
            documents.append(error.with_traceback(None))
        except NotJson as error:
            raise not_json_body(body, error.reason, start + len(documents)) from None
    return documents


def encode(answers: list[Answer]) -> Pieces[Encoded]:
    """Encode the answers as the response body: in parts if it has large values.

    The list is empty afterwards, so that values and their copies are not in memory together. The last values are freed
    first: the C library returns memory to the operating system from the end of the heap. A piece takes the memory that
    the values of the piece before have left.
    """
    pieces: list[list[bytes | memoryview]] = []
    while answers:
        some = answers[-PIECE_OPERATIONS:]
        if (size_bytes := sum([len(one.value) for one in some if one.value is not None])) > ENCODED_BYTES:
            some = some[-(len(some) * ENCODED_BYTES // size_bytes + 1) :]
        start = len(answers) - len(some)
        del answers[start:]
        piece: list[bytes] = []
        for index, one in enumerate(some, start):
            piece.append(b",{" if index else b"{")
            piece += _members(one)
            piece.append(b"}")
        pieces.append(join_short(piece))
        del some, piece, one
        yield
    return joined([b'{"results":[', *(part for piece in reversed(pieces) for part in piece), b"]}"])


def encode_results(results: Results) -> Pieces[Encoded]:
    """Encode outcomes in columns as the response body. `encode` returns the same."""
    texts: list[bytes] = []
    for start in range(0, len(results), PIECE_OPERATIONS):
        part = results[start : start + PIECE_OPERATIONS]
        if part.has_only("value" if part.kind is Record else "etag", "etag") and not part.failed:
            texts += _plain_answers(part)
        else:
            texts += [b"".join([b"{", *_members(answer(outcome)), b"}"]) for outcome in part]
        yield
    return b'{"results":[%b]}' % b",".join(texts)


def _plain_answers(results: Results) -> list[bytes]:
    """Encode the answers to successful operations whose only members are the value and the etag."""
    etags = results.cells("etag")
    if results.kind is Written:
        return [b'{"status":204,"etag":"%b"}' % etag.encode() if etag else b'{"status":204}' for etag in etags]
    return [
        _NOT_FOUND if value is None else b'{"status":200,"value":%b,"etag":"%b"}' % (value, etag.encode())
        for value, etag in zip(results.cells("value"), etags, strict=True)
    ]


def encode_partitions(parts: Iterable[tuple[int, Answer]]) -> bytes:
    """Encode the answers of a write in each of its partitions."""
    each = [b'{"partition":%d,%b}' % (index, b"".join(_members(answer))) for index, answer in parts]
    return b"[%b]" % b",".join(each)


def _members(answer: Answer) -> list[bytes]:
    """Return the pieces of an answer's members. Its value is not copied until the pieces are joined."""
    parts = [b'"status":%d' % answer.status]
    if answer.error is not None:
        parts.append(b',"error":' + orjson.dumps(problem(answer.error)))
    if answer.value is not None:
        parts += (b',"value":', answer.value)
    if answer.etag is not None:
        parts.append(b',"etag":"%b"' % answer.etag.encode())
    if answer.expires_ms:
        parts.append(b',"expires_at":"%b"' % rfc3339(answer.expires_ms).encode())
    for name, member in answer.members:
        parts.append(b',"%b":%b' % (name.encode(), orjson.dumps(member)))
    if answer.partitions is not None:
        parts += (b',"partitions":', encode_partitions(answer.partitions))
        if answer.dropped:
            parts.append(b',"dropped":true')
    return parts


_NOT_FOUND = b"{%b}" % b"".join(_members(Answer(404, error=RECORD_NOT_FOUND)))
