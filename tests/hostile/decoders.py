"""The decoders of requests as functions of bytes, with checks of their results.

For example, a legal value has one text, and a legal key has one encoding.
"""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace

from starlette.requests import empty_receive

from hostile.seeds import seeds
from support.pieces import finish
from tableside.core import updates, values
from tableside.core.errors import TableError
from tableside.core.keys import KeyField, KeySchema
from tableside.core.operations import Put
from tableside.core.partitioner import parse_partitions
from tableside.core.store import Scan, TableSpec, scan_range
from tableside.http.endpoints import routes
from tableside.http.endpoints.routing import Endpoint, ServiceRequest
from tableside.http.request_context import SCOPE_KEY, RequestContext
from tableside.http.wire import arrow_batch, arrow_stream, json_batch, operation_members, pages
from tableside.http.wire.operation_columns import DecodedBatch
from tableside.http.wire.request_headers import check_accepts, matches_etag, preferred_media_type

PLAIN = TableSpec("t")
NUMBERS = TableSpec("t", KeySchema((KeyField("id", "integer"),)))
PAGES = TableSpec("t", KeySchema((KeyField("book"), KeyField("page", "integer"))))
SPREAD = TableSpec("t", partitions=4)
SPECS = (PLAIN, NUMBERS, PAGES, SPREAD)

ENDPOINTS = [route for route in routes() if isinstance(route, Endpoint)]
APP = SimpleNamespace(state=SimpleNamespace(catalog=None))

BYTES_MAX = 65_536
OPERATIONS_MAX = 100
NAMES = (
    *(b"accept", b"cache-control", b"content-encoding", b"content-type", b"if-match", b"if-none-match", b"prefer"),
    *(b"tableside-token", b"x-request-id", b"content-type", b"if-match"),
)


def json_values(data: bytes) -> None:
    """Decode JSON text to a value. Encoding and decoding it again gives the same text."""
    text = values.encode(values.parse(data))
    assert values.encode(values.decode(text)) == text
    assert values.encode(values.parse(text)) == text
    values.encode_sorted(values.decode(text))


def json_batches(data: bytes) -> None:
    """Decode a body to operations. The first byte selects the kind of table."""
    batch = finish(json_batch.decode(data[1:], _spec(data), OPERATIONS_MAX))
    assert len(batch.operations) <= OPERATIONS_MAX
    _check_puts(batch)


def arrow_batches(data: bytes) -> None:
    """Decode an Arrow stream to operations. The first byte selects the table, the second the query parameters."""
    said = data[1] if len(data) > 1 else 0
    op = (None, "get", "put", "update", "delete")[said % 5]
    settings = arrow_batch.ArrowOptions(op, "w" if said & 64 else None, bool(said & 128))
    rows, size_bytes = finish(arrow_stream.read(data[2:], BYTES_MAX, OPERATIONS_MAX))
    batch = finish(arrow_batch.decode(rows, size_bytes, _spec(data), settings))
    assert len(batch.operations) <= OPERATIONS_MAX
    _check_puts(batch)


def keys(data: bytes) -> None:
    """Decode path segments to a key, which has one encoding."""
    schema = _spec(data).key
    key = schema.from_path(data[1:].split(b"/"))
    assert schema.from_json(list(key) if isinstance(key, tuple) else key) == key
    assert schema.decode(schema.encode(key)) == key


def update_documents(data: bytes) -> None:
    """Apply an update to a value. The input is both as JSON texts, separated by a zero byte."""
    update, _, value = data.partition(b"\0")
    changes = updates.parse(values.parse(update))
    updates.touched_members(changes)
    before = values.encode(values.parse(value or b"{}"))
    after = updates.apply(before, changes)
    updates.joined([changes, changes])
    assert values.encode(values.decode(after)) == after


def header_lines(data: bytes) -> None:
    """Parse headers and a query as each endpoint does. The first byte of each line selects the header's name."""
    lines = [line for line in data.split(b"\n") if line]
    given = [(NAMES[line[0] % len(NAMES)], line[1:]) for line in lines]
    scope = {"type": "http", "method": "GET", "headers": given, "query_string": data[:200], "path": "/"}
    request = ServiceRequest({**scope, "app": APP, SCOPE_KEY: RequestContext("1", "GET")}, empty_receive)
    accept = request.header(b"accept")
    parsers: tuple[Callable[[ServiceRequest], object], ...] = (
        *(endpoint.parameters.parse for endpoint in ENDPOINTS),
        lambda request: request.media_type(("application/json",)),
        lambda request: check_accepts(accept, "application/json"),
        lambda request: preferred_media_type(accept, ("application/json", "text/plain")),
        lambda request: matches_etag(request.header(b"if-none-match") or "", "1"),
    )
    for parse in parsers:
        with contextlib.suppress(TableError):
            parse(request)


def sealed_texts(data: bytes) -> None:
    """Open cursors and splits: the raw input, and the input after sealing it correctly."""
    with contextlib.suppress(TableError):
        pages.open_sealed(data.decode("latin-1"), "cursor", "scan", "t")
    position = pages.open_sealed(pages.seal(data, 1, "scan", "t"), "cursor", "scan", "t")
    scan_range(PLAIN, Scan(10, position=position))
    scan_range(PLAIN, Scan(10, split=position))


def partition_choices(data: bytes) -> None:
    """Parse the partitions in a query or in a member of an operation."""
    with contextlib.suppress(TableError):
        operation_members.scan_partitions(SPREAD, data.decode("latin-1"))
    parse_partitions(values.parse(data), 4)


DECODERS: dict[str, Callable[[bytes], None]] = {
    "json values": json_values,
    "json batches": json_batches,
    "arrow batches": arrow_batches,
    "keys": keys,
    "updates": update_documents,
    "headers": header_lines,
    "cursors": sealed_texts,
    "partitions": partition_choices,
}


def decode(data: bytes) -> None:
    """Run the decoder that the first byte selects. It may raise one of our errors. Any other exception propagates."""
    decoder = [*DECODERS.values()][(data[0] if data else 0) % len(DECODERS)]
    with contextlib.suppress(TableError):
        decoder(data[1:])


def selecting_seeds() -> Iterator[bytes]:
    """Return inputs that a decoder accepts, or refuses for a single reason."""
    return (bytes([number]) + one for number, name in enumerate(DECODERS) for one in seeds(name))


def _spec(data: bytes) -> TableSpec:
    return SPECS[(data[0] if data else 0) % len(SPECS)]


def _check_puts(batch: DecodedBatch) -> None:
    for operation in batch.operations:
        if isinstance(operation, Put):
            assert values.encode(values.decode(operation.value)) == operation.value
