"""Commands in the form that is sent, and the Lua that all scripts share.

A script for many records gets its arguments in columns (see `RecordScript`), handles the records one by one in one
atomic step, and returns a result or an error for each. Times are by the server's clock.
"""

import hashlib
from collections.abc import Sequence
from itertools import chain
from typing import Any, AnyStr, TypeAlias, cast

import msgspec
from hiredis import pack_command

from ...core import EXPIRY_MS_MAX, WRITERS_MAX
from .keys import Names

LONG_WORD_BYTES = 65_536
"""Longer words are sent without being copied: a copy of 16 MiB takes up to 0.1 s."""

EXPIRED_MAX = 16
"""How many expired records one write removes from the index of its partition."""

Column: TypeAlias = Sequence[str] | Sequence[bytes]
"""A word for each record of a command."""


class Script:
    """A script and its SHA-1 digest, that EVALSHA uses once the server has loaded it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Command(msgspec.Struct, frozen=True):
    """One command, or one call of a script, on keys of one slot.

    The columns of `names` and `arguments` follow the `words`, of which a call of a script has none.
    """

    words: tuple[str | bytes | int, ...]
    slot: int = 0
    script: Script | None = None
    names: Sequence[Column] = ()
    arguments: Sequence[Column] = ()

    def packed(self, *, script_text: bool = False) -> list[bytes]:
        """Return the bytes to send, in parts: words above `LONG_WORD_BYTES` are not copied.

        `script_text` sends the script itself, for a server that has not loaded it.
        """
        words: Any = self.words
        if self.script is not None:
            head = ("EVAL", self.script.text) if script_text else ("EVALSHA", self.script.sha)
            words = (*head, sum(map(len, self.names)))
        columns = [*self.names, *self.arguments]
        _, _, start = pack_command(words).partition(b"\r\n")
        count = len(words) + sum(map(len, columns))
        return [b"*%d\r\n%b" % (count, start), *chain.from_iterable(map(_packed_column, columns))]


def words_at(columns: Sequence[Column], positions: Sequence[int], count: int) -> Sequence[Column]:
    """Return the words of some of `count` records. A column with one word for all records stays as it is."""
    if len(positions) == count:
        return columns
    if isinstance(positions, range):
        part = slice(positions.start, positions.stop)
        return [column[part] if len(column) == count else column for column in columns]
    return [[column[at] for at in positions] if len(column) == count else column for column in columns]  # type: ignore[misc]


def _packed_column(words: Column) -> list[bytes]:
    if len(words) == 1:
        word = words[0].encode() if isinstance(words[0], str) else words[0]
        return [b"$%d\r\n" % len(word), word, b"\r\n"]
    names, encoded = Names.of(words), cast("Sequence[bytes]", words)
    if names and type(names.texts[0]) is str:
        text = "".join(_packed(names.texts, "$%d\r\n", names.start, f"{names.end}\r\n"))
        if text.isascii():  # Otherwise the lengths are wrong.
            return [text.encode()]
        encoded = list(map(str.encode, names))
    return _packed(encoded, b"$%d\r\n", b"", b"\r\n")


def _packed(words: Sequence[AnyStr], length_form: AnyStr, start: AnyStr, end: AnyStr) -> list[AnyStr]:
    """Return words after their lengths, as one text unless a word is long.

    A word is a text of `words` between `start` and `end`, which also has the line break after the word.
    """
    lengths, others = set(map(len, words)), len(start) + len(end) - 2
    is_long = max(lengths, default=0) > LONG_WORD_BYTES
    before = {length: length_form % (length + others) + start for length in lengths}
    if len(before) == 1 and not is_long:
        [first] = before.values()
        return [first + (end + first).join(words) + end]
    parts = [end] * (3 * len(words))
    parts[::3], parts[1::3] = [before[length] for length in map(len, words)], words
    return parts if is_long else [end[:0].join(parts)]


FAILURE = """
-- Returns the reply for an error. Redis 7.0 does not name the command that the user may not run.
local function failure(error)
  local text = type(error) == 'table' and error.err or error
  if string.find(text, "can't run this command", 1, true) then
    local denied = {}
    for command in string.gmatch(
      'GET MGET SET EXISTS UNLINK GETRANGE SETRANGE PEXPIREAT PEXPIRETIME PERSIST ZCARD ZSCORE', '%u+') do
      if not redis.acl_check_cmd(command, KEYS[1]) then table.insert(denied, command) end
    end
    text = "ERR ACL failure in script: no permissions to run the '" .. table.concat(denied, ', ') .. "' command"
  end
  return redis.error_reply(text)
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

local last_side, last_absent, last_element, memory

-- Returns the text of the side key after a write that it remembers by an element, or nil if that is not certain. It is
-- often that of the record before: a batch has one token, and wrote the records together the last time.
local function remember(side, exists, element)
  if type(side) == 'table' then return nil end
  if element ~= last_element or side ~= last_side or not exists ~= last_absent then
    last_side, last_absent, last_element = side, not exists, element
    if string.byte(element) == 123 then memory = with_order(side, element)
    else memory = with_token(side, exists, element) end
  end
  return memory
end
"""

_WRITE = (
    FAILURE
    + f"""
-- Returns whether a side key is kept longer than an expired record, from its text or the first bytes of it: it has
-- orders.
local function outlives(side)
  return string.byte(side, 4) == 123
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- How many side keys exist. Most records have none, so one command saves one for each record.
local side_count = redis.pcall('EXISTS', unpack(KEYS, count + 1, count * 2))

-- Returns the first bytes of a side key, none if it is absent.
local function head_of(side)
  return side_count == 0 and '' or redis.call('GETRANGE', side, 0, 3)
