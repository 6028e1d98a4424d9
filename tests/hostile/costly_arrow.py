"""The largest Arrow batches of each shape within the limits, for one table."""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hostile import shapes
from hostile.bounds import Bounds
from hostile.costly import JSON, MANY, Input
from hostile.costs import Sent
from hostile.shapes import within

ARROW = {**JSON, "Content-Type": "application/vnd.apache.arrow.stream"}


def stream(batches: Sequence[pa.RecordBatch], compression: str | None = None, **metadata: str) -> bytes:
    """Return record batches of one schema as a stream."""
    sink = pa.BufferOutputStream()
    schema = batches[0].schema.with_metadata(metadata or None)
    options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(metadata or None))
    return bytes(sink.getvalue())


def batch(**columns: Any) -> pa.RecordBatch:
    """Return a record batch."""
    return pa.record_batch(columns)


def arrow(bounds: Bounds) -> Iterator[Input]:
    """Return every input of batches as Arrow."""
    path = f"/v1/tables/{bounds.table}/batch"
    for query, shaped in (("op=get", _gets), ("op=put", _puts), ("op=update", _updates), ("op=put", _others)):
        for name, make in shaped(bounds):
            yield Input(f"Arrow {query} {name}", partial(_sent, f"{path}?{query}", make, bounds.body_bytes))
    for key in ("large-#", "text", "members"):
        keys = [key.replace("#", str(number)) for number in range(MANY if "#" in key else 1)]
        for fields in ("", "&fields=1"):
            rows = pa.array([keys[number % len(keys)] for number in range(bounds.operations)])
            yield Input(
                f"Arrow op=get {key}{fields}",
                partial(_sent, f"{path}?op=get{fields}", partial(stream, [batch(key=rows)])),
                tuple(keys),
            )


def _sent(path: str, make: Callable[[], bytes], expanded_bytes_max: int = 0) -> Sent:
    body = make()
    return Sent("POST", path, body, ARROW, min(expanded_bytes_max, _expanded_bytes(body)))


def _expanded_bytes(body: bytes) -> int:
    """Return the size of a stream after decompression, with the texts of a dictionary counted for each row."""
    try:
        table = pa.ipc.open_stream(body).read_all()
    except pa.ArrowException:
        return 0
    return int(table.nbytes) + sum(_dictionary_bytes(chunk) for column in table.columns for chunk in column.chunks)


def _dictionary_bytes(chunk: pa.Array) -> int:
    if not pa.types.is_dictionary(chunk.type) or not _has_lengths(chunk.type.value_type):
        return 0
    return pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0


