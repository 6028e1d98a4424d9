"""The largest Arrow batches of each kind within the limits, by name."""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hostile.costs import JSON, Sent
from hostile.inputs import BODY_BYTES, LARGE, OPERATIONS, Input, Table
from hostile.json_texts import UPDATES, VALUES

ARROW = {**JSON, "Content-Type": "application/vnd.apache.arrow.stream"}
ROOM_BYTES = BODY_BYTES // OPERATIONS - 100


def arrow() -> Iterator[Input]:
    """Return batches as Arrow."""
    for name, columns in COLUMNS.items():
        yield Input(f"Arrow {name}", partial(_sent, _query(name), partial(_one_batch, columns)))
    for name, columns in COMPRESSED.items():
        yield Input(f"Arrow {name}, zstd", partial(_sent, _query(name), partial(_one_batch, columns, "zstd")))
    for name, stream in STREAMS.items():
        yield Input(f"Arrow {name}", partial(_sent, _query(name), stream))
    for name, keys in (("get large", LARGE), ("get members&fields=1", ("members",))):
        rows = partial(_one_batch, partial(_keys, keys))
        yield Input(f"Arrow {name}", partial(_sent, _query(name), rows), keys)


def _query(name: str) -> str:
    """Return the query of an input. Its name begins with the operation."""
    op, _, fields = name.partition(" ")[0], *name.partition("&")[1:]
    return f"op={op}&{fields}" if fields else f"op={op}"


def _sent(query: str, make: Callable[[], bytes], table: Table) -> Sent:
    body = make()
    return Sent("POST", f"{table.path}/batch?{query}", body, ARROW, min(BODY_BYTES, _expanded_bytes(body)))


def _expanded_bytes(body: bytes) -> int:
    """Return the size of a stream after decompression, with the texts of a dictionary counted for each row."""
    try:
        table = pa.ipc.open_stream(body).read_all()
    except pa.ArrowException:
        return 0
    return int(table.nbytes) + sum(_dictionary_bytes(chunk) for column in table.columns for chunk in column.chunks)


def _dictionary_bytes(chunk: pa.Array) -> int:
    if not pa.types.is_dictionary(chunk.type) or chunk.type.value_type not in (pa.utf8(), pa.binary()):
        return 0
    return pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0


def _encoded(batches: Sequence[pa.RecordBatch], compression: str | None = None) -> bytes:
    """Return record batches of one schema as a stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _one_batch(columns: Callable[[], Mapping[str, Any]], compression: str | None = None) -> bytes:
    return _encoded([pa.record_batch(dict(columns()))], compression)


def _keys(keys: Sequence[str] = ("a#",)) -> dict[str, Any]:
    """Return a column that repeats keys, with different numbers in place of `#`."""
    return {"key": pa.array([keys[n % len(keys)].replace("#", str(n)) for n in range(OPERATIONS)])}


def _repeated(value: Any) -> pa.Array:
    """Return a dictionary whose rows all refer to its one value."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * OPERATIONS, pa.int32()), value)


def _shared() -> pa.Array:
    return pa.array(["k" * (BODY_BYTES // 20)])


def _views() -> pa.Array:
    """Return an array of views that share one copy of a text."""
    text = b"k" * (BODY_BYTES // 20)
    view = struct.pack("<i4sii", len(text), text[:4], 0, 0)
    buffers = [None, pa.py_buffer(view * OPERATIONS), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string_view(), OPERATIONS, buffers)


def _values(text: bytes) -> dict[str, Any]:
    return {**_keys(), "value": pa.array([text] * OPERATIONS)}


def _updates(key: str, name: str) -> dict[str, Any]:
    update = pa.array([UPDATES[name](ROOM_BYTES)] * OPERATIONS)
    return {**_keys((key,)), "update": update, "default": pa.array(["{}"] * OPERATIONS)}


def _etags() -> dict[str, Any]:
    return {**_keys(("a",)), "value": pa.array(["{}"] * OPERATIONS), "if_match": pa.array(["e" * 1500] * OPERATIONS)}


def _partitions() -> dict[str, Any]:
    items = pa.array([0] * (BODY_BYTES // 2), pa.int8())
    lists = pa.ListArray.from_arrays(pa.array([0, len(items)], pa.int32()), items)
    return {"key": ["a"], "value": ["{}"], "partitions": lists}


COLUMNS: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "get runs of one long text": lambda: {"key": pa.RunEndEncodedArray.from_arrays([OPERATIONS], _shared())},
    "get views of one long text": lambda: {"key": _views()},
    "get too many rows of nothing": lambda: {"key": pa.nulls(2**30, pa.null())},
    "put few, one string, escapes": lambda: {
        "key": ["a"] * 15,
        "value": [VALUES["one string, escapes"](2**20 - 4096)] * 15,
    },
    "put many, [[[]], ...]": lambda: _values(VALUES["[[[]], ...]"](ROOM_BYTES)),
    "put a dictionary of one value": lambda: {
        **_keys(),
        "value": _repeated(pa.array([VALUES["[1.0, ...]"](ROOM_BYTES)])),
    },
    "put faulty values": lambda: _values(b"[" * ROOM_BYTES),
    "put long etags": _etags,
    "put many columns": lambda: {"key": ["a"], **{f"c{n}": pa.array(["a"]) for n in range(20_000)}},
    "put wide struct": lambda: {"key": pa.array([{f"p{n}": "a" for n in range(20_000)}])},
    "update one key, array of {}": partial(_updates, "u", "array of {}"),
    "update one key, $set, many deep paths apart": partial(_updates, "u", "$set, many deep paths apart"),
    "update one key, merge patch, deep": partial(_updates, "u", "merge patch, deep"),
    "update keys, array of $addToSet": partial(_updates, "u#", "array of $addToSet"),
}
"""Columns of one record batch."""

COMPRESSED: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "get a dictionary of structs": lambda: {"key": _repeated(pa.StructArray.from_arrays([_shared()], ["a"]))},
    "get zeros": lambda: {"key": ["\x00" * (BODY_BYTES - 1024)]},
    "get too much": lambda: {"key": ["\x00" * (BODY_BYTES * 16)]},
    "put long partitions": _partitions,
}
"""Columns of one compressed record batch."""


def _empty_batches() -> bytes:
    none = pa.record_batch({"key": pa.array([], pa.utf8())})
    one, two = _encoded([none]), _encoded([none, none])
    head, message = len(one) - 8 - (len(two) - len(one)), two[len(one) - 8 : len(two) - 8]
    return one[:head] + message * ((BODY_BYTES - len(one)) // len(message)) + one[-8:]


def _batches_of_a_dictionary() -> bytes:
    return _encoded([pa.record_batch({"key": pa.array([f"a{n}"]).dictionary_encode()}) for n in range(OPERATIONS)])


STREAMS: Mapping[str, Callable[[], bytes]] = {
    "get empty batches": _empty_batches,
    "get many batches of a dictionary": _batches_of_a_dictionary,
    "get no stream": lambda: b"\xff\xff\xff\xff" + b"a" * (BODY_BYTES - 4),
}
"""Streams of several record batches, and one that is none."""
