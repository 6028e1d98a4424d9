"""Legal and almost legal inputs: the seeds for mutation."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

TEXTS = (
    *(b"{}", b'{"n":1}', b'{"n":1.0,"s":"\\u00fc\\ud83d\\ude00","l":[1,2.5,null,true,{"a":{}}]}', b"[]", b"null"),
    *(b'{"n":9223372036854775807}', b'{"n":9223372036854775808}', b'{"n":1e400}', b'{"_ts":1}', b'{"a":"\\u0000"}'),
    *(b'{"a":' * 31 + b"1" + b"}" * 31, b"[" * 3000, b'{"a":"\\ud800"}', b'{"":1}', b'{"a":1,"a":2}', b'{"a":-0.0}'),
)

OPERATIONS: tuple[dict[str, Any], ...] = (
    {"op": "get", "key": "a", "fields": ["n"]},
    {"op": "put", "key": "b", "value": {"n": 1}, "if_match": "e", "ttl_s": 60},
    {"op": "put", "key": ["b", 1], "value": {"n": 1}, "if_absent": True, "partitions": [0, 1]},
    {"op": "update", "key": 7, "update": {"$inc": {"n": 1}}, "default": {"n": 0}, "return": True},
    {"op": "delete", "key": "d", "token": {"writer": "w", "sequence": 7}, "partitions": "all"},
)

UPDATES = (
    *(b'{"n":null,"a":{"b":1}}', b'[{"$set":{"a.b":1}},{"$unset":["a"]}]', b'{"$inc":{"n":1.5}}'),
    *(b'{"$min":{"n":1},"$max":{"m":"x"}}', b'{"$push":{"l":{"$each":[1,{}]}}}', b'{"$addToSet":{"l":{"$each":[1]}}}'),
)


def seeds(name: str) -> Iterator[bytes]:
    """Return inputs that a decoder accepts, or refuses for a single reason."""
    match name:
        case "json values":
            yield from TEXTS
        case "json batches":
            for kind in range(4):
                yield bytes([kind]) + json.dumps({"operations": OPERATIONS}).encode()
                yield bytes([kind]) + json.dumps({"operations": [{"op": "get", "key": "a"}]}).encode()
        case "arrow batches":
            for number, stream in enumerate(batches()):
                yield bytes([number % 4, (0, 64, 128)[number % 3]]) + stream
                yield bytes([number % 4, 1 + number % 4]) + stream
        case "arrow tables":
            yield from tables()
        case "keys":
            yield from (b"\x00a%2Fb", b"\x01-7", b"\x02book/7", b"\x03%C3%BC%F0%9F%98%80", b"\x00%00", b"\x00%")
        case "updates":
            yield from (update + b"\0" + text for update in UPDATES for text in TEXTS[:3])
        case "headers":
            yield b'\x00*/*;q=0.5, application/json\n\x01no-cache, max-age=5\n\x04"a", W/"b"\n\x05*'
            yield b"\x06return=representation, wait=1.5\n\x07w/7\n\x03application/json; charset=utf-8\nfields=a,b"
        case "cursors":
            yield from (b"a", b"6162-.63", b"AAAAAAAAAAA", b"-")
        case "partitions":
            yield from (b"0,1", b"all", b"[0,1]", b"[null]", b"[-1]", b'"default"', b"[1.0]")
        case "connections":
            yield from REQUESTS


def batches() -> Iterator[bytes]:
    """Return batches in Arrow: columns of many types, some compressed."""
    keys = (
        *(pa.array(["a", "b"]), pa.array(["a", None], pa.large_utf8()), pa.array([1, 2], pa.int64())),
        *(pa.array(["a", "b"], pa.string_view()), pa.array(["a longer one than a view holds", "b"], pa.string_view())),
        *(pa.array(["a", "b"]).dictionary_encode(), pa.array([{"book": "a", "page": 1}, {"book": "b", "page": 2}])),
    )
    value = pa.array([b'{"n":1}', b'{"a":[1,2]}'], pa.binary())
    more = {
        "op": pa.array(["put", "update"]).dictionary_encode(),
        "value": pa.array([b'{"n":1}', None], pa.binary_view()),
        "update": pa.array([None, '{"$inc":{"n":1}}'], pa.large_utf8()),
        "default": pa.array([None, "{}"]),
        "if_absent": pa.array([True, None]),
        "ttl_s": pa.array([1.5, float("nan")]),
        "sequence": pa.array([0, 2**62]),
        "partitions": pa.array([[0, 1], None], pa.list_(pa.int8())),
    }
    for number, key in enumerate(keys):
        for compression in (None, "lz4", "zstd") if number < 4 else (None,):
            yield stream({"key": key}, compression)
            yield stream({"key": key, "value": value}, compression)
            yield stream({"key": key, **more}, compression)


def tables() -> Iterator[bytes]:
    """Return streams of every kind of layout that Arrow has."""
    strings = ["a", None, "a longer one than a view holds, and another"]
    union = pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])])
    dense = pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["a"])]
    )
    lists = [[1, 2], None, []]
    columns: tuple[pa.Array, ...] = (
        *(pa.array(strings, kind) for kind in (pa.utf8(), pa.large_utf8(), pa.string_view(), pa.binary_view())),
        *(pa.array(lists, kind) for kind in (pa.list_(pa.int8()), pa.large_list(pa.int64()), pa.list_view(pa.int8()))),
        *(union, dense, pa.nulls(3), pa.array([{"a": "x", "b": [1]}, None, {}]), pa.array(strings).dictionary_encode()),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["a", "b"])),
        pa.array([[("a", 1)], None, []], pa.map_(pa.utf8(), pa.int32())),
        pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
        pa.array([1, 2, 3], pa.decimal128(10, 2)),
        pa.array([b"abc", None, b"def"], pa.binary(3)),
        pa.array([0, None, 2**40], pa.timestamp("ns", "UTC")),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array([["a"], ["b", "c"]])),
    )
    for column in columns:
        yield stream({"key": column}, None)
    yield stream({"a": columns[0], "b": columns[4]}, "lz4")
    yield stream({"a": columns[2], "b": columns[11]}, "zstd")


def stream(columns: dict[str, pa.Array], compression: str | None) -> bytes:
    """Return an Arrow stream, with metadata of its schema."""
    sink = pa.BufferOutputStream()
    table = pa.table(columns).replace_schema_metadata({"a": "b"})
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
        writer.write_table(table.slice(1))
    return bytes(sink.getvalue())


REQUESTS = (
    b"GET /v1/tables HTTP/1.1\r\nhost: a\r\n\r\nGET /b HTTP/1.1\r\nhost: a\r\n\r\n",
    b"PUT /r HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}GET /b HTTP/1.0\r\n\r\n",
    b"PUT /r HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1;x=y\r\n}\r\n0\r\nt: 1\r\n\r\n",
    b"POST /r HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
    b"GET http://a/b?c=%C3%BC HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\nCONNECT a:80 HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)
