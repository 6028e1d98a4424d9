"""Lua scripts that read and write several records atomically, and commands in the form that is sent.

Each script handles its keys one by one and returns a result or an error for each. Times are by the server's clock.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from hiredis import pack_command

from ...core import EXPIRY_MS_MAX


class Script:
    """A script and its SHA-1 digest, by which EVALSHA calls it once the server has loaded it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Command(msgspec.Struct, frozen=True):
    """One command, or one call of a script, on keys of one slot.

    `positions` are the positions of its records in the caller's batch.
    """

    words: tuple[Any, ...]
    positions: Sequence[int] = ()
    slot: int = 0
    script: Script | None = None

    def packed(self, *, script_text: bool = False) -> bytes:
        """Return the bytes to send. `script_text` sends the script itself, for a server that has not loaded it."""
        head: tuple[str, ...] = ()
        if self.script is not None:
            head = ("EVAL", self.script.text) if script_text else ("EVALSHA", self.script.sha)
        packed: bytes = pack_command(head + self.words)
        return packed


def script_call(
    script: Script, keys: Sequence[str], arguments: Sequence[str | bytes | int], positions: Sequence[int], slot: int
) -> Command:
    """Return the command that calls a script."""
    return Command((len(keys), *keys, *arguments), positions, slot, script)


READ_SCRIPT = Script("""
-- Returns three lists: the values (nil: absent), their expiries in Unix ms (empty if none expires), and the positions
-- of keys that are not strings.
local values, expiries, wrong_types, expiring = {}, {}, {}, false
for index, key in ipairs(KEYS) do
  local value, expires = redis.pcall('GET', key), 0
  if type(value) == 'table' then
    if string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then return value end
    wrong_types[#wrong_types + 1] = index
    value = false
  elseif value then
    expires = redis.call('PEXPIRETIME', key)
    if expires > 0 then expiring = true else expires = 0 end
  end
  values[index], expiries[index] = value, expires
end
return {values, expiring and expiries or {}, wrong_types}
""")

_SHARED = f"""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Returns the expiry for a time to live in ms (0: never).
local function expiry(ttl)
  local expires = now + tonumber(ttl)
  return (expires > now and expires < {EXPIRY_MS_MAX}) and expires or 0
end

-- Sets a string and its expiry in Unix ms (0: never).
local function set(key, value, expires)
  if expires > 0 then redis.call('SET', key, value, 'PXAT', string.format('%.0f', expires))
  else redis.call('SET', key, value) end
end

-- Puts a record. Its side key keeps the tokens of writers and expires with the record. The side key begins with [1 for
-- a record and with [0 for a tombstone. If the record is absent, [1 is stale: the record has expired, or another tool
-- has removed it.
local function put(key, side, value, expires, keep)
  local has_side = redis.call('EXISTS', side) == 1
  local stale = has_side and redis.call('GETRANGE', side, 1, 1) ~= '0' and redis.call('EXISTS', key) == 0
  if keep then
    expires = math.max(redis.call('PEXPIRETIME', key), 0)
    redis.call('SET', key, value, 'KEEPTTL')
  else
    set(key, value, expires)
  end
  if stale then redis.call('UNLINK', side)
  elseif has_side then
    redis.call('SETRANGE', side, 1, '1')
    if expires > 0 then redis.call('PEXPIREAT', side, string.format('%.0f', expires))
    else redis.call('PERSIST', side) end
  end
  return expires
end

-- Calls apply(record, side key, offset of its arguments) for each record and returns the results and errors.
local function for_each(width, apply)
  local results = {{}}
  for index = 0, #KEYS / 2 - 1 do
    local succeeded, result = pcall(apply, KEYS[index * 2 + 1], KEYS[index * 2 + 2], index * width)
    if not succeeded then
      if type(result) == 'table' then result = result.err end
      result = redis.error_reply(result)
    end
    results[index + 1] = result
  end
  return results
end
"""

WRITE_SCRIPT = Script(
    _SHARED
    + """
-- KEYS for each record: the record and its side key.
-- ARGV for each record: the value (empty: delete) and the time to live in ms (0: no expiry).
-- Returns for each record its expiry in Unix ms (0: never).
return for_each(2, function(key, side, at)
  local value = ARGV[at + 1]
  if value ~= '' then return put(key, side, value, expiry(ARGV[at + 2])) end
  if redis.call('UNLINK', key) == 1 then redis.call('UNLINK', side) end
  return 0
end)
"""
)

REPLACE_SCRIPT = Script(
    _SHARED
    + """
-- KEYS for each record: the record and its side key. ARGV for each record:
-- 1  the expected state: a absent, v the value that follows, o another type than a string
-- 2  the expected value
-- 3  the action: p put, k put and keep the expiry, d delete
-- 4  the value to put
-- 5  the time to live in ms (0: no expiry)
-- 6  whether the write carries a token: t, or u if not
-- 7  the expected side key (empty: absent)
-- 8  the new side key
-- Returns for each record its expiry in Unix ms (0: never), or -1 if it differs from the expected state.
return for_each(8, function(key, side, at)
  local found = redis.pcall('GET', key)
  local state = found and 'v' or 'a'
  if type(found) == 'table' then
    if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then error(found) end
    state = 'o'
  end
  if state ~= ARGV[at + 1] or (state == 'v' and found ~= ARGV[at + 2]) then return -1 end
  local action, tokened = ARGV[at + 3], ARGV[at + 6] == 't'
  if tokened and (redis.call('GET', side) or '') ~= ARGV[at + 7] then return -1 end
  local expires = expiry(ARGV[at + 5])
  if action == 'd' then
    redis.call('UNLINK', key)
    if not tokened then redis.call('UNLINK', side) end
  else
    expires = put(key, side, ARGV[at + 4], expires, action == 'k')
  end
  if tokened then set(side, ARGV[at + 8], expires) end
  return action == 'd' and 0 or expires
end)
"""
)
