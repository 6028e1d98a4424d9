"""The cost of a batch is proportional to its size: decoding is limited in advance, and done in pieces."""

import json
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from starlette.types import Message

from service.http.api_client import ARROW, ApiClient, check_refused, fresh, read, stream
from support.pieces import counted, finish
from tableside.core import (
    DeadlineExceeded,
    Delete,
    Get,
    InvalidOperation,
    Key,
    KeyField,
    KeySchema,
    MalformedRequest,
    Operation,
    Page,
    PartitionOutcome,
    Put,
    Record,
    StoreUnavailable,
    TableError,
    TableSpec,
    TooLarge,
    Update,
    Written,
)
from tableside.core import columns as core_columns
from tableside.core.columns import GetColumn
from tableside.core.concurrency import Pieces, in_pieces
from tableside.core.json_text import NotJson
from tableside.core.keys import STRING_BYTES_MAX
from tableside.core.projection import FIELDS_MAX, NOT_PROJECTED, VALUES_MIN, projection
from tableside.core.projection import PIECE_BYTES as PROJECTED_BYTES
from tableside.http.responses import arrow_response
from tableside.http.wire import (
    arrow_answers,
    arrow_batch,
    arrow_limits,
    arrow_parts,
    arrow_stream,
    arrow_values,
    json_batch,
    operation_texts,
    pages,
    projections,
)
from tableside.http.wire.answers import PIECE_BYTES, PIECE_OPERATIONS, answer
from tableside.http.wire.arrow_keys import decode_keys
from tableside.http.wire.body_parts import PART_BYTES_MIN

T = "costs"
SPEC = TableSpec("t")
BYTES_MAX = 16 * 2**20
OPERATIONS_MAX = 10_000
MIB = 2**20


