"""The format of a record in RocksDB: a short header, then the value's JSON text.

    byte 0        1, the format version
    byte 1        flags: 1 has an expiry, 2 has writers, 4 has no value (a tombstone with the writers' tokens)
    bytes 2-9     the record's version, big-endian. The etag is its hex digits
    if flag 1     8 bytes: the expiry in Unix milliseconds, big-endian
    if flag 2     1 byte: the number of writers. For each, 2 bytes of length, the name in UTF-8, 8 bytes of sequence
    remainder     the value

Bytes that begin with `{` are a record that another tool wrote. The etag of such a record is a digest of its bytes.
"""

import hashlib
import struct
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ...core import (
    Outcome,
    Record,
    RecordColumns,
    RecordUnreadable,
    Stored,
    TableError,
    TooLarge,
    column_of_equal_lengths,
    encode,
    etag_column,
    parse,
    text_of,
)

FORMAT_VERSION = 1
_EXPIRES, WRITERS, _NO_VALUE = 1, 2, 4
VERSION_END = 10
_PLAIN_HEADER = bytes([FORMAT_VERSION, 0])
_PLAIN_END = bytes([FORMAT_VERSION, 1])
"""The bytes of a record without expiry and writers are at least `_PLAIN_HEADER`, and less than this."""

_LONGEST = 2**31 - 1  # PyArrow 26 raises an error for a slice without an end.
_NO_VERSION = bytes(VERSION_END - 2)

_UNKNOWN_FORMAT = "another tool wrote the record, and it is not a JSON object"


def pack(stored: Stored) -> bytes:
    """Return the bytes of a record. `stored.etag` is 16 hex digits."""
    flags = (
        (_EXPIRES if stored.expires_ms else 0)
        | (WRITERS if stored.writers else 0)
        | (_NO_VALUE if stored.value is None else 0)
    )
    parts = [bytes([FORMAT_VERSION, flags]), bytes.fromhex(stored.etag)]
    if stored.expires_ms:
        parts.append(stored.expires_ms.to_bytes(8, "big"))
    if stored.writers:
        parts.append(bytes([len(stored.writers)]))
        parts.extend(_pack_writer(name, sequence) for name, sequence in stored.writers)
    return b"".join(parts) + (stored.value or b"")


def is_plain(raw: bytes) -> bool:
    """Return whether a record has no expiry, no writers and a value."""
    return raw[:2] == _PLAIN_HEADER


def pack_plain(value: bytes, version: int) -> bytes:
    """Return the bytes of a record without expiry and writers. Its etag is the version in hex digits."""
    return _PLAIN_HEADER + version.to_bytes(8, "big") + value


def pack_versions(versions: Sequence[int]) -> bytes:
    """Return the bytes of versions, one after another."""
    return struct.pack(f">{len(versions)}Q", *versions)


def pack_all_plain(values: pa.Array, versions: bytes) -> list[bytes]:
    """Return the bytes of a column of records without expiry and writers, from the bytes of their versions."""
    column = column_of_equal_lengths(versions, len(values), pa.binary())
    raws: list[bytes] = pc.binary_join_element_wise(_PLAIN_HEADER, column, values, b"").to_pylist()
    return raws


def pack_name(name: str) -> bytes:
    """Return the length and the bytes of a writer's name."""
    text = name.encode()
    return len(text).to_bytes(2, "big") + text


def unpack(raw: bytes) -> Stored:
    """Return the record from its bytes. Raise RecordUnreadable if they are not in this format and not a JSON object."""
    if raw[:1] == b"{":
        return _from_json(raw)
    try:
        return _from_format(raw)
    except (IndexError, UnicodeDecodeError):
        raise RecordUnreadable(_UNKNOWN_FORMAT) from None


def stored_for_write(raw: bytes | None) -> Stored | RecordUnreadable | None:
    """Return the current record for a write."""
    try:
        return None if raw is None else unpack(raw)
    except RecordUnreadable as error:
        return error.with_traceback(None)


def read_all(raws: Sequence[bytes | None], now_ms: int) -> list[Outcome]:
    """Return the outcomes of Gets. Like `read`, but makes no call for records without expiry and writers."""
    plain, end = _PLAIN_HEADER, _PLAIN_END
    # Two slices for all records: `raw[a:b]` makes one for each.
    value, version = slice(VERSION_END, None), slice(2, VERSION_END)
    return [
        Record(raw[value], raw[version].hex()) if raw is not None and plain <= raw < end else read(raw, now_ms)
        for raw in raws
    ]


def read_columns(raws: Sequence[bytes | None]) -> RecordColumns | None:
    """Return the outcomes of Gets, or None if a record has an expiry or writers, was cut off, or is of another tool."""
    column = pa.array(raws, pa.binary())
    if text_of(pc.binary_slice(column, 0, 2)) != _PLAIN_HEADER * (len(column) - column.null_count):
        return None
    versions = pc.binary_slice(column, 2, VERSION_END)
    etags = text_of(versions.fill_null(_NO_VERSION) if versions.null_count else versions).hex()
    if len(etags) != 2 * len(_NO_VERSION) * len(column):
        return None
    return RecordColumns(pc.binary_slice(column, VERSION_END, _LONGEST), etag_column(etags, column))


def read(raw: bytes | None, now_ms: int) -> Record | TableError | None:
    """Return the outcome of a Get. Records without expiry and writers take the fast path."""
    if raw is None:
        return None
    if raw[:2] == _PLAIN_HEADER:
        return Record(raw[10:], raw[2:10].hex())
    try:
        stored = unpack(raw)
    except RecordUnreadable as error:
        return error
    if stored.value is None or not stored.live(now_ms):
        return None
    return Record(stored.value, stored.etag, stored.expires_ms)


def _from_format(raw: bytes) -> Stored:
    if raw[0] != FORMAT_VERSION or len(raw) < 10:
        raise RecordUnreadable(_UNKNOWN_FORMAT)
    flags, etag, position, expires_ms = raw[1], raw[2:10].hex(), 10, 0
    if flags & _EXPIRES:
        expires_ms, position = int.from_bytes(raw[10:18], "big"), 18
    writers: tuple[tuple[str, int], ...] = ()
    if flags & WRITERS:
        writers, position = _unpack_writers(raw, position)
    return Stored(None if flags & _NO_VALUE else raw[position:], etag, expires_ms, writers)


def _from_json(raw: bytes) -> Stored:
    try:
        return Stored(encode(parse(raw)), hashlib.blake2b(raw, digest_size=8).hexdigest())
    except TooLarge as error:
        raise RecordUnreadable(f"another tool wrote the record: {error.detail}") from None
    except TableError:
        raise RecordUnreadable("another tool wrote the record, and it is not a valid JSON object") from None


def _pack_writer(name: str, sequence: int) -> bytes:
    return pack_name(name) + sequence.to_bytes(8, "big")


def _unpack_writers(raw: bytes, position: int) -> tuple[tuple[tuple[str, int], ...], int]:
    writers = []
    count, position = raw[position], position + 1
    for _ in range(count):
        start = position + 2
        end = start + int.from_bytes(raw[position:start], "big")
        writers.append((raw[start:end].decode(), int.from_bytes(raw[end : end + 8], "big")))
        position = end + 8
    return tuple(writers), position
