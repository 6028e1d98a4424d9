"""Updates that a script applies in one round trip: edits of top-level members whose operators have `in_text`.

A merge patch sets members as `$set` does, unless it has null or an object. The script changes a record only if the
result is certain, and equals that of `transition`: the text is one that the service wrote, each changed member is at
the top level before any nested object, and numbers are integers that Lua represents exactly. In canonical text,
`"name":` after `{` or `,` is always the name of a member, because a quote within a string is escaped. Compare-and-set
decides all other updates, and all errors.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
import orjson

from ...core import (
    OPERATORS,
    Batch,
    Change,
    Changed,
    Changes,
    Edit,
    Outcome,
    TableSpec,
    Update,
    Yielder,
    expiry_ms,
    shared,
    transition,
)
from .records import etag_of, pack_all, side_elements, value_of
from .scripts import REMEMBER, RecordScript
from .writes import UNDECIDED, RecordWriter

INTEGER_MAX = 2**53 - 1
"""The largest integer that Lua's arithmetic represents exactly, also as the result of an addition."""

EDITED_BYTES_MAX = 4096
"""The maximum size of the text of a value that the script edits, of a default, and of the edits of one record."""

RESULT_BYTES_MAX = 3 * EDITED_BYTES_MAX
"""More than the script's longest result: it checks no other limit on values."""

PLANS_MAX = 256
"""How many plans of a table are kept."""

_SIMPLE_NAME = re.compile("[A-Za-z0-9_-]+")

EDIT = RecordScript(
    REMEMBER
    + f"""
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

-- Edits records. Arguments:
-- 1  the edits in MessagePack: operator, name, operand and its text. `absent` requires that there is no such member.
--    Empty: the script leaves the record unchanged.
-- 2  the whitespace that follows the value
-- 3  the value to put if the record is absent, without this whitespace (empty: none)
-- 4  its time to live in ms (0: no expiry)
-- 5  the element of the side key by which the record remembers the update (empty: none)
-- 6  the time to live of a present record in ms (0: no expiry, empty: as before)
-- Returns for each record its value, its expiry in Unix ms (0: never), and 1 if it was absent; or {UNDECIDED}.
return for_each(function(key, side, at)
  if argument(1, at) == '' then return {UNDECIDED} end
  local value, element, memory = redis.call('GET', key), argument(5, at), nil
  if element ~= '' then
    memory = remember(redis.pcall('GET', side), value, element)
    if not memory then return {UNDECIDED} end
  end
  local created, expires = 0, nil
  if value then
    local packed = argument(1, at)
    unpacked[packed] = unpacked[packed] or cmsgpack.unpack(packed)
    local body = all_edited(value, unpacked[packed])
    if not body then return {UNDECIDED} end
    value = body .. argument(2, at)
    local ttl = argument(6, at)
    expires = put(key, side, value, ttl == '' and 0 or expiry_of[ttl], ttl == '')
  else
    if argument(3, at) == '' then return {UNDECIDED} end
    value, created = argument(3, at) .. argument(2, at), 1
    expires = put(key, side, value, expiry_of[argument(4, at)])
  end
  if memory then set(side, memory, expires) end
  return {{value, expires, created}}, expires
end)
"""
)

_Word: TypeAlias = tuple[str, str, int, str]
"""An edit for the script: the operator, the member's name in JSON with a colon, the operand and its text."""

_Plan: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""The script's arguments for an update: the edits, and if the record is absent, the value to put and its time to live.

