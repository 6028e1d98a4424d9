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
import sys
from array import array
from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ...core import (
    ARROW_RECORDS_MIN,
    NO_MEMORY,
    Batch,
    Memory,
    Outcome,
    Record,
    RecordUnreadable,
    Results,
    Stored,
    TableError,
    encode_foreign,
    etag_column,
    joined_cells,
    live_record,
)

FORMAT_VERSION = 1
_EXPIRES, _WRITERS, _NO_VALUE, _ORDERS = 1, 2, 4, 8
_FLAGS = _EXPIRES | _WRITERS | _NO_VALUE | _ORDERS
_VERSION_END, _EXPIRY_END = 10, 18
_PLAIN = bytes([FORMAT_VERSION, 0])
"""The first bytes of a record with a value, and without expiry and writers."""
_EXPIRING = bytes([FORMAT_VERSION, _EXPIRES])
_ORDER_OF_ALL = b'{"":'

_END = 2**31 - 1
"""No record is so long. Arrow requires an end."""

_UNKNOWN_FORMAT = "another tool or a later version wrote the record, and it is not a JSON object"

Packed: TypeAlias = tuple[int, bytes]
"""The flags and the bytes of what a record remembers."""


def pack(stored: Stored) -> bytes:
    """Return the bytes of a record. `stored.etag` is 16 hex digits."""
    return pack_value(stored.value, int(stored.etag, 16), stored.expires_ms, pack_memory(stored.memory))


def pack_value(value: bytes | None, version: int, expires_ms: int, memory: Packed) -> bytes:
    """Return the bytes of a record with what `pack_memory` has returned."""
    flags, remembered = memory
    if not expires_ms and not flags and value is not None:
        return _PLAIN + version.to_bytes(8, "big") + value
    flags |= (_EXPIRES if expires_ms else 0) | (_NO_VALUE if value is None else 0)
    expiry = expires_ms.to_bytes(8, "big") if expires_ms else b""
    return b"".join((bytes([FORMAT_VERSION, flags]), version.to_bytes(8, "big"), expiry, remembered, value or b""))


def pack_memory(memory: Memory) -> Packed:
    """Return the flags and the bytes of what a record remembers."""
    flags, packed = 0, b""
    if memory.writers:
        flags, packed = _WRITERS, bytes([len(memory.writers)])
    for name, sequence in memory.writers:
        text = name.encode()
        packed += len(text).to_bytes(2, "big") + text + sequence.to_bytes(8, "big")
    if memory.orders:
        flags, packed = flags | _ORDERS, packed + len(memory.orders).to_bytes(4, "big") + memory.orders
    return flags, packed


def pack_puts(puts: Batch) -> list[Packed]:
    """Return what a record remembers that remembers nothing else than one of these puts."""
    each = list(zip(puts.cells("token"), puts.cells("order"), strict=True))
    packed = {remembered: pack_memory(Memory.of_put(*remembered)) for remembered in set(each)}
    return [packed[remembered] for remembered in each]


def remembers_writes(raw: bytes) -> bool:
    """Return whether a record has writers or orders."""
    return raw[:1] == _PLAIN[:1] and len(raw) > 1 and bool(raw[1] & (_WRITERS | _ORDERS))


def may_replace(raw: bytes | None, put: Packed) -> bool:
    """Return whether a put replaces a record with all that it remembers. `put` is from `pack_puts`.

    That is certain if the record remembers no writes, or only one writer with an earlier sequence than the token's, or
    only the order of a put or a delete that is not newer.
    """
    if raw is None or not remembers_writes(raw):
        return True
    flags, packed = put
    start = _VERSION_END + (8 if raw[1] & _EXPIRES else 0)
    if flags & _ORDERS or raw[1] & _ORDERS:
        return (
            flags == _ORDERS
            and not raw[1] & _WRITERS
            and _is_newer(_unpack_orders(packed, 0)[0], _unpack_orders(raw, start)[0])
        )
    name_end, end = start + len(packed) - 8, start + len(packed)
    return bool(flags) and raw[start:name_end] == packed[:-8] and raw[name_end:end] < packed[-8:]


