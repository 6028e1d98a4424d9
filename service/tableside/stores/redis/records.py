"""How Redis holds a record: the value's JSON text, and after it sixteen characters of JSON whitespace.

The whitespace is a fixed mark of four and a random run of twelve. A JSON parser does not see it. It makes the bytes
differ with every write, so that their digest is an exact etag without a version kept beside the value; and it tells
that the text is canonical. Text without it was written by another tool and is read as JSON.

What is remembered of writers is JSON in a side key: `[1, ["writer", sequence], ...]`, the latest last, beside a record,
and the same with 0 where a record was deleted. Knows nothing of Redis's commands.
"""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import msgspec
from xxhash import xxh3_128_hexdigest

from ...core import Outcome, Record, RecordUnreadable, Stored, TableError, encode, parse

Writers = tuple[tuple[str, int], ...]

_MARK = b"\r\t\r\t"
_RUN_LENGTH = 12
_TAIL = len(_MARK) + _RUN_LENGTH
_END = b"}" + _MARK
_HALF_RUNS = [bytes(run) for run in itertools.product(b" \t\n\r", repeat=_RUN_LENGTH // 2)]
_HALF = len(_HALF_RUNS)

_OTHER_TYPE = "the record was written by something else: the key holds no string"
_NO_OBJECT = "the record was written by something else, and is no legal JSON object"
_NO_WRITERS = "what the store remembers of the record's writers was written by something else"


def pack(value: bytes) -> bytes:
    """Return what to keep for a value: other bytes each time."""
    first, second = divmod(random.getrandbits(24), _HALF)
    return b"".join((value, _MARK, _HALF_RUNS[first], _HALF_RUNS[second]))


def etag_of(raw: bytes) -> str:
    """Return the version of a record."""
    return xxh3_128_hexdigest(raw)


def read_all(raws: Sequence[bytes | None]) -> list[Outcome]:
    """Return what Gets answer for records that do not expire; no call for each of the usual ones."""
    digest, end, start, stop = xxh3_128_hexdigest, _END, -_TAIL - 1, -_RUN_LENGTH
    return [
        None
        if raw is None
        else Record(raw[:-_TAIL], digest(raw))
        if raw[start:stop] == end and raw[:1] == b"{"
        else read(raw, 0)
        for raw in raws
    ]


def read(raw: bytes | None, expires_ms: int) -> Record | TableError | None:
    """Return what a Get answers."""
    if raw is None:
        return None
    try:
        return Record(_value(raw), xxh3_128_hexdigest(raw), expires_ms)
    except RecordUnreadable as error:
        return error


def stored(raw: bytes | None, expires_ms: int, memory: bytes | None) -> Stored | RecordUnreadable | None:
    """Return what a write starts from: a record, with what is remembered of its writers where that was asked for."""
    try:
        deleted, writers = _writers(memory)
        if raw is not None:
            return Stored(_value(raw), xxh3_128_hexdigest(raw), expires_ms, writers)
    except RecordUnreadable as error:
        return error
    # Beside no record only what a delete left counts: a record that has expired has taken its memory with it.
    return Stored(None, "", 0, writers) if deleted and writers else None


def other_type() -> RecordUnreadable:
    """Return the error about a key that holds a list, a hash or the like."""
    return RecordUnreadable(_OTHER_TYPE)


def pack_writers(writers: Writers, *, deleted: bool) -> bytes:
    """Return what to keep in a side key."""
    return msgspec.json.encode([0 if deleted else 1, *writers])


def _value(raw: bytes) -> bytes:
    if raw[-_TAIL - 1 : -_RUN_LENGTH] == _END and raw[:1] == b"{":
        return raw[:-_TAIL]
    try:
        return encode(parse(raw))
    except TableError:
        raise RecordUnreadable(_NO_OBJECT) from None


def _writers(memory: bytes | None) -> tuple[bool, Writers]:
    if not memory:
        return False, ()
    try:
        deleted, *writers = msgspec.json.decode(memory)
        return deleted == 0, tuple(_checked_writer(*writer) for writer in writers)
    except (msgspec.DecodeError, TypeError, ValueError):
        raise RecordUnreadable(_NO_WRITERS) from None


def _checked_writer(name: Any, sequence: Any) -> tuple[str, int]:
    if type(name) is not str or type(sequence) is not int:
        raise ValueError
    return name, sequence
