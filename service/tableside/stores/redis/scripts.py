"""The scripts that read and write records in one atomic step each, and the commands that carry them.

Every script does what it is asked for key by key: what goes wrong with one is its own answer. Times are the server's.
Knows nothing of connections.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from hiredis import pack_command

from ...core import EXPIRY_MS_MAX


class Script:
    """A script, and the name by which a server knows it once it has seen it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Command(msgspec.Struct, frozen=True):
    """One command, or one call of a script, on keys of one slot.

    `positions` say which of its caller's records it is about.
    """

    words: tuple[Any, ...]
    positions: Sequence[int] = ()
    slot: int = 0
    script: Script | None = None

    def packed(self, *, whole: bool = False) -> bytes:
        """Return the bytes to send; `whole` sends the text of the script, for a server that does not know it."""
        head: tuple[str, ...] = ()
        if self.script is not None:
            head = ("EVAL", self.script.text) if whole else ("EVALSHA", self.script.sha)
        packed: bytes = pack_command(head + self.words)
        return packed


def call(
    script: Script, keys: Sequence[str], arguments: Sequence[str | bytes | int], positions: Sequence[int], slot: int
) -> Command:
    """Return the call of a script."""
    return Command((len(keys), *keys, *arguments), positions, slot, script)


READ = Script("""
-- Answers three lists: the values (nil: absent), when each expires in Unix ms (empty if none does), and the positions
-- of keys that hold something else than a string.
local values, expiries, others, expiring = {}, {}, {}, false
for index, key in ipairs(KEYS) do
  local value, expires = redis.pcall('GET', key), 0
  if type(value) == 'table' then
    if string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then return value end
    others[#others + 1] = index
    value = false
  elseif value then
    expires = redis.call('PEXPIRETIME', key)
    if expires > 0 then expiring = true else expires = 0 end
  end
  values[index], expiries[index] = value, expires
end
return {values, expiring and expiries or {}, others}
""")

_SHARED = f"""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- When something expires that lives so many ms from now (0: for ever).
local function expiry(ttl)
  local expires = now + tonumber(ttl)
  return (expires > now and expires < {EXPIRY_MS_MAX}) and expires or 0
end

-- Sets a value as a string, to expire then (0: never).
local function set(key, value, expires)
  if expires > 0 then redis.call('SET', key, value, 'PXAT', string.format('%.0f', expires))
  else redis.call('SET', key, value) end
end

-- What is remembered of writers goes on, and expires with the record. It begins with [1 beside a record, with [0 where
-- a record was deleted; beside no record, [1 is left of one that has expired or that another tool has removed.
local function put(key, side, value, expires, keep)
  local remembered = redis.call('EXISTS', side) == 1
  local stale = remembered and redis.call('GETRANGE', side, 1, 1) ~= '0' and redis.call('EXISTS', key) == 0
  if keep then
    expires = math.max(redis.call('PEXPIRETIME', key), 0)
    redis.call('SET', key, value, 'KEEPTTL')
  else
    set(key, value, expires)
  end
  if stale then redis.call('UNLINK', side)
  elseif remembered then
    redis.call('SETRANGE', side, 1, '1')
    if expires > 0 then redis.call('PEXPIREAT', side, string.format('%.0f', expires))
    else redis.call('PERSIST', side) end
  end
  return expires
end

local function each(width, work)
  local answers = {{}}
  for index = 0, #KEYS / 2 - 1 do
    local done, answer = pcall(work, KEYS[index * 2 + 1], KEYS[index * 2 + 2], index * width)
    if not done then
      if type(answer) == 'table' then answer = answer.err end
      answer = redis.error_reply(answer)
    end
    answers[index + 1] = answer
  end
  return answers
end
"""

WRITE = Script(
    _SHARED
    + """
-- KEYS: the record and its side key, for each. ARGV: the value (none: delete) and the ms to live (0: for ever).
-- Answers for each when it expires in Unix ms (0: never).
return each(2, function(key, side, at)
  local value = ARGV[at + 1]
  if value ~= '' then return put(key, side, value, expiry(ARGV[at + 2])) end
  if redis.call('UNLINK', key) == 1 then redis.call('UNLINK', side) end
  return 0
end)
"""
)

REPLACE = Script(
    _SHARED
    + """
-- KEYS: the record and its side key, for each. ARGV for each:
-- 1  what was seen: a absent, v the value that follows, o something else than a string
-- 2  the value that was seen
-- 3  what to do: p put, k put and keep the expiry, d delete
-- 4  the value to put
-- 5  the ms to live (0: for ever)
-- 6  whether the writers were looked at: t, or u if not
-- 7  what was seen of them (none: absent)
-- 8  what to remember of them
-- Answers for each when it expires in Unix ms (0: never), or -1 if it is not what was seen.
return each(8, function(key, side, at)
  local found = redis.pcall('GET', key)
  local state = found and 'v' or 'a'
  if type(found) == 'table' then
    if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then error(found) end
    state = 'o'
  end
  if state ~= ARGV[at + 1] or (state == 'v' and found ~= ARGV[at + 2]) then return -1 end
  local work, tokened = ARGV[at + 3], ARGV[at + 6] == 't'
  if tokened and (redis.call('GET', side) or '') ~= ARGV[at + 7] then return -1 end
  local expires = expiry(ARGV[at + 5])
  if work == 'd' then
    redis.call('UNLINK', key)
    if not tokened then redis.call('UNLINK', side) end
  else
    expires = put(key, side, ARGV[at + 4], expires, work == 'k')
  end
  if tokened then set(side, ARGV[at + 8], expires) end
  return work == 'd' and 0 or expires
end)
"""
)
