"""Lua scripts that write several records atomically, each with its side key and its place in the index.

Each script handles its keys one by one and returns a result or an error for each. Times are by the server's clock.
"""

import msgspec

from ...core import EXPIRY_MS_MAX
from .edit_script import EDIT
from .put_scripts import PUT, PUT_ONCE
from .scripts import FAILURE, Script
from .tokens import WITH_TOKEN

EXPIRED_MAX = 16
"""How many expired records one write removes from the index of its partition."""

_PUT = f"""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- What PEXPIRETIME returns for an absent key.
local ABSENT = -2

-- Returns the expiry for a time to live in ms (0: never).
local function expiry(ttl)
  local expires = now + tonumber(ttl)
  return (expires > now and expires < {EXPIRY_MS_MAX}) and expires or 0
end

{FAILURE}
-- Sets a string and its expiry in Unix ms (0: never).
local function set(key, value, expires)
  if expires > 0 then redis.call('SET', key, value, 'PXAT', string.format('%.0f', expires))
  else redis.call('SET', key, value) end
end

-- Puts a record. Its side key keeps the tokens of writers and expires with the record. The side key begins with [1 for
-- a record and with [0 for a tombstone. If the record is absent, [1 is stale: the record has expired, or another tool
-- has removed it. Returns the expiry twice: as the result, and for the index.
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
  return expires, expires
end
"""

_EACH = """
-- Calls apply(record, side key, offset of its arguments) for each record and returns the results and errors.
local function for_each(width, apply)
  local results = {}
  for index = 0, #KEYS / 2 - 1 do
    local succeeded, result = pcall(apply, KEYS[index * 2 + 1], KEYS[index * 2 + 2], index * width)
    results[index + 1] = succeeded and result or failure(result)
  end
  return results
end
"""

_INDEX = f"""
local indexes = {{}}

-- Raises an error if the user may not run a command that the indexes need: it would fail after records are written.
local function check_permissions(index, expiring)
  for _, command in ipairs({{
    {{'ZADD', index, 0, ''}}, {{'ZREM', index, ''}}, {{'ZADD', expiring, 0, ''}}, {{'ZREM', expiring, ''}},
    {{'ZRANGE', expiring, 0, 0}}, {{'PEXPIREAT', index, 0}}, {{'PERSIST', index}},
  }}) do
    if not redis.acl_check_cmd(unpack(command)) then
      error({{err = "NOPERM to run the '" .. command[1] .. "' command"}})
    end
  end
end

-- Returns the changes to the index of a partition. Raises an error, before the record is written, if the index cannot
-- be. A command that writes would do as a check, but after it Redis accepts writes without memory.
local function changes_of(index, expiring)
  local changes = indexes[index]
  if not changes then
    check_permissions(index, expiring)
    redis.call('ZCARD', index)
    local expires = redis.call('ZCARD', expiring) > 0
    changes = {{expiring = expiring, expires = expires, added = {{}}, removed = {{}}, scored = {{}}, unscored = {{}}}}
    indexes[index] = changes
  end
  return changes
end

-- Adds a member, with the expiry of its record in Unix ms (0: never).
local function add(changes, member, expires)
  table.insert(changes.added, 0)
  table.insert(changes.added, member)
  if expires > 0 then
    table.insert(changes.scored, string.format('%.0f', expires))
    table.insert(changes.scored, member)
  else
    table.insert(changes.unscored, member)
  end
end

local function remove(changes, member)
  table.insert(changes.removed, member)
  table.insert(changes.unscored, member)
end

local function run(command, key, arguments)
  if #arguments > 0 then redis.call(command, key, unpack(arguments)) end
end

-- Removes some members whose records have expired.
local function remove_expired(index, expiring)
  local expired = redis.call(
    'ZRANGE', expiring, '-inf', string.format('(%.0f', now), 'BYSCORE', 'LIMIT', 0, {EXPIRED_MAX})
  run('ZREM', index, expired)
  run('ZREM', expiring, expired)
end

-- Lets the index of a partition expire with the last record, if all records expire.
local function set_index_expiry(index, expiring)
  local last = redis.call('ZRANGE', expiring, -1, -1, 'WITHSCORES')[2]
  local all = last and redis.call('ZCARD', index) == redis.call('ZCARD', expiring)
  for _, key in ipairs({{index, expiring}}) do
    if all then redis.call('PEXPIREAT', key, last) else redis.call('PERSIST', key) end
  end
end

-- Writes all changes to the indexes.
local function write_indexes()
  for index, changes in pairs(indexes) do
    local expiring = changes.expiring
    run('ZADD', index, changes.added)
    run('ZREM', index, changes.removed)
    if changes.expires or #changes.scored > 0 then
      run('ZADD', expiring, changes.scored)
      run('ZREM', expiring, changes.unscored)
      remove_expired(index, expiring)
      set_index_expiry(index, expiring)
    end
  end
end
"""

