"""The Lua of the script that changes members of records by editing their JSON text.

It changes a record only if the result is certain: the text is one that the service wrote, each changed member is at the
top level before any nested object, and numbers are integers that Lua represents exactly. It leaves other records as
they are. In canonical text, `"name":` after `{` or `,` is always the name of a member, because a quote within a string
is escaped.
"""

INTEGER_MAX = 2**53 - 1
"""The largest integer that Lua's arithmetic represents exactly, also as the result of an addition."""

EDITED_BYTES_MAX = 4096
"""The maximum size of the text of a value that the script edits, of a default, and of the edits of one record."""

EDIT = f"""
local INTEGER_MAX, EDITED_BYTES_MAX = {INTEGER_MAX}, {EDITED_BYTES_MAX}

-- Returns the text of the new value of a member and the position after the present one; nil if it is not certain.
local function replaced(body, at, operator, operand, text)
  if operator == '$set' then
    return text, string.match(body, '^[%w.+-]+()', at) or string.match(body, '^"[^"\\\\]*"()', at)
  end
  local digits, stop = string.match(body, '^(-?%d+)()', at)
  if not digits or digits == '-0' then return nil end
  local number = tonumber(digits)
  if math.abs(number) > INTEGER_MAX then return nil end
  if operator == '$inc' then
    local sum = number + operand
    if math.abs(sum) > INTEGER_MAX then return nil end
    return string.format('%.0f', sum), stop
  end
  local better = operator == '$min' and operand < number or operator == '$max' and operand > number
  return better and text or digits, stop
end

-- Returns an object's text after one edit, or nil if the effect is not certain. `name` is `"member":`.
local function edited(body, operator, name, operand, text)
  local first, last = string.find(body, name, 2, true)
  if operator == 'absent' then return not first and body or nil end
  if not first then return string.sub(body, 1, -2) .. (body == '{{}}' and '' or ',') .. name .. text .. '}}' end
  local nested = string.find(body, '{{', 2, true)
  if (nested and nested < first) or (first > 2 and string.byte(body, first - 1) ~= 44) then return nil end
  local new, stop = replaced(body, last + 1, operator, operand, text)
  local following = stop and string.byte(body, stop)
  if following ~= 44 and following ~= 125 then return nil end
  return string.sub(body, 1, last) .. new .. string.sub(body, stop)
end

-- Returns a value's text after all edits, or nil if the effect is not certain.
local function all_edited(value, edits)
  if #value > EDITED_BYTES_MAX + 16 or string.byte(value) ~= 123 then return nil end
  if string.sub(value, -17, -13) ~= '}}\\r\\t\\r\\t' then return nil end
  local body = string.sub(value, 1, -17)
  for _, edit in ipairs(edits) do
    body = edited(body, unpack(edit))
    if not body then return nil end
  end
  return body
end

local unpacked = {{}}

-- KEYS for each record: the record and its side key. ARGV for each record:
-- 1  the edits in MessagePack: operator, name, operand and its text. `absent` requires that there is no such member
-- 2  the whitespace that follows the value
-- 3  the value to put if the record is absent (empty: none)
-- 4  its time to live in ms (0: no expiry)
-- 5  the token as an element of the side key (empty: none)
-- Returns for each record its value, its expiry in Unix ms (0: never), and 1 if it was absent; or 0 if it is unchanged.
return for_each(5, function(key, side, at)
  local value, token, tokens = redis.call('GET', key), ARGV[at + 5], nil
  if token ~= '' then
    tokens = with_token(redis.pcall('GET', side), value, token)
    if not tokens then return 0 end
  end
  local created, expires = 0, nil
  if value then
    local packed = ARGV[at + 1]
    unpacked[packed] = unpacked[packed] or cmsgpack.unpack(packed)
    local body = all_edited(value, unpacked[packed])
    if not body then return 0 end
    value = body .. ARGV[at + 2]
    expires = put(key, side, value, 0, true)
  else
    if ARGV[at + 3] == '' then return 0 end
    value, created = ARGV[at + 3], 1
    expires = put(key, side, value, expiry(ARGV[at + 4]))
  end
  if tokens then set(side, tokens, expires) end
  return {{value, expires, created}}, expires
end)
"""
