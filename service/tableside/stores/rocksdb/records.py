"""The format of a record in RocksDB: a short header, then the value's JSON text.

    byte 0        1, the format version
    byte 1        flags: 1 has an expiry, 2 has writers, 4 has no value (a tombstone), 8 has orders
    bytes 2-9     the record's version, big-endian. The etag is its hex digits
    if flag 1     8 bytes: the expiry in Unix milliseconds, big-endian
    if flag 2     1 byte: the number of writers. For each, 2 bytes of length, the name in UTF-8, 8 bytes of sequence
    if flag 8     4 bytes of length, the text of the orders
    remainder     the value

Bytes that begin with `{` are a record that another tool wrote. The etag of such a record is a digest of its bytes.
"""

import hashlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ...core import (
    Record,
    RecordUnreadable,
    Results,
    Stored,
    TableError,
    Token,
    TooLarge,
    encode,
    etag_column,
    have_text,
    live_record,
    may_be_column,
    parse,
    text_of,
)

FORMAT_VERSION = 1
_EXPIRES, _WRITERS, _NO_VALUE, _ORDERS = 1, 2, 4, 8
_VERSION_END = 10
_PLAIN = bytes([FORMAT_VERSION, 0])
"""The first bytes of a record with a value, and without expiry and writers."""
_EXPIRING = bytes([FORMAT_VERSION, _EXPIRES])
_ONE_WRITER = b"\1"
_ORDER_OF_ALL = b'{"":'
_NO_VERSION = bytes(_VERSION_END - 2)
_LONGEST = 2**31 - 1  # PyArrow 26 raises an error for a slice without an end.

_UNKNOWN_FORMAT = "another tool wrote the record, and it is not a JSON object"


def pack(stored: Stored) -> bytes:
    """Return the bytes of a record. `stored.etag` is 16 hex digits."""
    flags = (
        (_EXPIRES if stored.expires_ms else 0)
        | (_WRITERS if stored.writers else 0)
        | (_NO_VALUE if stored.value is None else 0)
        | (_ORDERS if stored.orders else 0)
    )
    parts = [bytes([FORMAT_VERSION, flags]), bytes.fromhex(stored.etag)]
    if stored.expires_ms:
        parts.append(stored.expires_ms.to_bytes(8, "big"))
    if stored.writers:
        parts.append(bytes([len(stored.writers)]))
        parts.extend(_pack_writer(name, sequence) for name, sequence in stored.writers)
    parts.append(pack_orders(stored.orders))
    return b"".join(parts) + (stored.value or b"")


def pack_value(value: bytes, version: int, expires_ms: int, writer: bytes, orders: bytes) -> bytes:
    """Return the bytes of a record with a value and what `pack_token` and `pack_orders` have returned."""
    if not expires_ms and not writer and not orders:
        return _PLAIN + version.to_bytes(8, "big") + value
    flags = (_EXPIRES if expires_ms else 0) | (_WRITERS if writer else 0) | (_ORDERS if orders else 0)
    expiry = expires_ms.to_bytes(8, "big") if expires_ms else b""
    return b"".join((bytes([FORMAT_VERSION, flags]), version.to_bytes(8, "big"), expiry, writer, orders, value))


def pack_token(token: Token) -> bytes:
    """Return the bytes of a list of writers that contains only the token's."""
    return _ONE_WRITER + _pack_writer(token.writer, token.sequence)


def pack_orders(text: bytes) -> bytes:
    """Return the bytes of orders, none if there are none."""
    return len(text).to_bytes(4, "big") + text if text else b""


def remembers_writes(raw: bytes) -> bool:
    """Return whether a record has writers or orders."""
    return raw[:1] == _PLAIN[:1] and len(raw) > 1 and bool(raw[1] & (_WRITERS | _ORDERS))


def may_replace(raw: bytes | None, writer: bytes, order: int | None) -> bool:
    """Return whether a put replaces a record with all that it remembers. `writer` is from `pack_token`.

    That is certain if the record remembers no writes, or only one writer with an earlier sequence than the token's, or
    only the order of a put or a delete that is not newer.
    """
    if raw is None or not remembers_writes(raw):
        return True
    if order is not None or raw[1] & _ORDERS:
        return order is not None and not writer and _is_newer(order, raw)
    start = _VERSION_END + (8 if raw[1] & _EXPIRES else 0)
    name_end, end = start + len(writer) - 8, start + len(writer)
    return bool(writer) and raw[start:name_end] == writer[:-8] and raw[name_end:end] < writer[-8:]


