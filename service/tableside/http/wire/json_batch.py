"""Batches as JSON: decodes the request body into operations and encodes the answers."""

from collections.abc import Callable, Iterable, Sequence

import msgspec
import orjson
from msgspec.structs import replace

from ...core import (
    Get,
    InvalidOperation,
    MalformedRequest,
    Operation,
    Record,
    TableError,
    TableSpec,
    TooLarge,
    Update,
    Written,
    values,
)
from ...core.changes import packed
from ...core.concurrency import Pieces
from ...core.json_text import NotJson, has_too_many_elements
from . import operation_members
from .answers import PIECE_BYTES, PIECE_OPERATIONS, Answer, never, not_decoded, rfc3339
from .body_parts import PART_BYTES_MIN, Encoded, join_short, joined
from .operation_texts import NO_ARRAY, NO_BATCH, not_json_body, operation_texts, too_many
from .plain_operations import plain_operations
from .problems import problem
from .projections import Fields

MEDIA_TYPE = "application/json"

ENCODED_BYTES = 2 * PART_BYTES_MIN
"""About how many bytes of values are copied into the response before they are freed."""

WHOLE_BYTES_MAX = 2**16
"""The maximum size of a body that is parsed in one step. Larger ones are parsed operation by operation."""


class Batch(msgspec.Struct, frozen=True):
    """A decoded batch: an operation or its error at each position.

    `fields` contains the requested members of values at each position, and is None if all operations request all.
    """

    operations: Sequence[Operation | TableError]
    fields: list[Fields] | None


def decode(body: bytes, spec: TableSpec, operations_max: int, expired: Callable[[], bool] = never) -> Pieces[Batch]:
    """Decode a batch. Raise MalformedRequest or TooLarge only if none of its operations can be attempted.

    Once the deadline has `expired`, the other operations of a large body are DeadlineExceeded.
    """
    decoder = _OperationDecoder(spec)
    if len(body) > WHOLE_BYTES_MAX or has_too_many_elements(body):
        texts = yield from operation_texts(body, operations_max)
        yield
        yield from decoder.decode_texts(body, texts, expired)
    else:
        raws = _parse_whole(body, operations_max)
        yield
        yield from decoder.decode_whole(body, raws)
    return decoder.batch()


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
        for index, answer in enumerate(some, start):
            piece.append(b",{" if index else b"{")
            _add_members(answer, piece)
            piece.append(b"}")
        pieces.append(join_short(piece))
        del some, piece, answer
        yield
    return joined([b'{"results":[', *(part for piece in reversed(pieces) for part in piece), b"]}"])


def encode_records(records: Sequence[Record]) -> Pieces[bytes]:
    """Encode the answers to gets that all found a record without expiry. `encode` returns the same."""
    parts: list[bytes] = []
    for start in range(0, len(records), PIECE_OPERATIONS):
        parts += [
            b'{"status":200,"value":%b,"etag":"%b"}' % (record.value, record.etag.encode())
            for record in records[start : start + PIECE_OPERATIONS]
        ]
        yield
    return b'{"results":[%b]}' % b",".join(parts)


def encode_writes(writes: Sequence[Written]) -> Pieces[bytes]:
    """Encode the answers to writes that were applied now and have only an etag. `encode` returns the same."""
    parts: list[bytes] = []
    for start in range(0, len(writes), PIECE_OPERATIONS):
        parts += [
            b'{"status":%d,"etag":"%b"}' % (201 if write.created else 204, (write.etag or "").encode())
            for write in writes[start : start + PIECE_OPERATIONS]
        ]
        yield
    return b'{"results":[%b]}' % b",".join(parts)


def _parse_whole(body: bytes, operations_max: int) -> list[values.Json]:
    try:
        document = values.parse_unlimited(body)
    except NotJson as error:
        raise not_json_body(body, error.reason) from None
    if not isinstance(document, dict) or document.keys() != {"operations"}:
        raise MalformedRequest(NO_BATCH)
    raws = document["operations"]
    if not isinstance(raws, list):
        raise MalformedRequest(NO_ARRAY)
    if len(raws) > operations_max:
        raise too_many(operations_max)
    return raws


