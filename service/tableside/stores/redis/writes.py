"""Writes of many records by scripts: puts and deletes without conditions, and compare-and-set.

Compare-and-set reads records, and replaces those whose bytes have not changed. Comparing bytes also detects writes of
other tools. Side keys are read and compared only for writes that the record remembers.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...core import (
    UPDATE_BYTES_MAX,
    Batch,
    BoundedReads,
    CompareAndSet,
    Delete,
    Key,
    Outcome,
    ReadBudget,
    Replacement,
    Results,
    TableError,
    TableSpec,
    VersionedRecord,
    Write,
    Written,
    chunks_of,
    expiries_ms,
    is_remembered,
    put_columns,
    shared,
)
from .connection import REQUEST_BYTES_MAX, Reply
from .errors import from_unexpected_reply
from .keys import KeyNames, PartitionIndex, side_keys
from .records import RecordReader, etag_of, pack_all, pack_side, side_elements, stored, wrong_type
from .scripts import REMEMBER, Column, Command, RecordScript, words_at
from .servers import COMMAND_KEYS_MAX, KeyGroup, Servers, in_order

UNDECIDED = -1
"""The result of a script for a record that it left unchanged: compare-and-set decides the write."""

RECORD_CHANGED = -1
"""The script's result for a record that has changed since it was read."""

PUT = RecordScript(
    REMEMBER
    + f"""
-- Puts records. Arguments: the value, the time to live in ms (0: no expiry), and the element of the side key by which
-- the record remembers the put (empty: none). Returns for each record its expiry in Unix ms (0: never), or {UNDECIDED}
-- if it is not certain that the put is newer than what the record remembers.

-- Puts all records together. Returns nil, without a change, if the new text of a side key is not certain, or if a
-- command fails: the user may lack its permission, or the server memory.
local function put_all()
  local sides, missing = {{}}, side_count
  if side_count ~= 0 then
    if redis.pcall('EXISTS', unpack(KEYS, 1, count)) ~= count then return nil end
    sides = redis.pcall('MGET', unpack(KEYS, count + 1))
  end
  local results, words, last, expiring, side_expiries = {{}}, {{}}, 0, false, {{}}
  for at = 1, count do
    local element, side, expires = argument(3, at), sides[at], expiry_of[argument(2, at)]
    words[last + 1], words[last + 2], last = KEYS[at], argument(1, at), last + 2
    results[at], expiring = expires, expiring or expires > 0
    if side then missing = missing - 1 end
    if side or element ~= '' then
      local memory = element ~= '' and remember(side, true, element)
      if not memory then return nil end
      words[last + 1], words[last + 2], last = KEYS[count + at], memory, last + 2
      side_expiries[at] = side_expiry(memory, expires)
    end
  end
  if missing ~= 0 then return nil end  -- a side key is not a string
  if expiring and not redis.acl_check_cmd('PEXPIREAT', KEYS[1], 0) then return nil end
  if not redis.pcall('MSET', unpack(words)).ok then return nil end
  for at = 1, expiring and count or 0 do
    if results[at] > 0 then redis.call('PEXPIREAT', KEYS[at], digits_of[results[at]]) end
    local side_expires = side_expiries[at] or 0
    if side_expires > 0 then redis.call('PEXPIREAT', KEYS[count + at], digits_of[side_expires]) end
  end
  return results
end

return KEY_COLUMNS == 2 and put_all() or for_each(function(key, side, at)
  local element, expires = argument(3, at), expiry_of[argument(2, at)]
  if element == '' then return put(key, side, argument(1, at), expires) end
  local memory = remember(redis.pcall('GET', side), redis.call('EXISTS', key) == 1, element)
  if not memory then return {UNDECIDED} end
  set(key, argument(1, at), expires)
  set(side, memory, side_expiry(memory, expires))
  return expires, expires
end)
"""
)

DELETE = RecordScript("""
-- Deletes records. Argument: 1 to remove also what a record remembers of its writes. Returns 0 for each record.
return for_each(function(key, side, at)
  local deleted = redis.call('UNLINK', key) == 1
  if argument(1, at) == '1' then redis.call('UNLINK', side)
  elseif deleted then remember_delete(side) end
  return 0, ABSENT
end)
""")