def _is_newer(order: int, raw: bytes) -> bool:
    """Return whether the record remembers only the order of a put or a delete, and this one is not below it."""
    text, _ = _unpack_orders(raw, _VERSION_END + (8 if raw[1] & _EXPIRES else 0))
    is_only = not raw[1] & _WRITERS and text.startswith(_ORDER_OF_ALL) and text.count(b":") == 1
    return is_only and order >= int(text[len(_ORDER_OF_ALL) : -1])


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


def read_all(raws: Sequence[bytes | None], now_ms: int) -> Results:
    """Return the outcomes of Gets."""
    if may_be_column(raws) and (columns := _read_columns(raws)) is not None:
        return columns
    results = Results.of([read(raw, now_ms) for raw in raws])
    assert results is not None  # They are all records, absent or errors.
    return results


def _read_columns(raws: Sequence[bytes | None]) -> Results | None:
    """Return the outcomes of Gets, or None if a record has an expiry or writers, was cut off, or is of another tool."""
    column = pa.array(raws, pa.binary())
    if not have_text(column, 0, 2, _PLAIN):
        return None
    versions = pc.binary_slice(column, 2, _VERSION_END)
    etags = text_of(versions.fill_null(_NO_VERSION) if versions.null_count else versions).hex().encode()
    if len(etags) != 2 * len(_NO_VERSION) * len(raws):
        return None
    values = pc.binary_slice(column, _VERSION_END, _LONGEST)
    return Results(Record, {"value": values, "etag": etag_column(etags, column)})


def read(raw: bytes | None, now_ms: int) -> Record | TableError | None:
    """Return the outcome of a Get. Records without writers take the fast path."""
    if raw is None:
        return None
    if (head := raw[:2]) == _PLAIN:
        return Record(raw[10:], raw[2:10].hex())
    if head == _EXPIRING:
        expires_ms = int.from_bytes(raw[10:18], "big")
        return Record(raw[18:], raw[2:10].hex(), expires_ms) if expires_ms > now_ms else None
    try:
        stored = unpack(raw)
    except RecordUnreadable as error:
        return error
    return live_record(stored, now_ms)


def _from_format(raw: bytes) -> Stored:
    if raw[0] != FORMAT_VERSION or len(raw) < 10:
        raise RecordUnreadable(_UNKNOWN_FORMAT)
    flags, etag, position, expires_ms = raw[1], raw[2:10].hex(), 10, 0
    if flags & _EXPIRES:
        expires_ms, position = int.from_bytes(raw[10:18], "big"), 18
    writers: tuple[tuple[str, int], ...] = ()
    if flags & _WRITERS:
        writers, position = _unpack_writers(raw, position)
    orders = b""
    if flags & _ORDERS:
        orders, position = _unpack_orders(raw, position)
    return Stored(None if flags & _NO_VALUE else raw[position:], etag, expires_ms, writers, orders)


def _from_json(raw: bytes) -> Stored:
    try:
        return Stored(encode(parse(raw)), hashlib.blake2b(raw, digest_size=8).hexdigest())
    except TooLarge as error:
        raise RecordUnreadable(f"another tool wrote the record: {error.detail}") from None
    except TableError:
        raise RecordUnreadable("another tool wrote the record, and it is not a valid JSON object") from None


def _pack_writer(name: str, sequence: int) -> bytes:
    text = name.encode()
    return len(text).to_bytes(2, "big") + text + sequence.to_bytes(8, "big")


def _unpack_writers(raw: bytes, position: int) -> tuple[tuple[tuple[str, int], ...], int]:
    writers = []
    count, position = raw[position], position + 1
    for _ in range(count):
        start = position + 2
        end = start + int.from_bytes(raw[position:start], "big")
        writers.append((raw[start:end].decode(), int.from_bytes(raw[end : end + 8], "big")))
        position = end + 8
    return tuple(writers), position


def _unpack_orders(raw: bytes, position: int) -> tuple[bytes, int]:
    start = position + 4
    end = start + int.from_bytes(raw[position:start], "big")
    return raw[start:end], end
