"""What a record in Redis remembers of its writes: the JSON in its side key, and the Lua that reads and changes it.

    [1, {"": order}, ["writer", sequence], ...]

The first element is 0 for the tombstone of a deleted record. The orders follow, if it has any, then the tokens of its
writers, the latest writer last.
"""

import re
from collections.abc import Sequence
from typing import cast

import msgspec

from ...core import NO_MEMORY, WRITERS_MAX, Batch, Memory, RecordUnreadable, Stored, Token, shared

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


def pack(stored: Stored | None) -> bytes:
    """Return the bytes of a record's side key, none if it remembers nothing."""
    if stored is None or not (memory := stored.memory):
        return b""
    orders = [msgspec.Raw(memory.orders)] if memory.orders else []
    return msgspec.json.encode([0 if stored.value is None else 1, *orders, *memory.writers])


def parse(side: bytes | None) -> tuple[bool, Memory]:
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


def outlives(memory: Memory) -> bool:
    """Return whether a memory outlives an expired record: its tokens expire with it, but its orders do not."""
    return bool(memory.orders)


def elements(writes: Batch) -> Sequence[bytes]:
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