class _OperationDecoder:
    """Decodes the operations of one batch."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec
        self._operations: list[Operation | TableError] = []
        self._fields: list[Fields] = []
        self._known_fields: dict[frozenset[str], frozenset[str]] = {}
        self._projected = False

    def batch(self) -> Batch:
        """Return the operations decoded so far."""
        return Batch(self._operations, self._fields if self._projected else None)

    def decode_whole(self, body: bytes, raws: Sequence[values.Json]) -> Pieces[None]:
        """Decode operations of a body that was parsed in one step."""
        count = min(PIECE_OPERATIONS, PIECE_BYTES * len(raws) // len(body) + 1)
        for start in range(0, len(raws), count):
            self.decode(raws[start : start + count])
            yield

    def decode_texts(
        self, body: bytes, texts: Sequence[memoryview | msgspec.Raw], expired: Callable[[], bool]
    ) -> Pieces[None]:
        """Decode operations from their texts, which are parts of the body, until the deadline has expired."""
        piece: list[bytes] = []
        piece_bytes = 0
        for index, text in enumerate(texts, 1):
            piece.append(bytes(text))
            piece_bytes += len(piece[-1])
            if piece_bytes >= PIECE_BYTES or len(piece) == PIECE_OPERATIONS:
                self._decode_piece(body, piece)
                yield
                piece, piece_bytes = [], 0
                if expired():
                    self._skip(len(texts) - index)
                    return
        self._decode_piece(body, piece)

    def _decode_piece(self, body: bytes, texts: Sequence[bytes]) -> None:
        documents: list[values.Json | TooLarge] = []
        for text in texts:
            try:
                operation_members.check_value_texts(self._spec, text)
                documents.append(values.parse(text))
            except TooLarge as error:
                documents.append(error.with_traceback(None))
            except NotJson as error:
                raise not_json_body(body, error.reason, len(self._operations) + len(documents)) from None
        self._decode_packed(documents)

    def _decode_packed(self, raws: Sequence[values.Json | TooLarge]) -> None:
        start = len(self._operations)
        self.decode(raws)
        for index, operation in enumerate(self._operations[start:], start):
            if isinstance(operation, Update):
                self._operations[index] = replace(operation, changes=packed(operation.changes))

    def _skip(self, count: int) -> None:
        self._operations += [not_decoded(self._spec)] * count
        self._fields += [None] * count

    def decode(self, raws: Sequence[values.Json | TableError]) -> None:
        """Decode operations. One that could not be parsed is its error."""
        if (plain := plain_operations(raws, self._spec)) is not None:
            self._operations += plain
            self._fields += [None] * len(plain)
        else:
            self._decode_each(raws)

    def _decode_each(self, raws: Sequence[values.Json | TableError]) -> None:
        from_json = self._spec.key.from_json
        operations, fields = self._operations, self._fields
        for raw in raws:
            only: Fields = None
            try:
                if type(raw) is not dict:
                    raise raw if isinstance(raw, TableError) else InvalidOperation("an operation must be an object")
                if len(raw) == 2 and raw.get("op") == "get" and "key" in raw:
                    operations.append(Get(from_json(raw["key"])))
                else:
                    only = operation_members.fields(raw.get("fields"))
                    operations.append(operation_members.operation(self._spec, raw))
            except TableError as error:
                operations.append(error.with_traceback(None))  # The traceback would keep the whole request alive.
            if only is not None:
                self._projected = True
                only = self._known_fields.setdefault(only, only)  # Comparing one set with itself takes no time.
            fields.append(only)


def encode_partitions(parts: Iterable[tuple[int, Answer]]) -> bytes:
    """Encode the answers of a write in each of its partitions."""
    encoded: list[bytes] = []
    _add_partitions(parts, encoded)
    return b"".join(encoded)


def _add_members(answer: Answer, parts: list[bytes]) -> None:
    """Append the pieces of an answer's members. Its value is not copied until the pieces are joined."""
    parts.append(b'"status":%d' % answer.status)
    if answer.error is not None:
        parts.append(b',"error":' + orjson.dumps(problem(answer.error)))
    if answer.value is not None:
        parts += (b',"value":', answer.value)
    if answer.etag is not None:
        parts.append(b',"etag":"%b"' % answer.etag.encode())
    if answer.expires_ms:
        parts.append(b',"expires_at":"%b"' % rfc3339(answer.expires_ms).encode())
    if answer.replayed:
        parts.append(b',"replayed":true')
    if answer.partitions is not None:
        parts.append(b',"partitions":')
        _add_partitions(answer.partitions, parts)
        if answer.dropped:
            parts.append(b',"dropped":true')


def _add_partitions(partitions: Iterable[tuple[int, Answer]], parts: list[bytes]) -> None:
    separator = b"["
    for index, answer in partitions:
        parts.append(b'%b{"partition":%d,' % (separator, index))
        _add_members(answer, parts)
        parts.append(b"}")
        separator = b","
    parts.append(b"[]" if separator == b"[" else b"]")