def peak_bytes(work: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


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
    within = batches(schema, arrow_limits.MESSAGES_MAX - 2)
    assert finish(arrow_stream.read(within, BYTES_MAX, OPERATIONS_MAX)).num_rows == 0
    with pytest.raises(TooLarge, match=f"at most {arrow_limits.MESSAGES_MAX} messages"):
        finish(arrow_stream.read(batches(schema, arrow_limits.MESSAGES_MAX), BYTES_MAX, OPERATIONS_MAX))


def test_a_schema_has_a_limited_size_and_is_refused_before_it_is_decoded() -> None:
    schema = pa.schema([("key", pa.utf8())], metadata={"x": "y" * arrow_limits.METADATA_BYTES_MAX})
    with pytest.raises(TooLarge, match=f"of an Arrow message may have at most {arrow_limits.METADATA_BYTES_MAX}"):
        finish(arrow_stream.read(batches(schema, 1), BYTES_MAX, OPERATIONS_MAX))


def test_the_metadata_of_a_record_batch_have_a_limited_size() -> None:
    schema = pa.schema([("key", pa.utf8())])
    columns = arrow_limits.METADATA_BYTES_MAX // 32
    batch = pa.record_batch([pa.array([1], pa.int8())] * columns, names=["c"] * columns)
    body = batches(schema, 0)[:-8] + bytes(batch.serialize())
    with pytest.raises(TooLarge, match=f"of an Arrow message may have at most {arrow_limits.METADATA_BYTES_MAX}"):
        finish(arrow_stream.read(body, BYTES_MAX, OPERATIONS_MAX))


def test_the_metadata_of_many_messages_are_read_in_pieces() -> None:
    body = batches(pa.schema([("key", pa.utf8())]), 100)
    _, turns = counted(arrow_limits.decompressed_bytes(body))
    assert turns > 100


def test_the_partitions_of_a_batch_are_limited_in_number() -> None:
    partitions = pa.array([[0] * (arrow_stream.LIST_ITEMS_MAX + 1)], pa.list_(pa.int8()))
    with pytest.raises(TooLarge, match=f"at most {arrow_stream.LIST_ITEMS_MAX} partitions"):
        finish(arrow_stream.read(stream({"key": ["a"], "partitions": partitions}), BYTES_MAX, OPERATIONS_MAX))


def test_rows_are_counted_before_they_are_validated() -> None:
    keys = pa.Array.from_buffers(pa.utf8(), 11, pa.array([b"\xff"] * 11).buffers())
    with pytest.raises(TooLarge, match="at most 10 operations"):
        finish(arrow_stream.read(stream({"key": keys}), BYTES_MAX, 10))


@pytest.mark.parametrize("columns", [["key"], ["key", "value"], ["key", "value", "if_absent"]])
def test_rows_are_decoded_in_pieces(columns: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_columns, "KEY_BYTES_MAX", 2**10)
    rows = 4 * arrow_values.PIECE_ROWS
    text = json.dumps({"text": "x" * (4 * MIB // rows)})
    cells = {"key": [str(n) for n in range(rows)], "value": [text] * rows, "if_absent": [True] * rows}
    body = stream({name: cells[name] for name in columns})
    table = finish(arrow_stream.read(body, BYTES_MAX, OPERATIONS_MAX))
    op = "put" if "value" in columns else "get"
    batch, turns = counted(arrow_batch.decode(table, SPEC, arrow_batch.RowSettings(op)))
    assert [operation.key for operation in batch.operations if isinstance(operation, Get | Put)] == cells["key"]
    assert turns >= (4 * MIB // PIECE_BYTES if "value" in columns else rows // arrow_values.PIECE_ROWS)


def test_small_pieces_of_rows_with_several_columns_end_a_turn_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_values, "PIECE_BYTES", 2**10)
    value = json.dumps({"text": "x" * 2**10})
    cells = {"key": [str(n) for n in range(1000)], "value": [value] * 1000, "if_absent": [True] * 1000}
    table = finish(arrow_stream.read(stream(cells), BYTES_MAX, OPERATIONS_MAX))
    batch, turns = counted(arrow_batch.decode(table, SPEC, arrow_batch.RowSettings("put")))
    assert len(batch.operations) == 1000
    assert turns >= 1000


@pytest.mark.parametrize(
    ("body", "error", "says"),
    [
        (stream({"key": ["a"], "value": ["x" * MIB]})[:-100], MalformedRequest, "Arrow stream"),
        (stream({"key": [f"{n:099}" for n in range(OPERATIONS_MAX + 1)]}), TooLarge, f"{OPERATIONS_MAX} operations"),
    ],
)
async def test_errors_of_long_streams_are_those_of_short_ones(body: bytes, error: type[TableError], says: str) -> None:
    with pytest.raises(error, match=says):
        await in_pieces(arrow_stream.read(body, BYTES_MAX, OPERATIONS_MAX))


def test_a_text_that_is_too_long_for_a_key_is_not_converted() -> None:
    column = pa.chunked_array([["a", "x" * MIB, "b"]])
    assert peak_bytes(lambda: decode_keys(column, SPEC)) < MIB // 4
    assert [len(key) for key in decode_keys(column, SPEC)] == [1, STRING_BYTES_MAX + 1, 1]


@pytest.mark.parametrize("as_column", [False, True])
def test_keys_without_documents_are_decoded_in_one_step(as_column: bool) -> None:
    columns = {"key": [str(n) for n in range(1000)], **({"op": ["get"] * 1000} if as_column else {})}
    rows = finish(arrow_stream.read(stream(columns), BYTES_MAX, OPERATIONS_MAX))
    batch, turns = counted(arrow_batch.decode(rows, SPEC, arrow_batch.RowSettings(None if as_column else "get")))
    assert isinstance(batch.operations, GetColumn)
    assert turns == 0


@pytest.mark.parametrize("views", [False, True])
def test_keys_that_share_a_text_are_not_expanded_in_one_step(views: bool) -> None:
    text, count = "x" * STRING_BYTES_MAX, 2 * core_columns.KEY_BYTES_MAX // STRING_BYTES_MAX
    column = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))
    if views:
        _, places, characters = pa.array([text], pa.string_view()).buffers()
        buffers = [None, pa.py_buffer(places.to_pybytes()[:16] * count), characters]
        column = pa.Array.from_buffers(pa.string_view(), count, buffers)
    rows = finish(arrow_stream.read(stream({"key": column}), BYTES_MAX, OPERATIONS_MAX))
    assert rows.nbytes < core_columns.KEY_BYTES_MAX
    batch, turns = counted(arrow_batch.decode(rows, SPEC, arrow_batch.RowSettings("get")))
    assert list(batch.operations) == [Get(text)] * count
    assert not isinstance(batch.operations, GetColumn)
    assert turns > 1


# JSON

ODD = [
    *(
        '{"op":"get","key":"a"}',
        '  {"op":"get" , "key":"]},["}\t',
        "1",
        '"a,]"',
        "null",
        "[1,[2]]",
        "[]",
        "{}",
        "-1.5e3",
    ),
    '{"op":"put","key":"b","value":{"n":[1,{"m":"\\u005d"}]}}\n',
    '{"op":"put","key":"\u00fc","value":{"s":"\\\\\\""}}',
]


def body_of(operations: list[str]) -> bytes:
    return f'{{ "operations" : [{" ,".join(operations)}] }} '.encode()


def described(batch: json_batch.Batch) -> list[object]:
    return [repr(one) if isinstance(one, TableError) else one for one in batch.operations]


@pytest.mark.parametrize("operations", [[], *([one] for one in ODD), ODD])
@pytest.mark.parametrize("listed_bytes", [0, 2**20])
def test_a_large_body_has_the_same_outcomes_as_a_small_one(
    operations: list[str], listed_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = finish(json_batch.decode(body_of(operations), SPEC, 100))
    monkeypatch.setattr(json_batch, "WHOLE_BYTES_MAX", 0)
    monkeypatch.setattr(operation_texts, "LISTED_BYTES_MAX", listed_bytes)
    found = finish(json_batch.decode(body_of(operations), SPEC, 100))
    assert described(found) == described(expected)
    assert found.fields == expected.fields


@pytest.mark.parametrize("listed_bytes", [0, 2**20])
@pytest.mark.parametrize(
    "body",
    [
        b'{"operations": [1, "]}"], "operations": [{"op":"get","key":"a"}, 2]}',
        b'{"operation\\u0073": [{"op":"get","key":"a"}, 2]}',
        b'\t\r\n{"operations"\n:\r[\t] \n}\n',
    ],
)
def test_a_large_body_in_an_unusual_form_has_the_same_outcomes_as_a_small_one(
    body: bytes, listed_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = finish(json_batch.decode(body, SPEC, 100))
    monkeypatch.setattr(json_batch, "WHOLE_BYTES_MAX", 0)
    monkeypatch.setattr(operation_texts, "LISTED_BYTES_MAX", listed_bytes)
    assert described(finish(json_batch.decode(body, SPEC, 100))) == described(expected)


@pytest.mark.parametrize("listed_bytes", [0, 2**20])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"operations": 1}',
        b'{"operations": []',
        b'{"operations": [',
        b'{"operations": [1 2]}',
        b'{"operations": [1, 2}',
        b'{"operations": [1, 2]',
        b'{"operations": [1, 2]} 3',
        b'{"operations": [], "more": 1}',
        b'{"operations": [{"op":"get","key":"\xff"}]}',
        b'{"operations": [{"op":"get","key":"\\ud800"}]}',
        b'{"operations": [1, 1e999 ]}',
        b'{"operations": [1, 2,]}',
        b'{"operations": [1, {"key":01}]}',
        b'{"operations": [%b]}' % (b"[" * 100_000 + b"]" * 100_000),
    ],
)
def test_a_large_body_has_the_same_errors_as_a_small_one(
    body: bytes, listed_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal() -> str:
        with pytest.raises(MalformedRequest) as error:
            finish(json_batch.decode(body, SPEC, 100))
        return error.value.detail

    expected = refusal()
    monkeypatch.setattr(json_batch, "WHOLE_BYTES_MAX", 0)
    monkeypatch.setattr(operation_texts, "LISTED_BYTES_MAX", listed_bytes)
    assert refusal() == expected


@pytest.mark.parametrize(
    ("last", "detail"),
    [
        ('{"key":"\\x"}', r"not JSON, in operation 3: invalid escaped character \(byte [0-9]+\)"),
        ("1e999", "not JSON, in operation 3: number is infinity"),
    ],
)
def test_an_error_in_a_large_body_names_its_byte_or_its_operation(last: str, detail: str) -> None:
    put = '{"op":"put","key":"a","value":{"text":"%s"}}' % ("x" * MIB)
    body = body_of([put, put, put, last])
    assert len(body) > operation_texts.LOCATED_BYTES_MAX
    with pytest.raises(NotJson, match=detail):
        finish(json_batch.decode(body, SPEC, 100))


def test_a_large_body_is_decoded_and_its_answers_are_encoded_in_pieces() -> None:
    operations = ['{"op":"put","key":"a","value":{"text":"%s"}}' % ("x" * 4000)] * 1024
    batch, turns = counted(json_batch.decode(body_of(operations), SPEC, OPERATIONS_MAX))
    assert len(batch.operations) == 1024
    assert turns >= 4000 * 1024 // (PIECE_BYTES + len(operations[0]))  # the last operation of a piece may exceed it
    answers = [answer(Record(b"{}", "e"))] * 1024
    encoded, turns = counted(json_batch.encode(answers))
    assert turns == 1024 // PIECE_OPERATIONS
    assert isinstance(encoded, bytes)
    assert json.loads(encoded) == {"results": [{"status": 200, "value": {}, "etag": "e"}] * 1024}


def test_a_batch_is_parsed_and_decoded_in_two_pieces() -> None:
    _, turns = counted(json_batch.decode(body_of(['{"op":"get","key":"a"}']), SPEC, OPERATIONS_MAX))
    assert turns == 2


def test_values_are_freed_while_their_copies_join_a_json_response() -> None:
    count, value = 4096, b'"%b"' % (b"x" * 4096)
    encoded: list[bytes | memoryview] = []

    def respond() -> None:
        answers = [answer(Record(bytes(bytearray(value)), "e")) for _ in range(count)]
        parts = finish(json_batch.encode(answers))
        encoded.extend([parts] if isinstance(parts, bytes) else parts)

    assert peak_bytes(respond) < 1.2 * count * len(value)
    assert [one["value"] for one in json.loads(b"".join(encoded))["results"]] == [json.loads(value)] * count


@pytest.mark.parametrize("count", [1, 3])
def test_large_values_are_not_copied_into_a_json_response(count: int) -> None:
    large = b'{"text":"%b"}' % (b"x" * PART_BYTES_MIN)
    answers = [answer(Record(value, "e")) for value in (b"{}", *[large] * count, b"{}", b"{}")]
    parts = finish(json_batch.encode(answers))
    assert not isinstance(parts, bytes)
    assert [part for part in parts if part is large] == [large] * count
    assert len(parts) == 2 * count + 1
    values = [one["value"] for one in json.loads(b"".join(parts))["results"]]
    assert values == [{}, *[json.loads(large)] * count, {}, {}]


@pytest.mark.parametrize("partitions", [None, [0, 1] * 512], ids=["plain", "partitioned"])
def test_a_page_is_encoded_in_pieces_without_copies_of_large_values(partitions: list[int] | None) -> None:
    large = b'{"text":"%b"}' % (b"x" * PART_BYTES_MIN)
    records = [(str(index), Record(b"{}", "e", index % 2)) for index in range(1023)]
    page = Page([*records, ("last", Record(large, "e"))], None, partitions)
    parts, turns = counted(pages.encode_json(page, "c"))
    assert turns == 1024 // PIECE_OPERATIONS
    assert not isinstance(parts, bytes)
    assert parts[1] is large
    document = json.loads(b"".join(parts))
    assert document["cursor"] == "c"
    assert document["records"][1] == {
        "key": "1",
        "value": {},
        "etag": "e",
        "expires_at": "1970-01-01T00:00:00.001Z",
        **({} if partitions is None else {"partition": 1}),
    }
    assert [(one["key"], one["value"]) for one in document["records"]] == [
        (key, json.loads(record.value)) for key, record in page.records
    ]


def test_the_keys_of_an_arrow_page_are_converted_in_pieces() -> None:
    spec = TableSpec("t", KeySchema((KeyField("a"), KeyField("b"))))
    parts = [("a", str(index)) for index in range(4 * PIECE_OPERATIONS)]
    page = Page([(key, Record(b"{}", "e")) for key in parts], None)
    body, turns = counted(pages.encode_arrow(page, None, spec))
    assert isinstance(body, bytes)
    assert turns > 4
    assert read(body).column("key").to_pylist() == [{"a": first, "b": second} for first, second in parts]


def test_an_empty_page_is_a_valid_document() -> None:
    assert finish(pages.encode_json(Page([], None), None)) == b'{"records":[],"cursor":null}'


def test_the_ends_of_large_operations_are_found_in_pieces() -> None:
    body = b'{"operations":[%b]}' % b",".join([b'{"text":"%b"}' % (b"x" * PIECE_BYTES)] * 64)
    assert len(body) > operation_texts.LISTED_BYTES_MAX
    texts, turns = counted(operation_texts.operation_texts(body, 64))
    assert len(texts) == 64
    assert turns >= 63


LONG = '{"text":"%s"}' % ("x" * 2**17)


def as_json(value: str) -> Pieces[json_batch.Batch]:
    return json_batch.decode(body_of([f'{{"op":"put","key":"a","value":{value}}}'] * 3), SPEC, OPERATIONS_MAX)


def as_arrow(value: str) -> Pieces[json_batch.Batch]:
    texts = [value + " " * index for index in range(3)]
    return arrow_batch.decode(pa.table({"key": ["a"] * 3, "value": texts}), SPEC, arrow_batch.RowSettings("put"))


async def test_the_error_of_a_long_operation_names_its_byte() -> None:
    wrong, at = LONG[:-1] + "]", len(LONG) - 1
    with pytest.raises(NotJson, match=f"not JSON at byte {body_of([]).index(b'[') + 31 + at}, in operation 0: "):
        await in_pieces(as_json(wrong))
    batch = await in_pieces(as_arrow(wrong))
    assert all(f"column 'value': not JSON at byte {at}: " in str(error) for error in batch.operations)


@pytest.mark.parametrize("ttl_s", [None, 60.0], ids=["plain", "mixed"])
@pytest.mark.parametrize("checks", range(12))
def test_the_operations_before_a_deadline_keep_their_positions(
    checks: int, ttl_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_batch, "MIXED_PIECE_BYTES", 1)
    monkeypatch.setattr(arrow_values, "PIECE_OPERATIONS", 4)
    monkeypatch.setattr(arrow_values, "PIECE_ROWS", 48)
    keys, remaining = [f"k{index}" for index in range(96)], iter(range(checks))
    ops = (["put"] * 16 + ["delete"] * 16) * 3
    values, ttls = zip(*((("{}", ttl_s) if op == "put" else (None, None)) for op in ops), strict=True)
    table = pa.table({"key": keys, "op": ops, "value": values, "ttl_s": ttls})
    work = arrow_batch.decode(table, SPEC, arrow_batch.RowSettings(), lambda: next(remaining, None) is None)
    operations = finish(work).operations
    assert len(operations) == len(keys)
    for operation, key, op in zip(operations, keys, ops, strict=True):
        if isinstance(operation, TableError):
            assert isinstance(operation, DeadlineExceeded)
        else:
            assert (operation.key, type(operation)) == (key, {"put": Put, "delete": Delete}[op])
    assert any(isinstance(operation, DeadlineExceeded) for operation in operations)
    assert not isinstance(operations[0], TableError)


_MEMBERS_OF: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "put": [("value", {})],
    "update": [("update", {}), ("default", {"update": ["{}"] * 9})],
}


def unpacked(operation: Operation | TableError) -> str:
    """Return an operation as text, with the changes of an update as objects, or the error."""
    if isinstance(operation, Update):
        operation = replace(operation, changes=tuple(operation.changes))
    return f"{type(operation).__name__} {operation}"


@pytest.mark.parametrize("text", [b"0,", b'"",', b"[],"])
def test_many_tiny_operations_are_counted_before_they_become_objects(text: bytes) -> None:
    body = b'{"operations":[%b0]}' % (text * (8 * MIB // len(text)))

    def refused() -> None:
        with pytest.raises(TooLarge, match="at most 10000 operations"):
            finish(json_batch.decode(body, SPEC, OPERATIONS_MAX))

    assert peak_bytes(refused) < 2 * len(body)


# Fields

N = frozenset({"n"})
LARGE = json.dumps({"n": 1, "text": "x" * MIB}).encode()


def never() -> bool:
    return False


def test_each_distinct_value_is_reduced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reduced: list[bytes] = []

    def noting(fields: frozenset[str], count: int) -> Callable[[bytes], bytes]:
        def reduce(value: bytes) -> bytes:
            reduced.append(value)
            return projection(fields, count)(value)

        return reduce

    monkeypatch.setattr(projections, "projection", noting)
    outcomes = [Record(LARGE, "e")] * 1000
    found = finish(projections.project_outcomes(outcomes, [N] * 1000, never))
    assert found == [Record(b'{"n":1}', "e")] * 1000
    assert len(reduced) == 1


def test_other_tasks_run_between_distinct_large_values() -> None:
    outcomes = [Record(bytes(bytearray(LARGE)), "e") for _ in range(20)]
    found, turns = counted(projections.project_outcomes(outcomes, [N] * 20, never))
    assert found == [Record(b'{"n":1}', "e")] * 20
    assert turns == 20


def test_extracting_fields_ends_at_the_deadline() -> None:
    written = Written("e", value=bytes(bytearray(LARGE)))
    outcomes = [Record(LARGE, "e"), Record(bytes(bytearray(LARGE)), "e"), written, None]
    found = finish(projections.project_outcomes(outcomes, [N] * 4, lambda: True))
    assert found[0] == Record(b'{"n":1}', "e")
    assert isinstance(found[1], DeadlineExceeded)
    assert found[2:] == [Written("e"), None], "the write has taken effect, and has no value"


def test_extracting_fields_from_small_records_ends_at_the_deadline_too() -> None:
    value = b'{"n":1,"text":"%b"}' % (b"x" * (PROJECTED_BYTES // 8))
    outcomes = [None, *[Record(value, "e")] * 100, None]
    found, turns = counted(projections.project_outcomes(outcomes, [N] * 102, never))
    assert found == [None, *[Record(b'{"n":1}', "e")] * 100, None]
    assert turns >= 100 * len(value) // PROJECTED_BYTES
    found, turns = counted(projections.project_outcomes(outcomes, [N] * 102, lambda: True))
    assert turns == 1
    assert sum(isinstance(outcome, Record) for outcome in found) < 8
    assert found[-2:] == [NOT_PROJECTED, None]


@pytest.mark.parametrize("size", [10, projections.LARGE_BYTES])
def test_a_batch_has_a_limited_number_of_decoders(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def noting(fields: frozenset[str], count: int) -> Callable[[bytes], bytes]:
        counts.append(count)
        return projection(fields, count)

    monkeypatch.setattr(projections, "projection", noting)
    sets = [frozenset({"n", str(number)}) for number in range(projections.DECODERS_MAX + 10)]
    fields = sets if size >= projections.LARGE_BYTES else sets * VALUES_MIN
    outcomes = [Record(b'{"n":1,"text":"%b"}' % (b"x" * size), "e")] * len(fields)
    found = finish(projections.project_outcomes(outcomes, fields, never))
    assert found == [Record(b'{"n":1}', "e")] * len(fields)
    assert len(counts) == len(sets)
    assert sum(count >= VALUES_MIN for count in counts) == projections.DECODERS_MAX


def test_equal_fields_of_a_json_batch_are_one_object() -> None:
    get = '{"op":"get","key":"a","fields":["n","m"]}'
    fields = finish(json_batch.decode(body_of([get, get]), SPEC, OPERATIONS_MAX)).fields
    assert fields is not None
    assert fields[0] is fields[1]


def test_the_bytes_that_fields_are_extracted_from_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projections, "DECODED_BYTES_MAX", 2 * MIB)
    outcomes = [Record(bytes(bytearray(LARGE)), "e") for _ in range(4)]
    *whole, last = finish(projections.project_outcomes(outcomes, [N] * 4, never))
    assert isinstance(last, TooLarge)
    assert last.retriable
    assert whole[0] == Record(b'{"n":1}', "e")


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


@pytest.mark.parametrize("more", [[], ['"'], map(str, range(FIELDS_MAX))], ids=["one", "escaped", "many"])
def test_fields_of_a_large_record_are_extracted_without_decoding_the_others(
    api: ApiClient, more: Iterable[str]
) -> None:
    fields = N.union(more)
    key = fresh()
    api.put(T, key, {"n": 1, "text": ["x" * 10] * 10_000})
    assert api.get(T, key, params={"fields": ",".join(fields)}).json() == {"n": 1}
    value = json.dumps({"n": 1, "numbers": [0.5] * 100_000}).encode()
    assert peak_bytes(lambda: projections.project_value(value, fields)) < len(value) / 10


def test_the_fields_of_a_page_are_extracted_in_pieces() -> None:
    records: list[tuple[Key, Record]] = [(str(n), Record(bytes(bytearray(LARGE)), "e")) for n in range(8)]
    page, turns = counted(pages.project_page(Page(records, b"position"), N))
    assert page == Page([(key, Record(b'{"n":1}', "e")) for key, _ in records], b"position")
    assert turns == 8


@pytest.mark.parametrize("size", [10, 2 * MIB])
def test_the_values_of_a_large_arrow_answer_are_copied_once(size: int) -> None:
    values = [b"x" * size, b"", b"y" * size]
    encoded: list[Any] = []
    peak = peak_bytes(
        lambda: encoded.append(finish(arrow_answers.encode_records([Record(value, "e") for value in values])))
    )
    parts = [encoded[0]] if isinstance(encoded[0], bytes) else encoded[0]
    assert sum(len(part) > arrow_parts.JOINED_BYTES_MAX for part in parts) == (size > arrow_parts.JOINED_BYTES_MAX)
    assert peak < 2 * size + MIB
    assert read(b"".join(parts)).column("value").to_pylist() == values


def test_the_values_of_a_large_arrow_answer_are_copied_in_pieces() -> None:
    _, turns = counted(arrow_answers.encode_records([Record(b"x" * 2**16, "e")] * 64))
    assert turns == 1 + 64 * 2**16 // arrow_parts.PIECE_BYTES


@pytest.mark.parametrize("size", [10, 2 * MIB])
def test_a_large_arrow_answer_has_absent_values(size: int) -> None:
    outcomes = [Record(b"x" * size, "e"), None, Record(b"", "e")]
    encoded = finish(arrow_answers.encode([answer(outcome) for outcome in outcomes]))
    found = read(encoded if isinstance(encoded, bytes) else b"".join(encoded))
    assert found.column("value").to_pylist() == [b"x" * size, None, b""]
    assert found.column("status").to_pylist() == [200, 404, 200]


def test_an_arrow_answer_is_encoded_in_pieces_of_rows() -> None:
    outcomes = [Record(b"1", "a"), None, DeadlineExceeded("late"), Written(etag="b", created=True, replayed=True)]
    found = [answer(outcome) for outcome in outcomes]
    count = 4 * PIECE_OPERATIONS // len(found)
    short = finish(arrow_answers.encode(found * count))
    long, turns = counted(arrow_answers.encode([*found * 3 * count, found[0]]))
    assert isinstance(short, bytes)
    assert isinstance(long, bytes)
    assert read(long).equals(pa.concat_tables([*[read(short)] * 3, read(short)[:1]]))
    assert turns == 5


async def test_a_large_arrow_answer_is_sent_in_parts_with_its_length() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("the response reads nothing")

    encoded = finish(arrow_answers.encode_records([Record(b"x" * 2 * MIB, "e")]))
    await arrow_response(encoded, {"Vary": "Accept"})({"type": "http"}, receive, send)
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
    decoded = [isinstance(operation, Put) for operation in batch.operations]
    assert decoded == sorted(decoded, reverse=True)
    assert 0 < sum(decoded) * 4000 <= 3 * PIECE_BYTES
    assert len(decoded) == 1025
    assert isinstance(batch.operations[-1], DeadlineExceeded)


@pytest.mark.parametrize("columns", [["key", "value"], ["key", "value", "if_absent"]])
def test_rows_are_not_decoded_after_the_deadline(columns: list[str]) -> None:
    rows = 4 * arrow_values.PIECE_ROWS
    cells = {"key": ["a"] * rows, "value": ['{"text":"%s"}' % ("x" * 1000)] * rows, "if_absent": [True] * rows}
    table = finish(arrow_stream.read(stream({name: cells[name] for name in columns}), BYTES_MAX, OPERATIONS_MAX))
    batch = finish(arrow_batch.decode(table, SPEC, arrow_batch.RowSettings("put"), after(1)))
    decoded = [isinstance(operation, Put) for operation in batch.operations]
    assert decoded == sorted(decoded, reverse=True)
    assert 0 < sum(decoded) * 1000 <= 3 * PIECE_BYTES
    assert len(decoded) == rows


# Updates


def test_the_updates_of_a_large_batch_take_no_more_memory_than_its_size() -> None:
    deep = '{"a":' * 28 + "1" + "}" * 28
    patch = "{" + ",".join(f'"{number}":{deep}' for number in range(8)) + "}"
    body = body_of([f'{{"op":"update","key":"a","update":{patch}}}'] * 3000)
    assert len(body) > json_batch.WHOLE_BYTES_MAX
    assert peak_bytes(lambda: finish(json_batch.decode(body, SPEC, OPERATIONS_MAX))) < 8 * len(body)
    columns = {"key": ["a"] * 3000, "update": [patch.replace('"7"', f'"{n}"') for n in range(1000, 4000)]}
    table = pa.table(columns)
    settings = arrow_batch.RowSettings("update")
    assert peak_bytes(lambda: finish(arrow_batch.decode(table, SPEC, settings))) < 8 * len(body)