REPLACE = RecordScript(f"""
-- Replaces records that have not changed. Arguments:
-- 1  the expected state: a absent, v the value that follows, o another type than a string
-- 2  the expected value
-- 3  the action: p put, k put and keep the expiry, d delete
-- 4  the value to put
-- 5  the time to live in ms (0: no expiry)
-- 6  whether the write changes the side key: t, or u if not
-- 7  the expected side key (empty: absent)
-- 8  the new side key (empty: none)
-- Returns for each record its expiry in Unix ms (0: never), or {RECORD_CHANGED} if it differs from the expected state.
return for_each(function(key, side, at)
  local found = redis.pcall('GET', key)
  local state = found and 'v' or 'a'
  if type(found) == 'table' then
    if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then error(found) end
    state = 'o'
  end
  if state ~= argument(1, at) or (state == 'v' and found ~= argument(2, at)) then return {RECORD_CHANGED} end
  local action, changes_side, new_side = argument(3, at), argument(6, at) == 't', argument(8, at)
  if changes_side and (redis.call('GET', side) or '') ~= argument(7, at) then return {RECORD_CHANGED} end
  local expires = expiry_of[argument(5, at)]
  if action == 'd' then
    redis.call('UNLINK', key)
    if not changes_side then remember_delete(side) end
  else
    expires = put(key, side, argument(4, at), expires, action == 'k')
  end
  if changes_side then
    if new_side == '' then redis.call('UNLINK', side)
    else set(side, new_side, action == 'd' and expires or side_expiry(new_side, expires)) end
  end
  if action == 'd' then return 0, ABSENT end
  return expires, expires
end)
""")


class RecordWriter:
    """Writes records of one table.

    The scripts of puts, deletes and updates read nothing first. `compare_and_set` applies the writes that they cannot
    decide, and writes with conditions. It reads and replaces records by `read` and `replace`.
    """

    def __init__(
        self, servers: Servers, names: KeyNames, index: PartitionIndex | None, reads: RecordReader, spec: TableSpec
    ) -> None:
        self._servers = servers
        self._names = names
        self._index = index
        self._reads = reads
        self._spec = spec
        self._delete_memory_ms = b"%d" % (1000 * spec.delete_memory_s)
        self._bounded = BoundedReads(UPDATE_BYTES_MAX)
        # The server's clock decides expiry: with a clock that is always 0, expiry times are times to live.
        self.compare_and_set = CompareAndSet(spec, self, clock=lambda: 0)

    async def put(self, puts: Batch, until: float) -> Sequence[Outcome]:
        """Apply puts without conditions, whose tokens are simple: by compare-and-set while that is retrying one."""
        elements = side_elements(puts)
        if elements != [b""] and any(map(self.compare_and_set.is_contended, puts.keys)):
            return await self.compare_and_set.apply(puts, until)
        raws, ttls_s = pack_all(puts.cells("value")), shared(puts.cells("ttl_s"))
        # At time 0 an expiry equals the time to live.
        words = [b"%d" % ttl_ms for ttl_ms in expiries_ms(ttls_s, self._spec.ttl_s, 0)]
        results = await self.run(PUT, puts.keys, [raws, words, elements], until)
        return await self.outcomes(puts, put_columns(puts, list(map(etag_of, raws)), results), results, until)

    async def delete(self, deletes: Batch, until: float) -> Sequence[Outcome]:
        """Apply deletes without conditions and tokens."""
        forget = [b"1" if forget else b"" for forget in shared(deletes.cells("forget"))]
        results = await self.run(DELETE, deletes.keys, [forget], until)
        return await self.outcomes(deletes, {"etag": [None] * len(deletes)}, results, until)

    async def run(
        self, script: RecordScript, keys: Sequence[Key], columns: Sequence[Column], until: float
    ) -> Sequence[Reply]:
        """Call a script for records, in one round trip per node, and return the result or error of each.

        A column of arguments has a word for each record, or one word for all.
        """
        names = self._names.for_keys(keys)
        key_columns: list[Column] = [names, side_keys(names)]
        if self._index is not None:
            *index_names, members = zip(*self._index.entries(keys), strict=True)
            key_columns, columns = [*key_columns, *index_names], [*columns, members]
        count = len(names)
        form = "".join(["n" if len(column) == count else "1" for column in columns])
        chosen, parts = script.plain if self._index is None else script.indexed, self._parts(names, columns)
        columns = [[form], [self._delete_memory_ms], *columns]
        commands = [
            Command((), slot, chosen, words_at(key_columns, part, count), words_at(columns, part, count))
            for part, slot in parts
        ]
        replies = await self._servers.run(commands, until, writes=True)
        results = [_results(reply, len(part)) for (part, _), reply in zip(parts, replies, strict=True)]
        return in_order(parts, results)

    async def outcomes(
        self, writes: Batch, columns: dict[str, Sequence[Any]], results: Sequence[Reply], until: float
    ) -> Sequence[Outcome]:
        """Return the outcomes of a script's results, in columns. Compare-and-set applies the undecided writes."""
        failed: dict[int, TableError] = {}
        if not set(map(type, results)) <= {int}:
            failed = {at: result for at, result in enumerate(results) if isinstance(result, TableError)}
        written = Results(Written, columns, failed)
        if not any(results) or UNDECIDED not in results:
            return written
        outcomes, undecided = [*written], [at for at, result in enumerate(results) if result == UNDECIDED]
        for at, outcome in zip(undecided, await self.compare_and_set.apply(writes.at(undecided), until), strict=True):
            outcomes[at] = outcome
        return outcomes

    def _parts(self, names: Sequence[str], columns: Sequence[Column]) -> Sequence[KeyGroup]:
        """Divide records into those of one call: their positions, and their slot."""
        groups = self._servers.groups(names)
        if len(groups) == 1 and sum([len(word) for column in columns for word in column]) <= REQUEST_BYTES_MAX:
            return groups
        # Without the words for all records.
        lengths = [list(map(len, column)) for column in columns if len(column) == len(names)]
        sizes = lengths[0] if len(lengths) == 1 else list(map(sum, zip(*lengths, strict=True))) or [0] * len(names)
        return [
            (part, slot)
            for positions, slot in groups
            for part in chunks_of(positions, COMMAND_KEYS_MAX, REQUEST_BYTES_MAX, sizes.__getitem__)
        ]

    # Compare-and-set

    async def read(self, writes: Sequence[Write], until: float) -> Sequence[VersionedRecord | TableError]:
        """Read the records of writes, with side keys if a write changes one. Large ones are read in several calls."""
        sides = any(map(_changes_side, writes))

        async def read(names: Sequence[str], budget: ReadBudget) -> Sequence[VersionedRecord | TableError]:
            side_names = side_keys(names) if sides else []
            return await self._reads.read_by_script(names, until, _versioned_records, side_names, budget)

        return await self._bounded.read(self._names.for_keys([write.key for write in writes]), read)

    async def replace(self, replacements: Sequence[Replacement], until: float) -> list[Outcome | bool]:
        """Replace records that have not changed since they were read. The outcomes include the expiry."""
        new = [replacement.changed.stored for replacement in replacements]
        values = [b"" if one is None or one.value is None else one.value for one in new]
        raws = [raw if value else b"" for raw, value in zip(pack_all(values), values, strict=True)]
        columns = [*zip(*map(_arguments, replacements, raws), strict=True)]
        results = await self.run(REPLACE, [replacement.write.key for replacement in replacements], columns, until)
        return [*map(_outcome, replacements, raws, results)]


