"""The cost of a batch is proportional to its size: decoding is limited in advance, and done in pieces."""

import json
from collections.abc import Callable

import pyarrow as pa
import pytest
from starlette.types import Message

from service.http.api_client import ARROW, ApiClient, check_refused, read, stream
from support.pieces import finish
from tableside.core import (
    DeadlineExceeded,
    InvalidOperation,
    MalformedRequest,
    PartitionOutcome,
    Record,
    StoreUnavailable,
    TableSpec,
    TooLarge,
    Written,
)
from tableside.core.concurrency import PIECE_BYTES
from tableside.core.values import NotJson
from tableside.http.responses import encoded_response
from tableside.http.wire import (
    arrow_answers,
    arrow_stream,
    json_batch,
    projections,
)

SPEC = TableSpec("t")
BYTES_MAX = 16 * 2**20
OPERATIONS_MAX = 10_000
MIB = 2**20


def batches(schema: pa.Schema, count: int) -> bytes:
    sink = pa.BufferOutputStream()
    empty = schema.empty_table().to_batches()
    with pa.ipc.new_stream(sink, schema) as writer:
        for _ in range(count):
            writer.write_batch(empty[0] if empty else pa.RecordBatch.from_pylist([], schema=schema))
    return bytes(sink.getvalue())


# Arrow


def test_a_dictionary_of_structs_is_refused_by_its_type_before_it_is_expanded(api: ApiClient) -> None:
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), pa.array([{"user": "x" * 100_000}]))
    body = stream({"key": shared})
    problem = check_refused(api.post("visits", body, ARROW, params={"op": "get"}), 400, "malformed_request")
    assert problem["detail"] == "column 'key' has the wrong type"
    with pytest.raises(MalformedRequest):
        finish(arrow_stream.read(body, BYTES_MAX, OPERATIONS_MAX))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([["a"]]),
        pa.nulls(1),
        pa.RunEndEncodedArray.from_arrays([1], ["a"]),
        pa.array([{"p": ["a"]}]),
        pa.StructArray.from_arrays([pa.array(["a"])] * 9, names=list("abcdefghi")),
    ],
)
def test_a_key_of_an_unlisted_type_is_refused(column: pa.Array) -> None:
    with pytest.raises(MalformedRequest, match="'key' has the wrong type"):
        finish(arrow_stream.read(stream({"key": column}), BYTES_MAX, OPERATIONS_MAX))


def test_views_of_one_text_are_counted_before_they_are_read() -> None:
    text = pa.array([b"s" * 10_000 + b"\xff"], pa.binary_view())
    _, views, characters = text.buffers()
    buffers = [None, pa.py_buffer(views.to_pybytes()[:16] * 2000), characters]
    column = pa.Array.from_buffers(pa.string_view(), 2000, buffers)  # Its text is not UTF-8, which only reading finds.
    with pytest.raises(TooLarge, match="bytes once it is decompressed"):
        finish(arrow_stream.read(stream({"key": column}), BYTES_MAX, OPERATIONS_MAX))


def test_a_stream_has_a_limited_number_of_messages() -> None:
    schema = pa.schema([("key", pa.utf8())])
    within = batches(schema, arrow_stream.MESSAGES_MAX - 2)
    assert finish(arrow_stream.read(within, BYTES_MAX, OPERATIONS_MAX)).num_rows == 0
    with pytest.raises(TooLarge, match=f"at most {arrow_stream.MESSAGES_MAX} messages"):
        finish(arrow_stream.read(batches(schema, arrow_stream.MESSAGES_MAX), BYTES_MAX, OPERATIONS_MAX))


def test_a_schema_has_a_limited_size_and_is_refused_before_it_is_decoded() -> None:
    schema = pa.schema([("key", pa.utf8())], metadata={"x": "y" * arrow_stream.METADATA_BYTES_MAX})
    with pytest.raises(TooLarge, match=f"of an Arrow message may have at most {arrow_stream.METADATA_BYTES_MAX}"):
        finish(arrow_stream.read(batches(schema, 1), BYTES_MAX, OPERATIONS_MAX))


def test_the_metadata_of_a_record_batch_have_a_limited_size() -> None:
    schema = pa.schema([("key", pa.utf8())])
    columns = arrow_stream.METADATA_BYTES_MAX // 32
    batch = pa.record_batch([pa.array([1], pa.int8())] * columns, names=["c"] * columns)
    body = batches(schema, 0)[:-8] + bytes(batch.serialize())
    with pytest.raises(TooLarge, match=f"of an Arrow message may have at most {arrow_stream.METADATA_BYTES_MAX}"):
        finish(arrow_stream.read(body, BYTES_MAX, OPERATIONS_MAX))


