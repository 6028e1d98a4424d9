"""JSON texts of a given size that are costly for their size, by name."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice

from tableside.core.updates import PATH_NAMES_MAX
from tableside.core.values import DEPTH_MAX

Shape = Callable[[int], bytes]
"""Returns a text of at most about this size in bytes."""


def filled(head: bytes, pieces: Iterable[bytes], tail: bytes, size_bytes: int) -> bytes:
    """Return head, as many of the pieces as fit, joined by commas, and tail."""
    taken, left_bytes = [], size_bytes - len(head) - len(tail) + 1
    for piece in pieces:
        left_bytes -= len(piece) + 1
        if left_bytes < 0:
            break
        taken.append(piece)
    return head + b",".join(taken) + tail


def within(shape: Shape, elements_max: int, size_bytes: int) -> bytes:
    """Return the text of a shape of at most this size. Elements are limited by counting commas and opening brackets."""
    text = shape(size_bytes)
    while (count := sum(map(text.count, (b",", b"[", b"{")))) > elements_max:
        text = shape(int(len(text) * elements_max / count) - 16)
    return text


def repeated(piece: bytes, size_bytes: int, head: bytes = b'{"a":[', tail: bytes = b"]}") -> bytes:
    """Return one piece as often as it fits."""
    count = (size_bytes - len(head) - len(tail) + 1) // (len(piece) + 1)
    return head + b",".join([piece] * max(0, count)) + tail


def names(length: int = 0) -> Iterator[bytes]:
    """Return names that differ."""
    number = 0
    while True:
        yield b"%x" % number if not length else b"%x" % number + b"n" * (length - len(b"%x" % number))
        number += 1


def _members(name_bytes: int, value: bytes, size_bytes: int) -> bytes:
    return filled(b"{", (b'"%b":%b' % (name, value) for name in names(name_bytes)), b"}", size_bytes)


def _long(character: bytes, size_bytes: int, head: bytes = b'{"a":"', tail: bytes = b'"}') -> bytes:
    return head + character * ((size_bytes - len(head) - len(tail)) // len(character)) + tail


def _nested(opening: bytes, closing: bytes, depth: int) -> bytes:
    return opening * depth + b"1" + closing * depth


ELEMENTS: Mapping[str, bytes] = {
    **{text: text.encode() for text in ("1", "1.0", "1.5", "-0.0", "1e2", "null", "true", '""', '"a"', '"ü"')},
    **{text: text.encode() for text in ("[]", "[[]]", "{}", '{"a":1}', '{"a":{}}', '{"a":[1.0]}')},
    "integers of 19 digits": b"1234567890123456789",
    "doubles of 17 digits": b"1.2345678901234567e-300",
    "doubles of 1,000 digits": b"0." + b"1" * 1000,
    "escapes": b'"\\u00fc\\n"',
    "arrays, deep": _nested(b"[", b"]", DEPTH_MAX - 2),
    "objects, deep": _nested(b'{"a":', b"}", DEPTH_MAX - 2),
    "strings of 1 KB": b'"%b"' % (b"s" * 1000),
}
"""Elements of an array."""

VALUES: Mapping[str, Shape] = {
    **{f"[{name}, ...]": partial(repeated, piece) for name, piece in ELEMENTS.items()},
    '{"0":1, "1":1, ...}': partial(_members, 0, b"1"),
    '{"0":{"a":1}, ...}': partial(_members, 0, b'{"a":1}'),
    "names of 1 KB": partial(_members, 1000, b"1"),
    '{"a":1, "a":1, ...}': partial(repeated, b'"a":1', head=b"{", tail=b"}"),
    "one string": partial(_long, b"s"),
    "one string, escapes": partial(_long, b"\\n"),
    "one string with an emoji": partial(_long, b"s", head='{"a":"😀'.encode()),
    "blanks": partial(_long, b" ", head=b"{", tail=b"}"),
}
"""Legal values."""

FAULTY: Mapping[str, Shape] = {
    "no end": partial(repeated, b"1", tail=b""),
    "no UTF-8 at the end": partial(_long, b"s", tail=b'\xff"}'),
    "a lone surrogate at the end": partial(_long, b"s", tail=b'\\ud800"}'),
    "too large a number at the end": partial(repeated, b"1", tail=b",1e400]}"),
    "too large an integer at the end": partial(repeated, b"1", tail=b",99999999999999999999]}"),
    "too deep at the end": partial(repeated, b"1", tail=b"," + _nested(b"[", b"]", DEPTH_MAX) + b"]}"),
    "a reserved name at the end": partial(repeated, b"1", tail=b'],"_ts":1}'),
    "no depth's end": partial(_long, b"[", head=b'{"a":', tail=b""),
    "an integer without end": partial(_long, b"9", head=b'{"a":', tail=b"}"),
    "an array": partial(repeated, b"1", head=b"[", tail=b"]"),
}
"""Texts that turn out to be invalid only near their end."""


def _each(operator: bytes, piece: bytes, size_bytes: int) -> bytes:
    return repeated(piece, size_bytes, b'{"%b":{"a":{"$each":[' % operator, b"]}}}")


def _paths(operator: bytes, path: bytes, operand: bytes, size_bytes: int) -> bytes:
    """Return an operator on many paths with the same parents and different last names."""
    count = PATH_NAMES_MAX // (path.count(b".") + 1)
    pieces = (b'"%b%b":%b' % (path, name, operand) for name in islice(names(), count))
    return filled(b'{"%b":{' % operator, pieces, b"}}", size_bytes)


def _apart(operator: bytes, length: int, size_bytes: int) -> bytes:
    """Return an operator on many paths that have no parent in common."""
    pieces = (b'"%b%b":1' % (name, b".a" * (length - 1)) for name in islice(names(), PATH_NAMES_MAX // length))
    return filled(b'{"%b":{' % operator, pieces, b"}}", size_bytes)


def _changes(pieces: Iterable[bytes], size_bytes: int) -> bytes:
    return filled(b"[", pieces, b"]", size_bytes)


def _numbered(text: bytes, count: int) -> Iterator[bytes]:
    return (text.replace(b"#", b"%d" % number) for number in range(count))


def updates(changes_max: int) -> Mapping[str, Shape]:
    """Return updates that apply to almost any value. An array of updates has at most `changes_max` changes."""

    def many(text: bytes) -> Shape:
        return lambda size_bytes: _changes(_numbered(text, changes_max), size_bytes)

    return {
        "$set, many paths": partial(_paths, b"$set", b"", b"1"),
        "$set, many deep paths": partial(_paths, b"$set", b"a." * (DEPTH_MAX - 2), b"1"),
        "$set, many deep paths apart": partial(_apart, b"$set", DEPTH_MAX - 1),
        "$unset, many paths": partial(_paths, b"$unset", b"", b"1"),
        "$unset, array": lambda size: filled(
            b'{"$unset":[', (b'"%b"' % n for n in islice(names(), PATH_NAMES_MAX)), b"]}", size
        ),
        "$inc, many paths": partial(_paths, b"$inc", b"", b"1"),
        "$min, many paths": partial(_paths, b"$min", b"", b'"a"'),
        "$push, many paths": partial(_paths, b"$push", b"", b"1"),
        "$addToSet, many paths": partial(_paths, b"$addToSet", b"", b"[]"),
        "$set, one path of many names": lambda size: b'{"$set":{"' + b"a." * (size // 2 - 10) + b'a":1}}',
        "$set, a path and its parent at the end": lambda size: filled(
            b'{"$set":{', (b'"p%b.a":1' % n for n in islice(names(), PATH_NAMES_MAX // 2 - 1)), b',"p0":1}}', size
        ),
        "$set, one long string": partial(_long, b"s", head=b'{"$set":{"a":"', tail=b'"}}'),
        **{f"$push, $each {name}": partial(_each, b"$push", piece) for name, piece in ELEMENTS.items()},
        **{f"$addToSet, $each {name}": partial(_each, b"$addToSet", piece) for name, piece in ELEMENTS.items()},
        "$addToSet, $each integers": lambda size: filled(
            b'{"$addToSet":{"a":{"$each":[', names_as_text(), b"]}}}", size
        ),
        "array of {}": partial(repeated, b"{}", head=b"[", tail=b"]"),
        "array of $set, many paths": many(b'{"$set":{"a#":1}}'),
        "array of $inc": many(b'{"$inc":{"n":1}}'),
        "array of $push": many(b'{"$push":{"l":1}}'),
        "array of $addToSet": many(b'{"$addToSet":{"l":#}}'),
        "array of $addToSet, $set between": many(b'{"$addToSet":{"l":#},"$set":{"m":#}}'),
        "array of merge patches": many(b'{"a":{"b":{"c#":1}}}'),
        "array, a misfit at the end": lambda size: _changes(
            [*_numbered(b'{"$inc":{"n":1}}', min(changes_max - 1, size // 20)), b'{"$inc":{"s":1}}'], size
        ),
        "array, wrong at the end": lambda size: _changes(
            [*_numbered(b'{"$inc":{"n":1}}', min(changes_max - 1, size // 20)), b'{"$what":{"s":1}}'], size
        ),
        "merge patch, nulls": partial(_members, 0, b"null"),
        "merge patch, deep": lambda size: filled(
            b"{", (b'"%b":%b' % (n, _nested(b'{"a":', b"}", DEPTH_MAX - 1)) for n in names()), b"}", size
        ),
    }


def names_as_text() -> Iterator[bytes]:
    """Return integers that differ."""
    number = 0
    while True:
        yield b"%d" % number
        number += 1


def small_updates(changes_max: int) -> Mapping[str, bytes]:
    """Return small updates, whose cost depends only on the record."""
    count = min(10_000, changes_max)
    return {
        "$set": b'{"$set":{"z":1}}',
        "$inc": b'{"$inc":{"z":1}}',
        "$unset": b'{"$unset":["z"]}',
        "$push": b'{"$push":{"a":1}}',
        "$addToSet": b'{"$addToSet":{"a":-1}}',
        "merge patch": b'{"z":1}',
        f"{count} $addToSet": b"[" + b",".join(_numbered(b'{"$addToSet":{"a":-#}}', count)) + b"]",
        f"{count} $addToSet and $set": b"["
        + b",".join(_numbered(b'{"$addToSet":{"a":-#},"$set":{"z":#}}', count))
        + b"]",
        f"{count} $push": b"[" + b",".join(_numbered(b'{"$push":{"a":#}}', count)) + b"]",
        f"{count} $set of an array, $addToSet": b"["
        + b",".join(_numbered(b'{"$set":{"b":[#]}},{"$addToSet":{"b":#}}', count // 2))
        + b"]",
    }