def _results(reply: Reply, count: int) -> Sequence[Any]:
    """Return the result of each record from the reply of a script: an integer, a list or an error."""
    if type(reply) is not list or len(reply) != count:
        return [from_unexpected_reply(reply, "unknown")] * count
    if set(map(type, reply)) <= {int, list}:
        return reply
    return [one if type(one) in (int, list) else from_unexpected_reply(one, "unknown") for one in reply]


class RecordBytes(msgspec.Struct, frozen=True):
    """The bytes that were read. `state` is `a` for absent, `v` for a value, `o` for another type than a string."""

    state: bytes
    value: bytes = b""
    side: bytes = b""
    expires_ms: int = 0


def _versioned_records(
    raws: list[bytes | None], sides: list[bytes | None], expiries: list[int], wrong_types: frozenset[int]
) -> list[VersionedRecord]:
    records: list[VersionedRecord] = []
    for at, raw in enumerate(raws):
        side, expires_ms = sides[at] if sides else None, expiries[at] if expiries else 0
        if at in wrong_types:
            records.append(VersionedRecord(wrong_type(side), RecordBytes(b"o", b"", side or b"")))
        else:
            version = RecordBytes(b"a" if raw is None else b"v", raw or b"", side or b"", expires_ms)
            records.append(VersionedRecord(stored(raw, expires_ms, side), version))
    return records


def _changes_side(write: Write) -> bool:
    return is_remembered(write) or (isinstance(write, Delete) and write.forget)


def _arguments(replacement: Replacement, raw: bytes) -> tuple[bytes, ...]:
    """Return the arguments of the script. `raw` is empty to delete the record."""
    version, new = replacement.version, replacement.changed.stored
    ttl_ms = 0 if new is None else new.expires_ms
    # A new expiry is a time to live, which no time of expiry equals.
    put = b"k" if version.state == b"v" and ttl_ms == version.expires_ms else b"p"
    side = (b"t", version.side, pack_side(new)) if _changes_side(replacement.write) else (b"u", b"", b"")
    return (version.state, version.value, put if raw else b"d", raw, b"%d" % ttl_ms, *side)


def _outcome(replacement: Replacement, raw: bytes, result: Reply) -> Outcome | bool:
    if isinstance(result, TableError):
        return result
    if result == RECORD_CHANGED:
        return False
    if not raw:
        return True
    outcome = replacement.changed.outcome
    assert isinstance(outcome, Written)
    return msgspec.structs.replace(outcome, etag=etag_of(raw), expires_ms=result)