def test_the_partitions_of_a_batch_are_limited_in_number() -> None:
    partitions = pa.array([[0] * (arrow_stream.LIST_ITEMS_MAX + 1)], pa.list_(pa.int8()))
    with pytest.raises(TooLarge, match=f"at most {arrow_stream.LIST_ITEMS_MAX} partitions"):
        finish(arrow_stream.read(stream({"key": ["a"], "partitions": partitions}), BYTES_MAX, OPERATIONS_MAX))


# JSON


def body_of(operations: list[str]) -> bytes:
    return f'{{ "operations" : [{" ,".join(operations)}] }} '.encode()


@pytest.mark.parametrize(
    ("last", "detail"),
    [
        ('{"key":"\\x"}', r"not JSON: invalid escaped character \(byte [0-9]+\)"),
        ("1e999", "not JSON, in operation 3: number is infinity"),
    ],
)
def test_an_error_in_a_large_body_names_its_byte_or_its_operation(last: str, detail: str) -> None:
    put = '{"op":"put","key":"a","value":{"text":"%s"}}' % ("x" * MIB)
    body = body_of([put, put, put, last])
    assert len(body) > json_batch.LOCATED_BYTES_MAX
    with pytest.raises(NotJson, match=detail):
        finish(json_batch.decode(body, SPEC, 100))


# Fields

N = frozenset({"n"})
LARGE = json.dumps({"n": 1, "text": "x" * MIB}).encode()


def never() -> bool:
    return False


def test_extracting_fields_ends_at_the_deadline() -> None:
    written = Written("e", value=bytes(bytearray(LARGE)))
    outcomes = [Record(LARGE, "e"), Record(bytes(bytearray(LARGE)), "e"), written, None]
    found = finish(projections.project_outcomes(outcomes, [N] * 4, lambda: True))
    assert found[0] == Record(b'{"n":1}', "e")
    assert isinstance(found[1], DeadlineExceeded)
    assert found[2:] == [Written("e"), None], "the write has taken effect, and has no value"


def test_fields_apply_to_every_value_of_an_outcome() -> None:
    value = b'{"m":2,"n":1}'
    failed = StoreUnavailable("away")
    failed.partitions = (PartitionOutcome(0, Written("e", value=value)), PartitionOutcome(1, StoreUnavailable("away")))
    written = Written("e", value=value, partitions=failed.partitions[:1])
    found = finish(projections.project_outcomes([written, failed, InvalidOperation("x"), None], [N] * 4, never))
    part = PartitionOutcome(0, Written("e", value=b'{"n":1}'))
    assert found[0] == Written("e", value=b'{"n":1}', partitions=(part,))
    assert isinstance(found[1], StoreUnavailable)
    assert found[1].partitions is not None
    assert found[1].partitions[0] == part
    assert failed.partitions[0].outcome == Written("e", value=value), "the outcome itself is unchanged"


async def test_a_large_arrow_answer_is_sent_in_parts_with_its_length() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("the response reads nothing")

    encoded = finish(arrow_answers.encode([Record(b"x" * 2 * MIB, "e")]))
    await encoded_response(encoded, "application/vnd.apache.arrow.stream", {"Vary": "Accept"})(
        {"type": "http"}, receive, send
    )
    head, *parts = sent
    body = b"".join(part["body"] for part in parts)
    assert [part.get("more_body", False) for part in parts] == [True] * (len(parts) - 1) + [False]
    assert {(b"content-length", b"%d" % len(body)), (b"vary", b"Accept")} <= {*head["headers"]}
    assert read(body).column("value").to_pylist() == [b"x" * 2 * MIB]


# Deadlines


def after(calls: int) -> Callable[[], bool]:
    """Return a function that returns False so many times, then True."""
    left = iter([False] * calls)
    return lambda: next(left, True)


def test_operations_of_a_large_body_are_not_decoded_after_the_deadline() -> None:
    operations = ['{"op":"put","key":"a","value":{"text":"%s"}}' % ("x" * 4000)] * 1024
    batch = finish(json_batch.decode(body_of([*operations, "1e999"]), SPEC, OPERATIONS_MAX, after(1)))
    decoded = len(batch.operations)
    assert 0 < decoded * 4000 <= 3 * PIECE_BYTES
    assert [*batch.errors] == [*range(decoded, 1025)]
    assert {type(error) for error in batch.errors.values()} == {DeadlineExceeded}