def _is_newer(order: bytes, present: bytes) -> bool:
    """Return whether a record has only the order of a put or a delete, and that of a put is not below it."""
    is_only = present.startswith(_ORDER_OF_ALL) and present.count(b":") == 1
    return is_only and int(order[len(_ORDER_OF_ALL) : -1]) >= int(present[len(_ORDER_OF_ALL) : -1])


def unpack(raw: bytes) -> Stored | RecordUnreadable:
    """Return the record from its bytes, or an error if they are not in this format and not a JSON object."""
    try:
        if raw[:1] == b"{":
            return Stored(encode_foreign(raw), hashlib.blake2b(raw, digest_size=8).hexdigest())
        return _from_format(raw)
    except RecordUnreadable as error:
        return error.with_traceback(None)
    except (IndexError, UnicodeDecodeError):
        return RecordUnreadable(_UNKNOWN_FORMAT)


def read_all(raws: Sequence[bytes | None], now_ms: int) -> Sequence[Outcome]:
    """Return the outcomes of Gets. Many records that remember nothing are read together."""
    results = _read_together(raws, now_ms) if len(raws) >= ARROW_RECORDS_MIN else None
    return [read(raw, now_ms) for raw in raws] if results is None else results


def _read_together(raws: Sequence[bytes | None], now_ms: int) -> Results | None:
    """Return the outcomes of Gets in columns, or None if a record remembers writes or has another format."""
    records = pa.array(raws, pa.binary())
    beginnings = pc.binary_slice(records, 0, 2)
    joined = bytes(joined_cells(beginnings))
    are_equal = joined == joined[:2] * (len(joined) // 2)  # One comparison is faster than a set of the cells.
    heads = {*([joined[:2]] if are_equal else beginnings.unique().to_pylist())} - {None, b""}
    if not heads <= {_PLAIN, _EXPIRING}:
        return None
    if len(heads) == 2:
        zero = bytes(_EXPIRY_END - _VERSION_END)  # the expiry of records without one
        raws = [raw if raw is None or raw[1] else raw[:_VERSION_END] + zero + raw[_VERSION_END:] for raw in raws]
        records = pa.array(raws, pa.binary())
    start = _EXPIRY_END if _EXPIRING in heads else _VERSION_END
    headers = pc.binary_slice(records, 2, start)
    if headers.null_count:
        headers = headers.fill_null(bytes(start - 2))
    texts = joined_cells(headers)
    if len(texts) < (start - 2) * len(records):
        return None  # One was cut off.
    numbers = array("Q", texts.tobytes())
    columns: dict[str, Any] = {}
    if _EXPIRING in heads:
        numbers, expiries = numbers[::2], numbers[1::2]
        if sys.byteorder == "little":
            expiries.byteswap()
        expires_ms = pa.Array.from_buffers(pa.int64(), len(records), [None, pa.py_buffer(expiries)])
        has_expired = pc.and_(pc.greater(expires_ms, 0), pc.less_equal(expires_ms, now_ms))
        records = pc.if_else(has_expired, None, records)
        columns["expires_ms"] = expires_ms
    values = pc.binary_slice(records, start, _END)
    return Results(Record, {"value": values, "etag": etag_column(numbers.tobytes().hex(), records), **columns})


def read(raw: bytes | None, now_ms: int) -> Record | TableError | None:
    """Return the outcome of a Get. Records without writers take the fast path."""
    if raw is None:
        return None
    if (head := raw[:2]) == _PLAIN:
        return Record(raw[10:], raw[2:10].hex())
    if head == _EXPIRING:
        expires_ms = int.from_bytes(raw[10:18], "big")
        return Record(raw[18:], raw[2:10].hex(), expires_ms) if expires_ms > now_ms else None
    stored = unpack(raw)
    return stored if isinstance(stored, RecordUnreadable) else live_record(stored, now_ms)


def _from_format(raw: bytes) -> Stored:
    if raw[0] != FORMAT_VERSION or raw[1] > _FLAGS or len(raw) < 10:
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
    memory = Memory(writers, orders) if writers or orders else NO_MEMORY
    return Stored(None if flags & _NO_VALUE else raw[position:], etag, expires_ms, memory)


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
