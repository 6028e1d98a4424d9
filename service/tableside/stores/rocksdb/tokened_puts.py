"""Puts with tokens that are decided from the bytes of the stored record, without unpacking it.

That is possible if the record has no expiry, and no writers except the token's.
"""

from collections.abc import Sequence
from typing import TypeAlias

from ...core import Operation, are_plain_puts
from .records import FORMAT_VERSION, VERSION_END, WRITERS, is_plain, pack_name

TokenedValue: TypeAlias = tuple[bytes, bytes, bytes]
"""The value of a put. Then from its token: the bytes of a list of one writer up to its sequence, and the sequence."""

_HEADER = bytes([FORMAT_VERSION, WRITERS])
"""The first bytes of a record with a value and writers, and without expiry."""


def tokened_values(operations: Sequence[Operation], raws: Sequence[bytes | None]) -> list[TokenedValue] | None:
    """Return the values of puts whose tokens are certainly new for the records.

    Return None if one is another operation, has no token or other options, or may be a replay.
    """
    if not are_plain_puts(operations, tokens=True):
        return None
    writers, values = dict[str, bytes](), list[TokenedValue]()
    for put, raw in zip(operations, raws, strict=False):
        if put.token is None:
            return None
        if (writer := writers.get(put.token.writer)) is None:
            writer = writers[put.token.writer] = b"\1" + pack_name(put.token.writer)
        sequence = put.token.sequence.to_bytes(8, "big")
        if not _is_new(raw, writer, sequence):
            return None
        values.append((put.value, writer, sequence))
    return values


def pack_tokened(tokened: TokenedValue, version: int) -> bytes:
    """Return the bytes of a record without expiry whose only writer is the token's."""
    value, writer, sequence = tokened
    return b"".join((_HEADER, version.to_bytes(8, "big"), writer, sequence, value))


def _is_new(raw: bytes | None, writer: bytes, sequence: bytes) -> bool:
    """Return whether a record certainly has no token of this writer with this sequence or a higher one."""
    if raw is None or is_plain(raw):
        return True
    end = VERSION_END + len(writer)
    return raw[:2] == _HEADER and raw[VERSION_END:end] == writer and raw[end : end + 8] < sequence
