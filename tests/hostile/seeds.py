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


def stream(columns: dict[str, pa.Array], compression: str | None) -> bytes:
    """Return an Arrow stream, with metadata of its schema."""
    sink = pa.BufferOutputStream()
    table = pa.table(columns).replace_schema_metadata({"a": "b"})
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
        writer.write_table(table.slice(1))
    return bytes(sink.getvalue())
