"""Reads for Gets, writes and scans: many records in one round trip per node.

Large reads use MGET (GETs on a cluster), followed by a check whether any key of the database has an expiry. A script
that also returns the expiry and type of each record is used for small reads, and for databases with expiring keys.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from ...core import BoundedReads, Key, Outcome, ReadBudget, Results, TableError
from .connection import EXPIRY_UNKNOWN, Reply
from .errors import from_unexpected_reply
from .keys import KeyNames, slot_of
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

    def results(self) -> Results:
        """Return the outcomes of Gets."""
        return _results(self.values, dict.fromkeys(self.wrong_types, wrong_type()), self.expiries)


class RecordReader:
    """Reads records of one table."""

    def __init__(self, servers: Servers, names: KeyNames) -> None:
        self._servers = servers
        self._names = names
        self._expiring_until = 0.0
        self._bounded = BoundedReads()

    async def get(self, keys: Sequence[Key], until: float) -> Sequence[Outcome]:
        """Return the outcomes of Gets of these keys."""
        return await self.get_names(self._names.for_keys(keys), until)

    async def get_names(self, names: Sequence[str], until: float) -> Sequence[Outcome]:
        """Return the outcomes of Gets of these names of Redis keys. Large records are read in several calls."""
        if len(names) == 1:
            return await self._get_by_script(names, until)
        return await self._bounded.read(names, partial(self._get_names, until))

    async def _get_names(self, until: float, names: Sequence[str], budget: ReadBudget) -> Sequence[Outcome]:
        if len(names) <= SCRIPT_RECORDS_MAX or time.monotonic() < self._expiring_until:
            return await self._get_by_script(names, until, budget)
        commands, raws = self._plain_commands(names), list[bytes | None]([None]) * len(names)
        failed, retried = dict[int, TableError](), list[int]()
        replies = await self._servers.run(commands, until, budget=budget, check_expiry=True)
        for command, reply in zip(commands, replies, strict=True):
            positions, found = command.positions, reply if type(reply) is list else [reply]
            if reply is EXPIRY_UNKNOWN:
                self._expiring_until = time.monotonic() + EXPIRY_CHECK_S
                retried += positions
            elif len(found) == len(positions) and set(map(type, found)) <= _STRINGS:
                raws[positions[0] : positions[-1] + 1] = found
                if not self._servers.is_cluster and None in found:
                    retried += [at for at in positions if raws[at] is None]
            else:
                failed.update(dict.fromkeys(positions, from_unexpected_reply(reply)))
        results = _results(raws, failed)
        # MGET returns nothing for lists and hashes.
        exact = await self._get_by_script([names[at] for at in retried], until, budget) if retried else []
        if not any(exact):
            return results
        outcomes = [*results]
        for position, outcome in zip(retried, exact, strict=True):
            outcomes[position] = outcome
        return outcomes

    async def read_by_script(
        self, names: Sequence[str], until: float, side_names: Sequence[str] = (), budget: ReadBudget | None = None
    ) -> list[tuple[Sequence[int], ScriptResult | TableError]]:
        """Read by the script and return the positions and result of each call, NOT_READ beyond the `budget`.

        If there are `side_names`, the result also contains the side key of each position, after the records.
        """
        commands = []
        for positions, slot in self._servers.groups(names):
            columns = [[keys[at] for at in positions] for keys in (names, side_names) if keys]
            commands.append(Command((), positions, slot, READ, columns))
        replies = await self._servers.run(commands, until, budget=budget)
        keys_per_position = 2 if side_names else 1
        return [
            (command.positions, _parse_result(reply, keys_per_position * len(command.positions)))
            for command, reply in zip(commands, replies, strict=True)
        ]

    async def _get_by_script(
        self, names: Sequence[str], until: float, budget: ReadBudget | None = None
    ) -> Sequence[Outcome]:
        calls = await self.read_by_script(names, until, budget=budget)
        if len(calls) == 1 and isinstance(found := calls[0][1], ScriptResult):
            return found.results()
        outcomes: list[Outcome] = [None] * len(names)
        for positions, found in calls:
            results = [found] * len(positions) if isinstance(found, TableError) else found.results()
            for position, outcome in zip(positions, results, strict=True):
                outcomes[position] = outcome
        return outcomes

    def _plain_commands(self, names: Sequence[str]) -> list[Command]:
        if self._servers.is_cluster:
            return [Command(("GET", name), (index,), slot_of(name)) for index, name in enumerate(names)]
        groups = self._servers.groups(names)
        return [Command(("MGET",), part, names=[names[part[0] : part[-1] + 1]]) for part, _ in groups]


def _results(
    raws: Sequence[bytes | None], failed: Mapping[int, TableError], expiries_ms: Sequence[int] = ()
) -> Results:
    """Return the outcomes of Gets. Those in `failed` have no value."""
    found = read_all(raws, expiries_ms)
    return Results(found.kind, found.columns, {**found.failed, **failed}) if failed else found


_STRINGS = {bytes, type(None)}


def _parse_result(reply: Reply, count: int) -> ScriptResult | TableError:
    match reply:
        case [[*values], [*expiries], [*wrong_types]] if len(values) == count and len(expiries) in (0, count):
            return ScriptResult(values, expiries, frozenset(position - 1 for position in wrong_types))
    return from_unexpected_reply(reply)