end

-- What PEXPIRETIME returns for an absent key.
local ABSENT = -2

-- Returns a table that computes each element when it is first read. Most records of a call have the same expiry.
local function computed(element)
  return setmetatable({{}}, {{__index = function(elements, key)
    elements[key] = element(key)
    return elements[key]
  end}})
end

-- The expiry for a time to live in ms (0: never).
local expiry_of = computed(function(ttl)
  local expires = now + tonumber(ttl)
  return (expires > now and expires < {EXPIRY_MS_MAX}) and expires or 0
end)

-- The digits of a time in Unix ms.
local digits_of = computed(function(time) return string.format('%.0f', time) end)

-- Sets a string and its expiry in Unix ms (0: never).
local function set(key, value, expires)
  if expires > 0 then redis.call('SET', key, value, 'PXAT', digits_of[expires])
  else redis.call('SET', key, value) end
end

-- Returns the expiry of a side key for that of its record: it may be kept longer than an expired record.
local function side_expiry(side, expires)
  return expires > 0 and outlives(side) and expires + DELETE_MEMORY or expires
end

-- Puts a record. Its side key begins with [1 for a record and with [0 for a tombstone. If the record is absent, [1 is
-- stale unless it outlives the record: that has expired, or another tool has removed it. Returns the expiry twice: as
-- the result, and for the index.
local function put(key, side, value, expires, keep)
  local head = head_of(side)
  local stale = string.byte(head, 2) == 49 and not outlives(head) and redis.call('EXISTS', key) == 0
  if keep then
    expires = math.max(redis.call('PEXPIRETIME', key), 0)
    redis.call('SET', key, value, 'KEEPTTL')
  else
    set(key, value, expires)
  end
  if stale then redis.call('UNLINK', side)
  elseif head ~= '' then
    redis.call('SETRANGE', side, 1, '1')
    local side_expires = side_expiry(head, expires)
    if side_expires > 0 then redis.call('PEXPIREAT', side, digits_of[side_expires])
    else redis.call('PERSIST', side) end
  end
  return expires, expires
end

-- Makes the side key of a deleted record a tombstone if it outlives the record, or removes it.
local function remember_delete(side)
  local head = head_of(side)
  if outlives(head) then
    redis.call('SETRANGE', side, 1, '0')
    redis.call('PEXPIREAT', side, digits_of[now + DELETE_MEMORY])
  elseif head ~= '' then
    redis.call('UNLINK', side)
  end
end
"""
)

_INDEX = f"""
local indexes = {{}}

-- Raises an error if the user may not run a command that the indexes need: it would fail after records are written.
local function check_permission(command, ...)
  if not redis.acl_check_cmd(command, ...) then error({{err = "NOPERM to run the '" .. command .. "' command"}}) end
end

local function check_permissions(index, expiring)
  check_permission('ZADD', index, 0, ''); check_permission('ZREM', index, '')
  check_permission('ZADD', expiring, 0, ''); check_permission('ZREM', expiring, '')
  check_permission('ZRANGE', expiring, 0, 0); check_permission('PEXPIREAT', index, 0)
  check_permission('PERSIST', index)
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
    table.insert(changes.scored, digits_of[expires])
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
    'ZRANGE', expiring, '-inf', '(' .. digits_of[now], 'BYSCORE', 'LIMIT', 0, {EXPIRED_MAX})
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

_COLUMNS = """
-- ARGV: the form of the columns (a letter for each: `n` has a word for each record, `1` one word for all), how long an
-- absent record is remembered (in ms), and then the columns, one after the other. KEYS are columns too, with a
-- word for each record.
local count, starts, steps, DELETE_MEMORY = #KEYS / KEY_COLUMNS, {}, {}, tonumber(ARGV[2])
local last = 2
for at = 1, #ARGV[1] do
  steps[at] = string.byte(ARGV[1], at) == 110 and 1 or 0
  starts[at] = last + 1 - steps[at]
  last = last + (steps[at] == 1 and count or 1)
end

-- Returns an argument of a record.
local function argument(column, record)
  return ARGV[starts[column] + steps[column] * record]
end
"""

_PLAIN = """
local function write_indexes() end

local function apply_to(apply, at)
  return (apply(KEYS[at], KEYS[count + at], at))
end
"""

_INDEXED = """
-- The columns of KEYS are the records, their side keys, the indexes of their partitions, and the members that expire.
-- The last column of arguments are the members of the indexes.
local function apply_to(apply, at)
  local index, expiring, member = KEYS[count * 2 + at], KEYS[count * 3 + at], argument(#starts, at)
  local changes = changes_of(index, expiring)
  local result, expires = apply(KEYS[at], KEYS[count + at], at)
  if expires == ABSENT then remove(changes, member) elseif expires then add(changes, member, expires) end
  return result
end
"""

_EACH = """
-- Calls apply(record, side key, number of the record) for each record and returns the results and errors.
local function for_each(apply)
  local results = {}
  for at = 1, count do
    local succeeded, result = pcall(apply_to, apply, at)
    results[at] = succeeded and result or failure(result)
  end
  write_indexes()
  return results
end
"""


class RecordScript:
    """A script that writes records of a table, after the Lua above, which gives it `for_each` and `argument`.

    The script is `indexed` for a table whose partitions have indexes, and `plain` for other tables.
    """

    def __init__(self, text: str) -> None:
        self.plain = Script("local KEY_COLUMNS = 2" + _COLUMNS + _WRITE + _PLAIN + _EACH + text)
        self.indexed = Script("local KEY_COLUMNS = 4" + _COLUMNS + _WRITE + _INDEX + _INDEXED + _EACH + text)
