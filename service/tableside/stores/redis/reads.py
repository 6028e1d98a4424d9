"""Gets, and what writes and scans must read: many records in one round trip per node.

Many records at once are an MGET (on a cluster GETs), followed by the question whether the database holds anything that
expires. Only where it does, and for few records, a script is called, which tells expiry and type of each.
"""

import asyncio
from collections.abc import Sequence
from itertools import chain

import msgspec

from ...core import Key, Outcome, TableError
from .connection import EXPIRING, Reply
from .errors import failed
from .keys import Names, slot_of
from .records import other_type, read, read_all
from .scripts import READ, Command, call
from .topology import Servers

FEW = 16
"""Up to so many records the script is the quicker way."""

EXPIRING_S = 1.0
"""How long it is taken for granted that a database holds records that expire."""


class Found(msgspec.Struct, frozen=True):
    """What one call of the script has read: the values, when they expire, and which are no strings."""

    values: list[bytes | None]
    expiries: list[int]
    others: frozenset[int]

    def outcomes(self) -> list[Outcome]:
        """Return what Gets answer."""
        outcomes: list[Outcome] = read_all(self.values) if not self.expiries else []
        if self.expiries:
            outcomes = [*map(read, self.values, self.expiries)]
        for position in self.others:
            outcomes[position] = other_type()
        return outcomes


class Reads:
    """Reads records of one table."""

    def __init__(self, servers: Servers, names: Names) -> None:
        self._servers = servers
        self._names = names
        self._expiring_until = 0.0

    async def get(self, keys: Sequence[Key], until: float) -> list[Outcome]:
        """Return what Gets answer."""
        return await self.named(self._names.of(keys), until)

    async def named(self, names: Sequence[str], until: float) -> list[Outcome]:
        """Return what Gets of the records of these names answer."""
        if len(names) <= FEW or asyncio.get_running_loop().time() < self._expiring_until:
            return await self._exactly(names, until)
        outcomes: list[Outcome] = [None] * len(names)
        again: list[int] = []
        commands = self._plain(names)
        for command, reply in zip(commands, await self._servers.read(commands, until), strict=True):
            if reply is EXPIRING:
                again += command.positions
                self._expiring_until = asyncio.get_running_loop().time() + EXPIRING_S
            else:
                start, stop = command.positions[0], command.positions[-1] + 1
                outcomes[start:stop] = self._values(reply, stop - start)
        if not self._servers.several:
            again += await self._of_other_types(names, outcomes, set(again), until)
        if again:
            exact = await self._exactly([names[position] for position in again], until)
            for position, outcome in zip(again, exact, strict=True):
                outcomes[position] = outcome
        return outcomes

    async def exactly(
        self, names: Sequence[str], until: float, beside: Sequence[str] = ()
    ) -> list[tuple[Sequence[int], Found | TableError]]:
        """Read by the script; return what was read of which positions.

        Of `beside`, if there is any, the key of each position is read too, and stands after the records.
        """
        groups = self._servers.groups(names)
        commands = [
            call(
                READ,
                [keys[position] for keys in (names, beside) if keys for position in group.positions],
                (),
                group.positions,
                group.slot,
            )
            for group in groups
        ]
        replies = await self._servers.run(commands, until)
        times = 2 if beside else 1
        return [
            (command.positions, _found(reply, times * len(command.positions)))
            for command, reply in zip(commands, replies, strict=True)
        ]

    async def _exactly(self, names: Sequence[str], until: float) -> list[Outcome]:
        outcomes: list[Outcome] = [None] * len(names)
        for positions, found in await self.exactly(names, until):
            answers = [found] * len(positions) if isinstance(found, TableError) else found.outcomes()
            for position, answer in zip(positions, answers, strict=True):
                outcomes[position] = answer
        return outcomes

    def _plain(self, names: Sequence[str]) -> list[Command]:
        if self._servers.several:
            return [Command(("GET", name), (index,), slot_of(name)) for index, name in enumerate(names)]
        return [
            Command(("MGET", *names[group.positions[0] : group.positions[-1] + 1]), group.positions)
            for group in self._servers.groups(names)
        ]

    def _values(self, reply: Reply, count: int) -> list[Outcome]:
        values = [reply] if self._servers.several and (reply is None or type(reply) is bytes) else reply
        if type(values) is not list or len(values) != count:
            return [failed(reply)] * count
        try:
            return read_all(values)
        except TypeError:  # Something else than text and nothing: no answer of Redis.
            return [failed(None)] * count

    async def _of_other_types(
        self, names: Sequence[str], outcomes: Sequence[Outcome], known: set[int], until: float
    ) -> list[int]:
        """Return which of the records that MGET showed as absent to look at again: it shows a list or a hash so."""
        absent = [index for index, outcome in enumerate(outcomes) if outcome is None and index not in known]
        groups = self._servers.groups([names[index] for index in absent])
        parts = [[absent[position] for position in group.positions] for group in groups]
        commands = [Command(("EXISTS", *(names[index] for index in part)), part) for part in parts]
        replies = await self._servers.run(commands, until) if commands else []
        return list(chain.from_iterable(part for part, reply in zip(parts, replies, strict=True) if reply != 0))


def _found(reply: Reply, count: int) -> Found | TableError:
    match reply:
        case [[*values], [*expiries], [*others]] if len(values) == count and len(expiries) in (0, count):
            return Found(values, expiries, frozenset(position - 1 for position in others))
    return failed(reply)