The last one is the time to live if the record is present.
"""

_NO_PLAN = (b"", b"", b"0", b"")
"""The script leaves the record unchanged, and compare-and-set applies the update."""


class RecordEditor:
    """Updates records of one table."""

    def __init__(self, writes: RecordWriter, spec: TableSpec) -> None:
        self._writes = writes
        self._spec = spec
        # A stored member that is named like a key field makes the script leave the record unchanged.
        self._key_names = spec.key.names
        self._absent: list[_Word] = [("absent", f'"{name}":', 0, "") for name in sorted(self._key_names)]
        self._known_plan = lru_cache(PLANS_MAX)(self._make_plan)

    async def apply(self, updates: Batch, until: float) -> Sequence[Outcome]:
        """Apply updates without preconditions. None overtakes one that is retried."""
        changes, is_contended = updates.cells("changes"), self._writes.compare_and_set.is_contended
        texts = [each.text for each in changes]  # 1 and true have different texts.
        rows = list(zip(texts, updates.cells("default"), updates.cells("ttl_s"), strict=True))
        distinct = dict(zip(rows, changes, strict=True))
        planned, yielder = dict[Any, _Plan](), Yielder()
        for row, each in distinct.items():
            if yielder.due:
                await yielder.maybe_yield()
            planned[row] = self._plan(each, *row[1:])
        plans = [_NO_PLAN if is_contended(key) else planned[row] for key, row in zip(updates.keys, rows, strict=True)]
        if plans.count(_NO_PLAN) == len(plans):
            return await self._writes.compare_and_set.apply(updates, until)
        edits, defaults, default_ttls_ms, ttls_ms = map(shared, zip(*plans, strict=True))
        spaces = pack_all([b""] * len(plans))
        arguments = [edits, spaces, defaults, default_ttls_ms, side_elements(updates), ttls_ms]
        results = await self._writes.run(EDIT, updates.keys, arguments, until)
        edited = [result if type(result) is list else (b"", 0, 0) for result in results]
        raws, expiries_ms, created = zip(*edited, strict=True)
        columns: dict[str, Sequence[Any]] = {"etag": list(map(etag_of, raws))}
        if any(created):
            columns["created"] = [one == 1 for one in created]
        if any(expiries_ms):
            columns["expires_ms"] = expiries_ms
        if updates.has("returning"):
            both = zip(raws, updates.cells("returning"), strict=True)
            columns["value"] = [value_of(raw) if returning else None for raw, returning in both]
        return await self._writes.outcomes(updates, columns, results, until)

    def _plan(self, changes: Changes, default: bytes | None, ttl_s: float | None) -> _Plan:
        is_long = max(len(changes.text), len(default or b"")) > EDITED_BYTES_MAX
        return _NO_PLAN if is_long else self._known_plan(changes, default, ttl_s)

    def _make_plan(self, changes: Changes, default: bytes | None, ttl_s: float | None) -> _Plan:
        """Return the plan for the members of an update, which callers often repeat."""
        words = [*self._absent]
        for change in changes:
            if (of_change := self._words(change)) is None:
                return _NO_PLAN
            words += of_change
        packed = msgspec.msgpack.encode(words)
        if len(packed) > EDITED_BYTES_MAX or self._spec.value_bytes_max < RESULT_BYTES_MAX:
            return _NO_PLAN
        # At time 0 the expiry equals the time to live, which Redis counts from the server's time.
        ttl_ms = b"" if ttl_s is None else b"%d" % expiry_ms(ttl_s, 0)
        if default is None:
            return packed, b"", b"0", ttl_ms
        update = Update(("",) * len(self._spec.key.fields), changes, default, ttl_s=ttl_s)
        created = transition(None, update, self._spec, now_ms=0, etag="")
        stored = created.stored if isinstance(created, Changed) else None
        if stored is None or stored.value is None or len(stored.value) > EDITED_BYTES_MAX:
            return _NO_PLAN
        return packed, stored.value, b"%d" % stored.expires_ms, ttl_ms

    def _words(self, change: Change) -> list[_Word] | None:
        """Return the edits for the script, or None if it cannot make all of them."""
        if change.patch is None:
            edits = change.edits
        elif all(member is not None and not isinstance(member, dict) for member in change.patch.values()):
            edits = tuple([Edit("$set", (name,), member) for name, member in change.patch.items()])
        else:
            return None  # It removes members, or merges objects.
        words = list[_Word]()
        for edit in edits:
            name, operand, in_text = edit.path[0], edit.operand, OPERATORS[edit.operator].in_text
            number = operand if type(operand) is int and abs(operand) <= INTEGER_MAX else None
            suits = in_text == "any" or (in_text == "integer" and number is not None)
            if len(edit.path) > 1 or not suits or name in self._key_names or not _SIMPLE_NAME.fullmatch(name):
                return None
            words.append((edit.operator, f'"{name}":', number or 0, orjson.dumps(operand).decode()))
        return words
