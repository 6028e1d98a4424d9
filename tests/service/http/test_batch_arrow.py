"""Batches as Arrow: the outcomes are the same as in JSON, in columns."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from service.http.api_client import ARROW, JSON, ON_EVERY_STORE, ApiClient, check_refused, fresh, read, statuses, stream
from support.pieces import finish
from tableside.core import Record, TooLarge
from tableside.http.wire import arrow_batch, arrow_stream
from tableside.http.wire.arrow_stream import LIST_ITEMS_MAX, MESSAGES_MAX, METADATA_BYTES_MAX

T = "arrow"

ANSWER = {
    "status": pa.uint16(),
    "value": pa.binary(),
    "etag": pa.utf8(),
    "code": pa.utf8(),
    "detail": pa.utf8(),
    "retriable": pa.bool_(),
    "applied": pa.utf8(),
    "replayed": pa.bool_(),
}

PART = pa.struct([("partition", pa.int32()), *ANSWER.items()])
OF_PARTITIONS = {"partitions": pa.list_(PART), "dropped": pa.bool_()}


@ON_EVERY_STORE
def test_the_answer_has_one_row_per_operation_and_the_columns_of_the_contract(api: ApiClient) -> None:
    key, absent = fresh(), fresh()
    api.put(T, key, {"n": 1})
    for keys in ([key], [key, absent], [absent], []):
        response = api.post(T, stream({"key": pa.array(keys, pa.utf8())}), ARROW, params={"op": "get"})
        assert response.status_code == 200
        assert response.headers["Content-Type"] == ARROW
        table = read(response.content)
        assert {field.name: field.type for field in table.schema} == {
            **ANSWER,
            **(OF_PARTITIONS if api.partitioned else {}),
        }
        assert table.num_rows == len(keys)


@ON_EVERY_STORE
def test_expiries_are_shown_if_any_record_has_one(api: ApiClient) -> None:
    keys = [fresh(), fresh()]
    api.put(T, keys[0], {}, params={"ttl_s": 100})
    api.put(T, keys[1], {})
    first, second = api.rows(T, {"key": keys}, op="get")
    assert first["expires_at"] == api.get(T, keys[0]).headers["Tableside-Expires-At"]
    assert second["expires_at"] is None


@pytest.mark.parametrize("length", [100, 50_000])
def test_values_of_any_length_are_encoded(length: int) -> None:
    values = [str(at % 10).encode() * length for at in range(30)]
    encoded = finish(arrow_batch.encode([*(Record(value, "etag") for value in values), None], [], partitioned=False))
    body = encoded if isinstance(encoded, bytes) else b"".join(encoded)
    assert read(body)["value"].to_pylist() == [*values, None]


KEY_TYPES: list[Callable[[list[str]], Any]] = [
    lambda keys: pa.array(keys, pa.utf8()),
    lambda keys: pa.array(keys, pa.large_utf8()),
    lambda keys: pa.array(keys, pa.string_view()),
    lambda keys: pa.array(keys).dictionary_encode(),
    lambda keys: pa.chunked_array([keys[:1], keys[1:]]),
]


@pytest.mark.parametrize("of", KEY_TYPES)
def test_the_types_of_a_key_that_is_a_string(api: ApiClient, of: Callable[[list[str]], Any]) -> None:
    keys = [fresh(), fresh(), "ü😀"]
    for key in keys:
        api.put(T, key, {"k": key})
    assert statuses(api.rows(T, {"key": of(keys)}, op="get")) == [200] * 3
    many = [*keys, *(fresh() for _ in range(130))]
    assert statuses(api.rows(T, {"key": of(many)}, op="get")) == [200] * 3 + [404] * 130
    longest, invalid = ["ü" * 512], ["", "a\0", "x" * 1025]
    assert statuses(api.rows(T, {"key": of(many + longest)}, op="get")) == [200] * 3 + [404] * 131
    for key in invalid:
        assert statuses(api.rows(T, {"key": of([*many, key])}, op="get")) == [200] * 3 + [404] * 130 + [422]


@pytest.mark.parametrize("valid", [0, 1])
def test_many_invalid_rows_fail_alone(api: ApiClient, valid: int) -> None:
    keys = [fresh() for _ in range(130)]
    rows = api.rows(T, {"key": keys, "value": [b"{}"] * valid + [b"7"] * (130 - valid)}, op="put")
    assert statuses(rows) == [204] * valid + [422] * (130 - valid)
    assert statuses(api.rows(T, {"key": keys}, op="get")) == [200] * valid + [404] * (130 - valid)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint64()])
def test_the_types_of_a_key_that_is_an_integer(api: ApiClient, kind: pa.DataType) -> None:
    api.put("numbers", 7, {"n": 7})
    assert statuses(api.rows("numbers", {"key": pa.array([7, 100], kind)}, op="get")) == [200, 404]
    beyond = pa.array([2**64 - 1, 7], pa.uint64())
    assert statuses(api.rows("numbers", {"key": beyond}, op="get")) == [422, 200], "only its row fails"


@pytest.mark.parametrize("names", [("user", "day"), ("day", "user"), ("0", "1"), ("user", "date"), ("USER", "DAY")])
def test_the_parts_of_a_struct_go_by_name_or_else_by_order(api: ApiClient, names: tuple[str, str]) -> None:
    user, day = fresh("user"), "2026-11-20"
    api.put("visits", (user, day), {"n": 1})
    parts = {names[0]: day if names[0] == "day" else user, names[1]: user if names[1] == "user" else day}
    key = pa.array([parts], pa.struct([(name, pa.utf8()) for name in names]))
    assert statuses(api.rows("visits", {"key": key}, op="get")) == [200]


@pytest.mark.parametrize("names", [("day", "name"), ("name", "user"), ("Day", "User"), ("x", "user", "day")])
def test_a_part_with_the_name_of_another_one_is_rejected(api: ApiClient, names: tuple[str, ...]) -> None:
    key = pa.array([dict.fromkeys(names, "a")], pa.struct([(name, pa.utf8()) for name in names]))
    response = api.post("visits", stream({"key": key, "value": ["{}"]}), ARROW, params={"op": "put"})
    problem = check_refused(response, 400, "malformed_request")
    assert problem["detail"] == "the parts of the key must have the table's names: user, day"


@pytest.mark.parametrize("kind", [pa.utf8(), pa.large_utf8(), pa.binary(), pa.large_binary(), pa.binary_view()])
def test_json_text_may_be_text_or_binary(api: ApiClient, kind: pa.DataType) -> None:
    key = fresh()
    assert statuses(api.rows(T, {"key": [key], "value": pa.array([b'{"n":1.0}'], kind)}, op="put")) == [204]
    assert statuses(api.rows(T, {"key": [key], "update": pa.array([b'{"m":2}'], kind)}, op="update")) == [204]
    assert api.value(T, key) == {"n": 1, "m": 2}


@pytest.mark.parametrize("ttl_s", [pa.array([100], pa.int32()), pa.array([100.5]), pa.array([100], pa.float32())])
def test_ttl_s_may_be_an_integer_or_a_double(api: ApiClient, ttl_s: pa.Array) -> None:
    key = fresh()
    assert statuses(api.rows(T, {"key": [key], "value": ["{}"], "ttl_s": ttl_s}, op="put")) == [204]
    assert "Tableside-Expires-At" in api.get(T, key).headers


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_compressed_buffers_are_understood(api: ApiClient, compression: str | None) -> None:
    keys = [fresh() for _ in range(100)]
    body = stream({"key": keys, "value": ['{"text":"%s"}' % ("x" * 200)] * 100}, compression)
    response = api.post(T, body, ARROW, params={"op": "put"})
    assert statuses(read(response.content).to_pylist()) == [204] * 100


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_bytes_are_counted_after_decompression(api: ApiClient, compression: str) -> None:
    body = stream({"key": [fresh()], "value": ['{"text":"%s"}' % ("x" * 300_000)]}, compression)
    assert len(body) < 20_000
    check_refused(api.post(T, body, ARROW, params={"op": "put"}), 413, "too_large")


@pytest.mark.parametrize("op", ["put", "update"])
@pytest.mark.parametrize("cell", ["null", "null in the dictionary"])
def test_a_null_in_a_dictionary_is_a_null_of_its_row(api: ApiClient, op: str, cell: str) -> None:
    indices, texts = ([0, None], ["{}"]) if cell == "null" else ([0, 1], ["{}", None])
    column = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(texts))
    keys = [fresh(), fresh()]
    api.put(T, keys[0], {})
    refused = api.rows(T, {"key": keys, "value" if op == "put" else "update": column}, op=op)
    assert [(row["status"], row["code"]) for row in refused] == [(204, None), (422, "invalid_operation")]
    updates = api.rows(T, {"key": [fresh(), keys[1]], "update": ["{}"] * 2, "default": column}, op="update")
    assert [(row["status"], row["code"]) for row in updates] == [(201, None), (404, "record_not_found")]


def test_the_number_of_operations_in_a_batch_is_limited(api: ApiClient) -> None:
    api.put(T, fresh(), {})
    assert len(api.rows(T, {"key": ["a"] * 200}, op="get")) == 200
    check_refused(api.post(T, stream({"key": ["a"] * 201}), ARROW, params={"op": "get"}), 413, "too_large")


VALUE = {"key": ["a"], "value": ["{}"]}


@pytest.mark.parametrize(
    ("columns", "query"),
    [
        ({"key": ["a"]}, {}),
        ({"key": ["a"], "op": ["get"]}, {"op": "get"}),
        ({"key": ["a"], "ttl": [1]}, {"op": "get"}),
        ({"key": [1.5]}, {"op": "get"}),
        ({"key": [["a"]]}, {"op": "get"}),
        ({"key": pa.nulls(1)}, {"op": "get"}),
        ({"key": [{"a": ["b"], "b": 1.5}]}, {"op": "get"}),
        ({"key": ["a"], "op": [1]}, {}),
        ({"key": ["a"], "value": [{"n": 1}]}, {"op": "put"}),
        ({**VALUE, "if_match": [1]}, {"op": "put"}),
        ({**VALUE, "if_absent": ["true"]}, {"op": "put"}),
        ({**VALUE, "ttl_s": ["1"]}, {"op": "put"}),
        ({**VALUE, "sequence": [1]}, {"op": "put"}),
        (VALUE, {"op": "put", "writer": "w"}),
        ({"key": ["a"]}, {"op": "get", "return": "yes"}),
        ({"key": ["a"]}, {"op": "get", "unknown": "1"}),
        ({}, {"op": "get"}),
    ],
)
def test_a_batch_of_the_wrong_shape_is_malformed_as_a_whole(
    api: ApiClient, columns: dict[str, Any], query: dict[str, str]
) -> None:
    api.put(T, fresh(), {})
    check_refused(api.post(T, stream(columns), ARROW, params=query), 400, "malformed_request")


WHOLE = stream({"key": ["a" * 50, "b" * 50]})
INVALID = {
    "nothing": b"",
    "JSON": b'{"operations":[]}',
    "zeros": b"\0" * 1000,
    "no schema": WHOLE[:8],
    "half a schema": WHOLE[:100],
    "no end": WHOLE[:-30],
    "a name that is not UTF-8": stream({"key": [{"value": "a"}]}).replace(b"value", b"v\xe8lue"),
    "a key that is not UTF-8": stream({"key": ["value"]}).replace(b"value", b"v\xe8lue"),
    "a repeated column": stream({"key": ["a"], "kez": ["b"]}).replace(b"kez", b"key"),
}


@pytest.mark.parametrize("body", INVALID.values(), ids=INVALID)
def test_invalid_arrow_is_malformed(api: ApiClient, body: bytes) -> None:
    api.put(T, fresh(), {})
    check_refused(api.post(T, body, ARROW, params={"op": "get"}), 400, "malformed_request")


def test_a_stream_has_limited_messages_metadata_and_lists() -> None:
    partitions = pa.array([[0] * (LIST_ITEMS_MAX + 1)], pa.list_(pa.int8()))
    for body, detail in (
        (stream({"key": pa.chunked_array([["a"]] * MESSAGES_MAX)}), f"at most {MESSAGES_MAX} messages"),
        (stream({"key": ["a"], "n" * METADATA_BYTES_MAX: ["b"]}), f"at most {METADATA_BYTES_MAX}"),
        (stream({"key": ["a"], "partitions": partitions}), f"at most {LIST_ITEMS_MAX} partitions"),
    ):
        with pytest.raises(TooLarge, match=detail):
            finish(arrow_stream.read(body, 16 * 2**20, 10_000))


@pytest.mark.parametrize("op", ["steal", "", "GET"])
def test_an_unknown_op_is_refused(api: ApiClient, op: str) -> None:
    api.put(T, fresh(), {})
    assert statuses(api.rows(T, {"key": ["a"], "op": [op]})) == [422]
    assert statuses(api.rows(T, {"key": ["a"]}, op=op)) == [422]


def test_a_cell_that_is_not_json_names_its_column_and_the_byte(api: ApiClient) -> None:
    rows = api.rows(T, {"key": [fresh()], "value": ['{"ü":x}']}, op="put")
    assert rows[0]["detail"] == "column 'value': not JSON at byte 6: unexpected character, expected a JSON value"
    columns = {"key": [fresh(), fresh()], "update": ["{}", "{"], "default": ["[1", "{}"]}
    first, second = api.rows(T, columns, op="update")
    assert first["detail"] == "column 'default': not JSON at byte 2: unexpected end of data"
    assert second["detail"] == "column 'update': not JSON at byte 1: unexpected end of data"


@pytest.mark.parametrize(
    ("accept", "fine"),
    [("*/*", True), (f"{JSON}, {ARROW};q=0.1", True), (JSON, False), (f"{ARROW};q=0", False)],
)
def test_the_answer_is_in_the_type_of_the_request(api: ApiClient, accept: str, fine: bool) -> None:
    api.put(T, fresh(), {})
    response = api.post(T, stream({"key": ["a"]}), ARROW, params={"op": "get"}, headers={"Accept": accept})
    if fine:
        assert response.headers["Content-Type"] == ARROW
    else:
        check_refused(response, 406, "not_acceptable")


def test_several_record_batches_form_one_batch(api: ApiClient) -> None:
    api.put(T, fresh(), {})
    sink = pa.BufferOutputStream()
    schema = pa.schema([("key", pa.utf8())])
    with pa.ipc.new_stream(sink, schema) as writer:
        for keys in (["a"], [], ["b", "c"]):
            writer.write_batch(pa.record_batch([pa.array(keys, pa.utf8())], schema=schema))
    response = api.post(T, bytes(sink.getvalue()), ARROW, params={"op": "get"})
    assert statuses(read(response.content).to_pylist()) == [404] * 3
