"""The format of a record in Redis, and of its side key, which contains what the record remembers of its writes.

A record is the value's JSON text, followed by sixteen characters of JSON whitespace: a fixed marker of four characters
and twelve random characters. JSON parsers ignore it. The random characters make the bytes of every write different, so
a digest of the bytes is an exact etag and no version must be stored. The marker shows that the text is canonical.
Another tool wrote text without it. Such text is parsed as JSON.

A side key is JSON: `[1, {"": order}, ["writer", sequence], ...]`. The first element is 0 for the tombstone of a deleted
record. The orders follow, if it has any, then the tokens of its writers, the latest writer last.
"""

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from xxhash import xxh3_128_hexdigest

from ...core import (
    NO_MEMORY,
    WRITERS_MAX,
    Batch,
    Memory,
    Record,
    RecordUnreadable,
    Results,
    Stored,
    TableError,
    Token,
    encode_foreign,
    shared,
)

_MARKER = b"\r\t\r\t"
_RANDOM_LENGTH = 12
_SUFFIX_LENGTH = len(_MARKER) + _RANDOM_LENGTH
_VALUE_END = b"}" + _MARKER
_BRACE = ord("{")
_WHITESPACE = bytes(b" \t\n\r"[byte % 4] for byte in range(256))

WRONG_TYPE = "another tool wrote the record: the Redis key is not a string"


def pack_all(values: Sequence[bytes]) -> list[bytes]:
    """Return the bytes of records, which differ in each call."""
    random = os.urandom(_RANDOM_LENGTH * len(values)).translate(_WHITESPACE)
    return [
        b"".join((value, _MARKER, random[start : start + _RANDOM_LENGTH]))
        for value, start in zip(values, range(0, len(random), _RANDOM_LENGTH), strict=True)
    ]


def etag_of(raw: bytes) -> str:
    """Return the etag of a record's bytes."""
    return xxh3_128_hexdigest(raw)


def value_of(raw: bytes) -> bytes:
    """Return the value of a record's bytes that `pack` has returned."""
    return raw[:-_SUFFIX_LENGTH]


def read_all(raws: Sequence[bytes | None], expiries_ms: Sequence[int], failed: Mapping[int, TableError]) -> Results:
    """Return the outcomes of Gets. `expiries_ms` is empty if no record expires. Those in `failed` have no value."""
    present: Sequence[Any] = [raw for raw in raws if raw is not None] if None in raws else raws
    # One slice object for all records: `raw[a:b]` makes one for each.
    value, value_end = slice(-_SUFFIX_LENGTH), slice(-_SUFFIX_LENGTH - 1, -_RANDOM_LENGTH)
    errors, values = dict(failed), list[bytes | None]()
    if {raw[value_end] for raw in present} <= {_VALUE_END} and {raw[0] for raw in present} <= {_BRACE}:
        values = [None if raw is None else raw[value] for raw in raws]
    else:
        for at, raw in enumerate(raws):
            try:
                values.append(None if raw is None else _value(raw))
            except RecordUnreadable as error:
                values.append(None)
                errors[at] = error
    digest = xxh3_128_hexdigest
    etags = [*map(digest, present)] if present is raws else [None if raw is None else digest(raw) for raw in raws]
    columns: dict[str, Sequence[Any]] = {"value": values, "etag": etags}
    if any(expiries_ms):
        columns["expires_ms"] = expiries_ms
    return Results(Record, columns, errors)


def stored(raw: bytes | None, expires_ms: int, side: bytes | None) -> Stored | RecordUnreadable | None:
    """Return the current record for a write. `side` is its side key, None if that is absent or was not read."""
    deleted, memory = False, NO_MEMORY
    try:
        deleted, memory = parse_side(side)
        if raw is not None:
            return Stored(_value(raw), xxh3_128_hexdigest(raw), expires_ms, memory)
    except RecordUnreadable as error:
        error.memory = memory
        return error
    return Stored(None, "", 0, memory) if memory.orders or (deleted and memory) else None


def wrong_type(side: bytes | None = None) -> RecordUnreadable:
    """Return the error for a Redis key that is a list, a hash or another type. `side` is its side key, if read."""
    error = RecordUnreadable(WRONG_TYPE)
    with contextlib.suppress(RecordUnreadable):
        _, error.memory = parse_side(side)
    return error


def _value(raw: bytes) -> bytes:
    if raw[-_SUFFIX_LENGTH - 1 : -_RANDOM_LENGTH] == _VALUE_END and raw[:1] == b"{":
        return raw[:-_SUFFIX_LENGTH]
    return encode_foreign(raw)


# Side keys, and the Lua that reads and changes them


