"""The Lua of the scripts that put records without a condition: plain puts, and puts whose tokens are new."""

UNDECIDED = -1
"""The result of `put_once` for a record that it left unchanged."""

PUT = """
-- Puts records of a table without indexes. KEYS for each record: the record and its side key. ARGV: the value of each
-- record, then nothing (no expiry), one time to live in ms (0: no expiry) for all, or the one of each.
-- Returns for each record its expiry in Unix ms (0: never).
local count = #KEYS / 2

local function expiry_of(index)
  return expiry(ARGV[count + index] or ARGV[count + 1] or 0)
end

-- Puts all records without looking at each side key. Returns nil, without a change, if one of them has a side key, or
-- if the first command fails: the user may lack its permission, or the server memory.
local function put_all()
  local sides, pairs, results = {}, {}, {}
  for index = 1, count do
    pairs[index * 2 - 1], pairs[index * 2] = KEYS[index * 2 - 1], ARGV[index]
    sides[index], results[index] = KEYS[index * 2], 0
  end
  if redis.pcall('EXISTS', unpack(sides)) ~= 0 then return nil end
  if #ARGV == count then return redis.pcall('MSET', unpack(pairs)).ok and results end
  for index = 1, count do
    local expires = expiry_of(index)
    local succeeded, error = pcall(set, pairs[index * 2 - 1], pairs[index * 2], expires)
    results[index] = succeeded and expires or failure(error)
  end
  return results
end

local stored = put_all()
if stored then return stored end
return for_each(1, function(key, side, at) return put(key, side, ARGV[at + 1], expiry_of(at + 1)) end)
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
