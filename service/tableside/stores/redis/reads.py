"""Reads for Gets, writes and scans: many records in one round trip per node.

Large reads use MGET (GETs on a cluster), followed by a check whether any key of the database has an expiry. A script
that also returns the expiry and type of each record is used for small reads, and for databases with expiring keys.
"""

import time
from collections.abc import Sequence
from functools import partial
from itertools import chain

import msgspec

from ...core import BoundedReads, Key, Outcome, ReadBudget, Results, TableError
from .connection import EXPIRY_UNKNOWN
from .driver import Reply
from .errors import from_unexpected_reply
from .keys import KeyNames, slot_of
from .records import read_all, wrong_type
from .scripts import READ_SCRIPT, Command, script_call
from .topology import Servers

SCRIPT_RECORDS_MAX = 16
"""Reads of up to this many records are faster with the script."""

EXPIRY_CHECK_S = 1.0
"""How long to assume that a database has expiring records after it had some."""


class ScriptResult(msgspec.Struct, frozen=True):
    """The reply of one call of the script.

    `expiries` is empty if no record expires. `wrong_types` are the positions of keys that are not strings.
    """

    values: list[bytes | None]
    expiries: list[int]
    wrong_types: frozenset[int]

    def results(self) -> Results:
        """Return the outcomes of Gets."""
        found = read_all(self.values, self.expiries)
        failed = {**found.failed, **dict.fromkeys(self.wrong_types, wrong_type())}
        return Results(found.kind, found.columns, failed)


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
        commands = self._plain_commands(names)
        reading = _Reading(len(names))
        for command, reply in zip(commands, await self._servers.read(commands, until, budget), strict=True):
            reading.add(command.positions, reply, is_single=self._servers.is_cluster)
        if reading.expiring:
            self._expiring_until = time.monotonic() + EXPIRY_CHECK_S
        results, retried = reading.results(), reading.expiring
        if not self._servers.is_cluster:
            retried = retried + await self._absent_names_that_exist(names, reading.absent, until)
        if not retried:
            return results
        outcomes = [*results]
        exact = await self._get_by_script([names[position] for position in retried], until, budget)
        for position, outcome in zip(retried, exact, strict=True):
            outcomes[position] = outcome
        return outcomes

    async def read_by_script(
        self, names: Sequence[str], until: float, side_names: Sequence[str] = (), budget: ReadBudget | None = None
    ) -> list[tuple[Sequence[int], ScriptResult | TableError]]:
        """Read by the script and return the positions and result of each call, NOT_READ beyond the `budget`.

        If there are `side_names`, the result also contains the side key of each position, after the records.
        """
        groups = self._servers.groups(names)
        commands = [
            script_call(
                READ_SCRIPT,
                [keys[position] for keys in (names, side_names) if keys for position in group.positions],
                (),
                group.positions,
                group.slot,
            )
            for group in groups
        ]
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
        groups = [group.positions for group in self._servers.groups(names)]
        return [Command(("MGET",), part, names=names[part[0] : part[-1] + 1]) for part in groups]

    async def _absent_names_that_exist(self, names: Sequence[str], absent: Sequence[int], until: float) -> list[int]:
        """Return the positions of keys that MGET returned as `absent` but exist: lists, hashes and other types."""
        groups = self._servers.groups([names[index] for index in absent])
        parts = [[absent[position] for position in group.positions] for group in groups]
        commands = [Command(("EXISTS",), part, names=[names[index] for index in part]) for part in parts]
        replies = await self._servers.run(commands, until) if commands else []
        return list(chain.from_iterable(part for part, reply in zip(parts, replies, strict=True) if reply != 0))


class _Reading:
    """The replies to one reading call.

    `expiring` are the positions of records that may expire, which must be read by the script. `absent` are the ones
    without a string.
    """

    def __init__(self, count: int) -> None:
        self.expiring: list[int] = []
        self._raws: list[bytes | None] = [None] * count
        self._failed: dict[int, TableError] = {}

    def add(self, positions: Sequence[int], reply: Reply, *, is_single: bool) -> None:
        """Add the reply of a command: a list, or a value if the command `is_single`."""
        raws = [reply] if is_single and not isinstance(reply, TableError | Exception) else reply
        if reply is EXPIRY_UNKNOWN:
            self.expiring += positions
        elif type(raws) is list and len(raws) == len(positions) and set(map(type, raws)) <= _STRINGS:
            self._raws[positions[0] : positions[-1] + 1] = raws
        else:
            self._failed.update(dict.fromkeys(positions, from_unexpected_reply(reply)))

    @property
    def absent(self) -> list[int]:
        others = {*self.expiring, *self._failed}
        if None not in self._raws:
            return []
        return [at for at, raw in enumerate(self._raws) if raw is None and at not in others]

    def results(self) -> Results:
        """Return the outcomes of Gets."""
        found = read_all(self._raws)
        return Results(found.kind, found.columns, {**found.failed, **self._failed}) if self._failed else found


_STRINGS = {bytes, type(None)}


def _parse_result(reply: Reply, count: int) -> ScriptResult | TableError:
    match reply:
        case [[*values], [*expiries], [*wrong_types]] if len(values) == count and len(expiries) in (0, count):
            return ScriptResult(values, expiries, frozenset(position - 1 for position in wrong_types))
    return from_unexpected_reply(reply)