def _has_lengths(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


Rows = Iterator[tuple[str, Callable[[], bytes]]]
"""Streams by the names of their shapes."""


def _stream(compression: str | None = None, **columns: Any) -> Callable[[], bytes]:
    """Return a function that makes a stream of one record batch."""
    return lambda: stream([batch(**columns)], compression)


def _repeated(value: pa.Array, count: int) -> pa.Array:
    """Return a dictionary whose rows all refer to its one value."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), value)


def _struct(part: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([part], ["a"])


def _gets(bounds: Bounds) -> Rows:
    count, shared = bounds.operations, "k" * (bounds.body_bytes // 20)
    one = pa.array([shared])
    yield "one key", _stream(key=pa.array(["a"] * count))
    yield "keys", _stream(key=pa.array([f"a{n}" for n in range(count)]))
    yield "long keys", _stream(key=pa.array([f"{n:01023d}" for n in range(count)]))
    for name, key in {
        "a dictionary of one long text": _repeated(one, count),
        "a dictionary of structs": _repeated(_struct(one), count),
        "structs of dictionaries": _struct(_repeated(one, count)),
        "a dictionary of structs of dictionaries": _repeated(_struct(_repeated(one, 1)), count),
        "a dictionary of lists": _repeated(pa.array([["k"] * 100_000]), count),
    }.items():
        yield name, _stream("zstd", key=key)
    yield "runs of one long text", _stream(key=pa.RunEndEncodedArray.from_arrays(pa.array([count], pa.int32()), one))
    yield "views of one long text", _stream(key=_views(shared, count))
    yield "empty batches", lambda: _empty(bounds, batch(key=pa.array([], pa.utf8())))
    yield "batches of one row", lambda: stream([batch(key=pa.array([f"a{n}"])) for n in range(count)])
    yield "too many rows", lambda: stream([batch(key=pa.nulls(bounds.body_bytes // 8, pa.utf8()))])
    yield "too many rows of nothing", lambda: stream([batch(key=pa.nulls(2**30, pa.null()))])
    yield "zeros, zstd", lambda: stream([batch(key=pa.array(["\x00" * (bounds.body_bytes - 1024)]))], "zstd")
    yield "too much, zstd", lambda: stream([batch(key=pa.array(["\x00" * (bounds.body_bytes * 16)]))], "zstd")


def _views(text: str, count: int) -> pa.Array:
    """Return an array of views that share one copy of a text."""
    data = pa.py_buffer(text.encode())
    view = struct.pack("<i4sii", len(text), text[:4].encode(), 0, 0)
    return pa.Array.from_buffers(pa.string_view(), count, [None, pa.py_buffer(view * count), data])


def _empty(bounds: Bounds, none: pa.RecordBatch) -> bytes:
    one, two = stream([none]), stream([none, none])
    head, message = len(one) - 8 - (len(two) - len(one)), two[len(one) - 8 : len(two) - 8]
    count = (bounds.body_bytes - len(one)) // len(message)
    return one[:head] + message * count + one[-8:]


def _puts(bounds: Bounds) -> Rows:
    count, room_bytes = bounds.operations, bounds.body_bytes // bounds.operations - 100
    keys = pa.array([f"a{number}" for number in range(count)])
    for name, shape in shapes.VALUES.items():

        def few(shape: shapes.Shape = shape) -> bytes:
            value = within(shape, bounds.elements, bounds.value_bytes - 4096)
            rows = max(1, (bounds.body_bytes - 4096) // (len(value) + 100))
            return stream([batch(key=pa.array(["a"] * rows), value=pa.array([value] * rows))])

        def many(shape: shapes.Shape = shape, compression: str | None = None) -> bytes:
            return stream([batch(key=keys, value=pa.array([shape(room_bytes)] * count))], compression)

        yield f"few, {name}", few
        yield f"many, {name}", many
        yield f"many, {name}, zstd", partial(many, compression="zstd")
    numbers = shapes.VALUES["[1.0, ...]"]
    large, small = (pa.array([numbers(size)]) for size in (bounds.body_bytes // 2, room_bytes))
    yield "a dictionary of one large value", _stream(key=keys, value=_repeated(large, count))
    yield "a dictionary of one value", _stream(key=keys, value=_repeated(small, count))
    yield "one key", _stream(key=pa.array(["a"] * count), value=pa.array(['{"a":1.0}'] * count))
    yield "no values", _stream(key=keys, value=pa.nulls(count, pa.binary()))
    yield "faulty values", _stream(key=keys, value=pa.array([b"[" * room_bytes] * count))


def _updates(bounds: Bounds) -> Rows:
    count, room_bytes = bounds.operations, bounds.body_bytes // bounds.operations - 100
    for where, keys in (("one key", ["u"] * count), ("keys", [f"u{number}" for number in range(count)])):
        for name, shape in shapes.updates(count).items():
            if "$each" in name and name not in ("$addToSet, $each integers", "$push, $each 1"):
                continue

            def make(shape: shapes.Shape = shape, keys: list[str] = keys) -> bytes:
                update, default = pa.array([shape(room_bytes)] * count), pa.array(["{}"] * count)
                return stream([batch(key=pa.array(keys), update=update, default=default)])

            yield f"{where}, {name}", make


def _others(bounds: Bounds) -> Rows:
    count, size = bounds.operations, bounds.body_bytes
    key = pa.array(["a"])
    integers = pa.array([0] * (size // 2), pa.int8())
    partitions = pa.ListArray.from_arrays(pa.array([0, len(integers)], pa.int32()), integers)
    wide = pa.StructArray.from_arrays([key] * 20_000, [f"p{n}" for n in range(20_000)])
    yield "many columns", _stream(key=key, **{f"c{n}": key for n in range(20_000)})
    yield "long names", _stream(key=key, **{"n" * (size // 4): key})
    yield "long metadata", lambda: stream([batch(key=key)], a="m" * (size // 2))
    yield "deep types", lambda: stream([batch(key=_deep(60))])
    yield "wide struct", _stream(key=wide)
    yield "long partitions, zstd", _stream("zstd", key=key, value=pa.array(["{}"]), partitions=partitions)
    etags = {"value": pa.array(["{}"] * count), "if_match": pa.array(["e" * 1500] * count)}
    yield "long etags", _stream(key=pa.array(["a"] * count), **etags)
    rows = [batch(key=pa.array([f"a{n}"]).dictionary_encode(), value=pa.array(["{}"])) for n in range(count)]
    yield "many batches of a dictionary", partial(stream, rows)
    yield "no stream", lambda: b"\xff\xff\xff\xff" + b"a" * (size - 4)
    yield "blanks", lambda: bytes(size)


def _deep(depth: int) -> pa.Array:
    column: pa.Array = pa.array(["a"])
    for _ in range(depth):
        column = pa.StructArray.from_arrays([column], ["a"])
    return column