_EACH_INDEXED = (
    _INDEX
    + """
-- Like for_each of tables without an index. KEYS for each record: the record, its side key, the index of its partition,
-- and the members that expire. The last of the ARGV for each record is its member.
local function for_each(width, apply)
  local function apply_and_index(key, side, index, expiring, member, at)
    local changes = changes_of(index, expiring)
    local result, expires = apply(key, side, at)
    if expires == ABSENT then remove(changes, member) elseif expires then add(changes, member, expires) end
    return result
  end
  local results = {}
  for index = 0, #KEYS / 4 - 1 do
    local key, at = index * 4, index * (width + 1)
    local succeeded, result = pcall(
      apply_and_index, KEYS[key + 1], KEYS[key + 2], KEYS[key + 3], KEYS[key + 4], ARGV[at + width + 1], at)
    results[index + 1] = succeeded and result or failure(result)
  end
  write_indexes()
  return results
end
"""
)

_WRITE = """
-- KEYS for each record: the record and its side key.
-- ARGV for each record: the value (empty: delete) and the time to live in ms (0: no expiry).
-- Returns for each record its expiry in Unix ms (0: never).
return for_each(2, function(key, side, at)
  local value = ARGV[at + 1]
  if value ~= '' then return put(key, side, value, expiry(ARGV[at + 2])) end
  if redis.call('UNLINK', key) == 1 then redis.call('UNLINK', side) end
  return 0, ABSENT
end)
"""

_REPLACE = """
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
  if action == 'd' then return 0, ABSENT end
  return expires, expires
end)
"""


class WriteScripts(msgspec.Struct, frozen=True):
    """The scripts that write the records of a table.

    Without a condition: `write`. If a token is new: `put_once`. If the records are as expected: `replace`. By edits:
    `edit`.
    """

    write: Script
    put_once: Script
    replace: Script
    edit: Script


def _scripts(each: str) -> WriteScripts:
    works = (_WRITE, WITH_TOKEN + PUT_ONCE, _REPLACE, WITH_TOKEN + EDIT)
    return WriteScripts(*(Script(_PUT + each + work) for work in works))


SCRIPTS = _scripts(_EACH)

INDEXED_SCRIPTS = _scripts(_EACH_INDEXED)
"""For tables whose partitions have an index."""

PUT_SCRIPT = Script(_PUT + _EACH + PUT)
"""For puts without a condition in tables without indexes."""

INDEX_SCRIPT = Script(
    _PUT
    + _INDEX
    + """
-- Makes the index agree with the records. Writes nothing if it already does, as for scans of a read-only replica.
-- KEYS and ARGV are those of the writes of an indexed table, without the values. Returns 0 for each record.
local function compare(key, index, expiring, member)
  local expires = redis.call('PEXPIRETIME', key)
  local indexed, score = redis.call('ZSCORE', index, member), redis.call('ZSCORE', expiring, member)
  if (expires ~= ABSENT) == (indexed ~= false) and math.max(expires, 0) == tonumber(score or 0) then return 0 end
  local changes = changes_of(index, expiring)
  if expires == ABSENT then remove(changes, member) else add(changes, member, math.max(expires, 0)) end
  return 0
end

local results = {}
for index = 1, #ARGV do
  local succeeded, result = pcall(compare, KEYS[index * 4 - 3], KEYS[index * 4 - 1], KEYS[index * 4], ARGV[index])
  results[index] = succeeded and result or failure(result)
end
write_indexes()
return results
"""
)

COMPLETE_SCRIPT = Script("""
-- Sets KEYS[1], the mark of a complete index, if the server's run id is ARGV[1]. Returns whether it is.
if not string.find(redis.call('INFO', 'server'), 'run_id:' .. ARGV[1], 1, true) then return 0 end
redis.call('SET', KEYS[1], '1')
return 1
""")
