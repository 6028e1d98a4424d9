"""Tokens of writers in the scripts that write: a script applies a write only if its token is certainly new.

That is certain only if the side key has the form that the service writes and has no such sequence.
"""

import re

from ...core import WRITERS_MAX, Token

_SIMPLE_WRITER = re.compile(r"[ !#-\[\]-~]+")
"""The names of writers that have no escapes in JSON: printable ASCII without quotes and backslashes."""


def is_simple(token: Token) -> bool:
    """Return whether a script can compare the token with those of a side key."""
    return _SIMPLE_WRITER.fullmatch(token.writer) is not None


def element(token: Token) -> bytes:
    """Return the token as an element of a side key. The token is simple."""
    return b'["%b",%d]' % (token.writer.encode(), token.sequence)


WITH_TOKEN = f"""
-- Returns whether a sequence is below another. Numbers of Lua are doubles, so their digits are compared.
local function is_below(sequence, other)
  return #sequence < #other or (#sequence == #other and sequence < other)
end

-- Returns the text of the side key after a write with a token, or nil if it is not certain that the token is new.
-- Without a record only a tombstone counts: the tokens of an expired record expire with it.
local function with_token(side, exists, token)
  if type(side) == 'table' then return nil end
  local found, kept = {{}}, {{}}
  if side and (exists or string.byte(side, 2) ~= 49) then
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
"""