_INVALID = "another tool wrote the record's side key, and it does not contain orders and writers' tokens"

_decode = msgspec.json.Decoder(list[int | dict[str, int] | tuple[str, int]]).decode

OUTLIVES = """
-- Returns whether a side key is kept longer than an expired record, from its text or the first bytes of it: it has
-- orders.
local function outlives(side)
  return string.byte(side, 4) == 123
end
"""

REMEMBER = f"""
-- Returns whether an integer is below another. Numbers of Lua are doubles, so their digits are compared.
local function is_below(number, other)
  local negative = string.byte(number) == 45
  if negative ~= (string.byte(other) == 45) then return negative end
  if #number ~= #other then return (#number < #other) ~= negative end
  return number ~= other and (number < other) ~= negative
end

-- Returns the text of the side key after a write with a token, or nil if it is not certain that the token is new.
-- Without a record only a tombstone counts: the tokens of an expired record expire with it. Orders are never certain.
local function with_token(side, exists, token)
  local found, kept = {{}}, {{}}
  if side and (exists or string.byte(side, 2) ~= 49 or outlives(side)) then
    local writer, sequence = string.match(token, '^%["([^"]*)",(%d+)%]$')
    for element, other, last in string.gmatch(side, '(%["([^"\\\\]*)",(%d+)%])') do
      table.insert(found, element)
      if other ~= writer then table.insert(kept, element)
      elseif not is_below(last, sequence) then return nil end
    end
    if #found == 0 or '[1,' .. table.concat(found, ',') .. ']' ~= side then return nil end
    while #kept >= {WRITERS_MAX} do table.remove(kept, 1) end
  end
  table.insert(kept, token)
  return '[1,' .. table.concat(kept, ',') .. ']'
end

-- Returns the text of the side key after a put with an order, or nil if it is not certain that the put is the newest
-- write. That is certain if the record remembers nothing, or only the order of a put or a delete.
local function with_order(side, element)
  local order = string.match(element, '^{{"":(-?%d+)}}$')
  local last = not side or string.match(side, '^%[[01],{{"":(-?%d+)}}%]$')
  if not (order and last) or (side and is_below(order, last)) then return nil end
  return '[1,' .. element .. ']'
end

-- Returns the text of the side key after a write that it remembers by an element, or nil if that is not certain.
local function remember(side, exists, element)
  if type(side) == 'table' then return nil end
  if string.byte(element) == 123 then return with_order(side, element) end
  return with_token(side, exists, element)
end
"""


def pack_side(stored: Stored | None) -> bytes:
    """Return the bytes of a record's side key, none if it remembers nothing."""
    if stored is None or not (memory := stored.memory):
        return b""
    orders = [msgspec.Raw(memory.orders)] if memory.orders else []
    return msgspec.json.encode([0 if stored.value is None else 1, *orders, *memory.writers])


def parse_side(side: bytes | None) -> tuple[bool, Memory]:
    """Return whether a side key is that of a tombstone, and what it remembers. Raise RecordUnreadable if invalid."""
    if not side:
        return False, NO_MEMORY
    try:
        deleted, *elements = _decode(side)
        orders = msgspec.json.encode(elements.pop(0)) if elements and isinstance(elements[0], dict) else b""
        if not all(isinstance(element, tuple) for element in elements):
            raise ValueError
    except (msgspec.DecodeError, ValueError):
        raise RecordUnreadable(_INVALID) from None
    return deleted == 0, Memory(cast("tuple[tuple[str, int], ...]", tuple(elements)), orders)


def side_elements(writes: Batch) -> Sequence[bytes]:
    """Return the element by which each write is remembered, empty for none, or one for all. Tokens must be simple."""
    tokens, orders = shared(writes.cells("token")), shared(writes.cells("order"))
    if orders == [None]:
        return list(map(_token, tokens))
    if tokens == [None]:
        return list(map(_order, orders))
    both = zip(writes.cells("token"), writes.cells("order"), strict=True)
    return [b",".join(filter(None, (_order(order), _token(token)))) for token, order in both]


def _token(token: Token | None) -> bytes:
    return b"" if token is None else b'["%b",%d]' % (token.writer.encode(), token.sequence)


def _order(order: int | None) -> bytes:
    return b"" if order is None else Memory.orders_of_all(order)


def is_simple(token: Token) -> bool:
    """Return whether a script can compare the token with those of a side key."""
    return _SIMPLE_WRITER.fullmatch(token.writer) is not None


_SIMPLE_WRITER = re.compile(r"[ !#-\[\]-~]+")
"""The names of writers that have no escapes in JSON: printable ASCII without quotes and backslashes."""
