"""JSON texts of a given size that are costly for their size, by name."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice

from tableside.core.updates import CHANGES_MAX, PATH_NAMES_MAX
from tableside.core.values import DEPTH_MAX, ELEMENTS_MAX

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


def repeated(piece: bytes, size_bytes: int, head: bytes = b'{"a":[', tail: bytes = b"]}") -> bytes:
    """Return one piece as often as it fits."""
    count = (size_bytes - len(head) - len(tail) + 1) // (len(piece) + 1)
    return head + b",".join([piece] * max(0, count)) + tail


def long(character: bytes, size_bytes: int, head: bytes = b'{"a":"', tail: bytes = b'"}') -> bytes:
    """Return one character as often as it fits."""
    return head + character * ((size_bytes - len(head) - len(tail)) // len(character)) + tail


def within(shape: Shape, size_bytes: int, elements_max: int = ELEMENTS_MAX - 10) -> bytes:
    """Return the text of a shape of at most this size. Elements are limited by counting commas and opening brackets."""
    text = shape(size_bytes)
    while (count := sum(map(text.count, (b",", b"[", b"{")))) > elements_max:
        text = shape(int(len(text) * elements_max / count) - 16)
    return text


def numbered(text: bytes, count: int | None = None) -> Iterator[bytes]:
    """Return a text with 0, 1, … in place of `#`."""
    return (text.replace(b"#", b"%d" % number) for number in islice(itertools.count(), count))


def each(text: bytes, head: bytes, tail: bytes, count: int | None = None) -> Shape:
    """Return a shape with as many numbered texts as fit, between head and tail."""
    return lambda size_bytes: filled(head, numbered(text, count), tail, size_bytes)


def array_of(text: bytes) -> Shape:
    """Return a shape for an array of as many changes as an update may have."""
    return each(text, b"[", b"]", CHANGES_MAX)


def paths(operator: bytes, path: bytes, operand: bytes = b"1") -> Shape:
    """Return a shape for an operator on many paths."""
    count = PATH_NAMES_MAX // (path.count(b".") + 1)
    return each(b'"%b":%b' % (path, operand), b'{"%b":{' % operator, b"}}", count)


DEEP = b'{"a":' * (DEPTH_MAX - 2) + b"1" + b"}" * (DEPTH_MAX - 2)
MEMBERS = each(b'"#":1', b"{", b"}")
INTEGERS = each(b"#", b'{"a":[', b"]}")

VALUES: Mapping[str, Shape] = {
    "[1.0, ...]": partial(repeated, b"1.0"),
    "[[[]], ...]": partial(repeated, b"[[]]"),
    "[doubles of 17 digits, ...]": partial(repeated, b"1.2345678901234567e-300"),
    "[doubles of 1,000 digits, ...]": partial(repeated, b"0." + b"1" * 1000),
    "[objects, deep, ...]": partial(repeated, DEEP),
    "[strings of 1 KB, ...]": partial(repeated, b'"%b"' % (b"s" * 1000)),
    '{"0":1, "1":1, ...}': MEMBERS,
    "names of 1 KB": each(b'"#%b":1' % (b"n" * 1000), b"{", b"}"),
    '{"a":1, "a":1, ...}': partial(repeated, b'"a":1', head=b"{", tail=b"}"),
    "one string": partial(long, b"s"),
    "one string, escapes": partial(long, b"\\n"),
    "one string with an emoji": partial(long, b"s", head='{"a":"😀'.encode()),
    "blanks": partial(long, b" ", head=b"{", tail=b"}"),
}
"""Legal values."""

FAULTY: Mapping[str, Shape] = {
    "no end": partial(repeated, b"1", tail=b""),
    "no UTF-8 at the end": partial(long, b"s", tail=b'\xff"}'),
    "a lone surrogate at the end": partial(long, b"s", tail=b'\\ud800"}'),
    "too deep at the end": partial(repeated, b"1", tail=b"," + b"[" * DEPTH_MAX + b"]" * DEPTH_MAX + b"]}"),
    "no depth's end": partial(long, b"[", head=b'{"a":', tail=b""),
    "an integer without end": partial(long, b"9", head=b'{"a":', tail=b"}"),
}
"""Texts that turn out to be invalid only near their end."""

UPDATES: Mapping[str, Shape] = {
    "$set, many paths": paths(b"$set", b"#"),
    "$set, many deep paths apart": paths(b"$set", b"#" + b".a" * (DEPTH_MAX - 2)),
    "$set, a path and its parent": each(b'"p#.a":1', b'{"$set":{', b',"p0":1}}', PATH_NAMES_MAX // 2 - 1),
    "$set, one path of many names": lambda size: b'{"$set":{"' + b"a." * (size // 2 - 10) + b'a":1}}',
    "$unset, array": each(b'"#"', b'{"$unset":[', b"]}", PATH_NAMES_MAX),
    "$inc, many paths": paths(b"$inc", b"#"),
    "$min, many paths": paths(b"$min", b"#", b'"a"'),
    "$push, $each {}": partial(repeated, b"{}", head=b'{"$push":{"a":{"$each":[', tail=b"]}}}"),
    "$push, $sort": each(b'{"at":#}', b'{"$push":{"a":{"$each":[', b'],"$sort":{"at":-1}}}}'),
    "$addToSet, $each integers": each(b"#", b'{"$addToSet":{"a":{"$each":[', b"]}}}"),
    "$pull, $in integers": each(b"#", b'{"$pull":{"l":{"$in":[', b"]}}}"),
    "array of {}": partial(repeated, b"{}", head=b"[", tail=b"]"),
    "array of $push": array_of(b'{"$push":{"l":1}}'),
    "array of $addToSet": array_of(b'{"$addToSet":{"l":#}}'),
    "array of merge patches": array_of(b'{"a":{"b":{"c#":1}}}'),
    "merge patch, deep": each(b'"#":' + DEEP, b"{", b"}"),
}
"""Updates that apply to almost any value."""


def _changes(text: bytes) -> bytes:
    return b'{"update":[%b]}' % b",".join(numbered(text, CHANGES_MAX))


SMALL_UPDATES: Mapping[str, bytes] = {
    "$set": b'{"update":{"$set":{"z":1}}}',
    "many $addToSet and $set": _changes(b'{"$addToSet":{"a":-#},"$set":{"z":#}}'),
    "many $push": _changes(b'{"$push":{"a":#}}'),
}
"""Bodies of updates whose cost depends on the record."""
