"""The Lua of the scripts that put records without a condition: plain puts, and puts whose tokens are new."""

UNDECIDED = -1
"""The result of `put_once` for a record that it left unchanged."""

PUT_ALL = """
-- Puts all records of the call with one command. Returns nil, without a change, if one of them has a side key, or if
-- the command fails: the user may lack its permission, or the server memory.
local function put_all()
  local sides, pairs, results = {}, {}, {}
  for index = 1, #ARGV do
    pairs[index * 2 - 1], pairs[index * 2] = KEYS[index * 2 - 1], ARGV[index]
    sides[index], results[index] = KEYS[index * 2], 0
  end
  if redis.pcall('EXISTS', unpack(sides)) ~= 0 then return nil end
  return redis.pcall('MSET', unpack(pairs)).ok and results
end

local stored = put_all()
if stored then return stored end
"""

PUT_EACH = """
-- Puts records that do not expire. KEYS for each record: the record and its side key. ARGV for each record: the value.
-- Returns 0 for each record.
return for_each(1, function(key, side, at) return put(key, side, ARGV[at + 1], 0) end)
"""

PUT_ONCE = f"""
-- KEYS for each record: the record and its side key.
-- ARGV for each record: the value, the time to live in ms (0: no expiry), and the token as an element of the side key.
-- Returns for each record its expiry in Unix ms (0: never), or {UNDECIDED} if it is not certain that the token is new.
return for_each(3, function(key, side, at)
  local tokens = with_token(redis.pcall('GET', side), redis.call('EXISTS', key) == 1, ARGV[at + 3])
  if not tokens then return {UNDECIDED} end
  local expires = expiry(ARGV[at + 2])
  set(key, ARGV[at + 1], expires)
  set(side, tokens, expires)
  return expires, expires
end)
"""
