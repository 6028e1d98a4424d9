"""Reads for Gets, writes and scans: many records in one round trip per node.

Large reads use MGET (GETs on a cluster), followed by a check whether any key of the database has an expiry. A script
that also returns the expiry and type of each record is used for small reads, and for databases with expiring keys.
"""

import time
from collections.abc import Sequence
from functools import partial
from itertools import chain

import msgspec

from ...core import BoundedReads, Outcome, ReadBudget, TableError
from .connection import EXPIRY_UNKNOWN
from .errors import from_unexpected_reply
from .keys import slot_of
from .records import read_all, wrong_type
from .scripts import FAILURE, Command, Script
from .servers import Servers

SCRIPT_RECORDS_MAX = 16
"""Reads of up to this many records are faster with the script."""

EXPIRY_CHECK_S = 1.0
"""How long to assume that a database has expiring records after it had some."""

READ = Script(
    FAILURE
    + """
-- Returns three lists: the values (nil: absent), their expiries in Unix ms (empty if none expires), and the positions
-- of keys that are not strings.
local values, expiries, wrong_types, expiring = {}, {}, {}, false
for index, key in ipairs(KEYS) do
  local value, expires = redis.pcall('GET', key), 0
  if type(value) == 'table' then
    if string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then return failure(value) end
    wrong_types[#wrong_types + 1] = index
    value = false
  elseif value then
    expires = redis.call('PEXPIRETIME', key)
    if expires > 0 then expiring = true else expires = 0 end
  end
  values[index], expiries[index] = value, expires
end
return {values, expiring and expiries or {}, wrong_types}
"""
)


class ScriptResult(msgspec.Struct, frozen=True):
    """The reply of one call of the script.

    `expiries` is empty if no record expires. `wrong_types` are the positions of keys that are not strings.
    """

    values: list[bytes | None]
    expiries: list[int]
    wrong_types: frozenset[int]


class RecordReader:
    """Reads records of one table by the names of their Redis keys."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._expiring_until = 0.0
        self._bounded = BoundedReads()

    async def get(self, names: Sequence[str], until: float) -> Sequence[Outcome]:
        """Return the outcomes of Gets. Large records are read in several calls."""
        if len(names) == 1:
            return await self._get_by_script(names, until)
        return await self._bounded.read(names, partial(self._get, until))

    async def _get(self, until: float, names: Sequence[str], budget: ReadBudget) -> Sequence[Outcome]:
        if len(names) <= SCRIPT_RECORDS_MAX or time.monotonic() < self._expiring_until:
            return await self._get_by_script(names, until, budget)
        if self._servers.is_cluster:
            parts: Sequence[Sequence[int]] = [(at,) for at in range(len(names))]
            commands = [Command(("GET", name), slot_of(name)) for name in names]
        else:
            parts = [part for part, _ in self._servers.groups(names)]
            commands = [Command(("MGET",), names=[names[part[0] : part[-1] + 1]]) for part in parts]
        raws, failed, retried = list[bytes | None]([None]) * len(names), dict[int, TableError](), list[int]()
        replies = await self._servers.run(commands, until, budget=budget, check_expiry=True)
        for positions, reply in zip(parts, replies, strict=True):
            found = reply if type(reply) is list else [reply]
            if reply is EXPIRY_UNKNOWN:
                self._expiring_until = time.monotonic() + EXPIRY_CHECK_S
                retried += positions
            elif len(found) == len(positions) and set(map(type, found)) <= _STRINGS:
                raws[positions[0] : positions[-1] + 1] = found
                if not self._servers.is_cluster and None in found:
                    retried += [at for at in positions if raws[at] is None]
            else:
                failed.update(dict.fromkeys(positions, from_unexpected_reply(reply)))
        results = read_all(raws, (), failed)
        # MGET returns nothing for lists and hashes.
        exact = await self._get_by_script([names[at] for at in retried], until, budget) if retried else []
        if not any(exact):
            return results
        outcomes = [*results]
        for position, outcome in zip(retried, exact, strict=True):
            outcomes[position] = outcome
        return outcomes

    async def _get_by_script(
        self, names: Sequence[str], until: float, budget: ReadBudget | None = None
    ) -> Sequence[Outcome]:
        calls = await self.read_by_script(names, until, budget=budget)
        parts: list[Sequence[Outcome]] = [
            [found] * len(positions)
            if isinstance(found, TableError)
            else read_all(found.values, found.expiries, dict.fromkeys(found.wrong_types, wrong_type()))
            for positions, found in calls
        ]
        if len(parts) == 1:
            return parts[0]
        by_position = dict(zip(chain.from_iterable(positions for positions, _ in calls), chain(*parts), strict=True))
        return [by_position[position] for position in range(len(names))]

    async def read_by_script(
        self, names: Sequence[str], until: float, side_names: Sequence[str] = (), budget: ReadBudget | None = None
    ) -> list[tuple[Sequence[int], ScriptResult | TableError]]:
        """Read by the script and return the positions and result of each call, NOT_READ beyond the `budget`.

        If there are `side_names`, the result also contains the side key of each position, after the records.
        """
        groups = self._servers.groups(names)
        commands = [
            Command((), slot, READ, [[keys[at] for at in positions] for keys in (names, side_names) if keys])
            for positions, slot in groups
        ]
        calls = list[tuple[Sequence[int], ScriptResult | TableError]]()
        for (positions, _), reply in zip(groups, await self._servers.run(commands, until, budget=budget), strict=True):
            count = len(positions) * (2 if side_names else 1)
            match reply:
                case [[*values], [*expiries], [*wrong_types]] if len(values) == count and len(expiries) in (0, count):
                    found = ScriptResult(values, expiries, frozenset(position - 1 for position in wrong_types))
                    calls.append((positions, found))
                case _:
                    calls.append((positions, from_unexpected_reply(reply)))
        return calls


_STRINGS = {bytes, type(None)}
