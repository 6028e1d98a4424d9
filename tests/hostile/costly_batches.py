"""The largest JSON batches of each shape within the limits, for one table."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from hostile import shapes
from hostile.bounds import Bounds
from hostile.costly import JSON, MANY, Input, sized
from hostile.costs import Sent
from hostile.shapes import Shape, filled, names, repeated, within


def batches(bounds: Bounds) -> Iterator[Input]:
    """Return every input of batches as JSON."""
    for name, operations in _operations(bounds).items():
        yield Input(f"batch {name}", partial(_batch, bounds, operations))
    for name in ("[1.0, ...]", "[[[]], ...]", '{"0":1, "1":1, ...}', "[strings of 1 KB, ...]", "one string"):
        yield Input(f"batch put, few, {name}", partial(_few, bounds, shapes.VALUES[name]))
    for name, key, operation in _of_large(bounds):
        keys = [key.replace("#", str(number)) for number in range(MANY if "#" in key else 1)]
        texts = [operation.replace(b"KEY", each.encode()) for each in keys]
        many = [texts[number % len(texts)] for number in range(bounds.operations)]
        yield Input(f"batch {name}", partial(_batch, bounds, many.__iter__), tuple(keys))
    for name, shape in _envelopes().items():
        yield Input(f"batch {name}", partial(sized, _path(bounds), shape, bounds.body_bytes))


def _batch(bounds: Bounds, operations: Callable[[], Iterable[bytes]]) -> Sent:
    body = filled(b'{"operations":[', operations(), b"]}", bounds.body_bytes)
    return Sent("POST", _path(bounds), body, JSON)


def _few(bounds: Bounds, shape: Shape) -> Sent:
    """Return as many of the largest puts as fit."""
    value = within(shape, bounds.elements - 10, bounds.value_bytes // 4)
    return _batch(
        bounds, lambda: (b'{"op":"put","key":"few%d","value":%b}' % (n, value) for n in range(bounds.operations))
    )


def _path(bounds: Bounds) -> str:
    return f"/v1/tables/{bounds.table}/batch"


def _operations(bounds: Bounds) -> Mapping[str, Callable[[], Iterator[bytes]]]:
    """Return as many operations as a batch may have, by name. Sized ones fill the body together."""
    count, room_bytes = bounds.operations, bounds.operation_bytes

    def each(text: bytes, sized: Shape | None = None) -> Callable[[], Iterator[bytes]]:
        filling = sized(room_bytes - len(text) - 4) if sized else b""
        return lambda: (text.replace(b"#", b"%d" % number).replace(b"SIZED", filling) for number in range(count))

    put, update = b'{"op":"put","key":"b#","value":SIZED}', b'{"op":"update","key":"b#","update":SIZED,"default":{}}'
    one = shapes.updates(count)
    deep = partial(shapes.VALUES["[[[]], ...]"])
    return {
        "get, one key": each(b'{"op":"get","key":"b"}'),
        "get, absent keys": each(b'{"op":"get","key":"absent#"}'),
        "get, fields": each(b'{"op":"get","key":"b#","fields":SIZED}', partial(repeated, b'"a"', head=b"[", tail=b"]")),
        "get, long keys": each(b'{"op":"get","key":"SIZED"}', lambda _: b"k" * (bounds.key_bytes - 6) + b"#"),
        **{f"put, keys, {name}": each(put, shape) for name, shape in shapes.VALUES.items() if len(name) < 20},
        "put, one key": each(put.replace(b"b#", b"b"), shapes.VALUES["[1.0, ...]"]),
        "put and update, one key": each(
            b'{"op":"put","key":"b","value":{}},{"op":"update","key":"b","update":{"a":#}}'
        ),
        "put, tokens": each(
            b'{"op":"put","key":"b#","value":SIZED,"token":{"writer":"w","sequence":#}}', shapes.VALUES["[1, ...]"]
        ),
        "put, one key, tokens": each(b'{"op":"put","key":"b","value":{},"token":{"writer":"w#","sequence":#}}'),
        "update, one key, small": each(b'{"op":"update","key":"b","update":{"$set":{"a":#}},"default":{}}'),
        "update, one key, paths": each(b'{"op":"update","key":"b","update":{"$set":{"a#":#}},"default":{}}'),
        "update, one key, $addToSet": each(b'{"op":"update","key":"add","update":{"$addToSet":{"a":#}},"default":{}}'),
        "update, one key, $push": each(b'{"op":"update","key":"pushed","update":{"$push":{"a":#}},"default":{}}'),
        "update, one key, returned": each(
            b'{"op":"update","key":"returned","update":{"$push":{"a":#}},"default":{},"return":true}'
        ),
        "update, one key, if_match": each(b'{"op":"update","key":"b","update":{"a":#},"if_match":"x"}'),
        **{
            f"update, {where}, {name}": each(update.replace(b"b#", key), shape)
            for where, key in (("one key", b"u"), ("keys", b"u#"))
            for name, shape in one.items()
            if name
            in (
                *("$set, many paths", "$set, many deep paths", "$set, many deep paths apart", "$push, $each 1"),
                *("$addToSet, $each integers", "$addToSet, $each {}", "merge patch, deep"),
                *("array of $addToSet", "array of $push", "array of merge patches", "$unset, many paths"),
            )
        },
        "update, defaults": each(b'{"op":"update","key":"d#","update":{"$inc":{"n":1}},"default":SIZED}', deep),
        "delete, absent keys": each(b'{"op":"delete","key":"absent#"}'),
        "delete, tokens": each(b'{"op":"delete","key":"gone#","token":{"writer":"w","sequence":#}}'),
        "unknown operations": each(b'{"op":"what","key":"b#"}'),
        "numbers for operations": each(b"#"),
        "unknown members": each(b'{"op":"get","key":"b#","m":SIZED}', partial(repeated, b"[]", head=b"[", tail=b"]")),
        "partitions": each(
            b'{"op":"get","key":"b#","partitions":SIZED}', partial(repeated, b"0", head=b"[", tail=b"]")
        ),
    }


def _of_large(bounds: Bounds) -> Iterator[tuple[str, str, bytes]]:
    """Return operations on large records: the name, the keys and the operation."""
    get = b'{"op":"get","key":"KEY"%b}'
    yield "get, one large record", "text", get % b""
    yield "get, large records", "large-#", get % b""
    yield "get, one large record, one field", "members", get % b',"fields":["1"]'
    yield "get, large records, one field", "large-#", get % b',"fields":["1"]'
    yield "get, large records, absent fields", "large-#", get % b',"fields":["none"]'
    yield (
        "update, one large record, returned",
        "members",
        (b'{"op":"update","key":"KEY","update":{"$inc":{"z":1}},"return":true}'),
    )
    yield (
        "update, large records, returned, one field",
        "large-#",
        (b'{"op":"update","key":"KEY","update":{"$inc":{"z":1}},"return":true,"fields":["z"]}'),
    )
    yield "update, large records, tokens", "large-#", b'{"op":"update","key":"KEY","update":{"$inc":{"z":1}}}'


def _envelopes() -> Mapping[str, Shape]:
    head, tail = b'{"operations":[', b"]}"
    get = b'{"op":"get","key":'
    pieces = {"{}": b"{}", "[]": b"[]", "1": b"1", "gets": b'{"op":"get","key":"a"}', "[[]]": b"[[]]"}
    return {
        **{f"of too many: {name}": partial(repeated, piece, head=head, tail=tail) for name, piece in pieces.items()},
        **{f"without end: {name}": partial(repeated, piece, head=head, tail=b"") for name, piece in pieces.items()},
        "a key of many parts": partial(repeated, b'"a"', head=head + get + b"[", tail=b"]}]}"),
        "a key of many arrays": partial(repeated, b"[]", head=head + get + b"[", tail=b"]}]}"),
        "a long key": lambda size: head + get + b'"' + b"k" * (size - 100) + b'"}]}',
        "many fields": partial(repeated, b'"a"', head=head + get + b'"a","fields":[', tail=b"]}]}"),
        "many members": lambda size: filled(head + b"{", (b'"%b":1' % n for n in names()), b"}]}", size),
        "another member": partial(repeated, b"[[]]", head=b'{"operations":[],"a":[', tail=b"]}"),
        "an operation inside": partial(
            repeated, b"[[]]", head=head + get + b'"a"},{"op":"put","key":"b","value":{"a":[', tail=b"]}}]}"
        ),
        "no object": partial(repeated, b"[[]]", head=b"[", tail=b"]"),
        "blanks": lambda size: head + b" " * (size - 100) + tail,
    }
