"""Puts and deletes that ask for nothing: each is done as it is, many in one call of a script."""

from collections.abc import Sequence

from ...core import Changed, Delete, Outcome, Put, TableError, TableSpec, Written, chunks_of, transition
from .connection import REQUEST_BYTES_MAX, Reply
from .errors import failed
from .keys import Names, side
from .records import etag_of, pack
from .scripts import WRITE, Command, call
from .topology import GROUP_MAX, Servers


class Writes:
    """Writes records of one table."""

    def __init__(self, servers: Servers, names: Names, spec: TableSpec) -> None:
        self._servers = servers
        self._names = names
        self._spec = spec

    async def apply(self, writes: Sequence[Put | Delete], until: float) -> list[Outcome]:
        """Do the writes in one round trip per node."""
        outcomes: list[Outcome] = [None] * len(writes)
        values: dict[int, tuple[bytes, int]] = {}
        for index, write in enumerate(writes):
            outcomes[index], value, ttl_ms = self._decided(write)
            if not isinstance(outcomes[index], TableError):
                values[index] = value, ttl_ms
        names = self._names.of([writes[index].key for index in values])
        commands = list(self._commands(names, list(values), list(values.values())))
        for command, reply in zip(commands, await self._servers.run(commands, until, writes=True), strict=True):
            for index, answer in zip(command.positions, answers(reply, len(command.positions)), strict=True):
                outcomes[index] = _outcome(outcomes[index], values[index][0], answer)
        return outcomes

    def _decided(self, write: Put | Delete) -> tuple[Outcome, bytes, int]:
        """Return what the outcome will be, what to keep (nothing: delete it), and for how many ms (0: for ever)."""
        if isinstance(write, Delete):
            return Written(None), b"", 0
        # At time 0, when something expires is how long it lives; Redis knows from when.
        decided = transition(None, write, self._spec, now_ms=0, etag="")
        if not isinstance(decided, Changed):
            return decided.outcome, b"", 0
        assert decided.stored is not None
        return decided.outcome, pack(write.value), decided.stored.expires_ms

    def _commands(
        self, names: Sequence[str], positions: Sequence[int], values: Sequence[tuple[bytes, int]]
    ) -> list[Command]:
        return [
            call(
                WRITE,
                [key for at in part for key in (names[at], side(names[at]))],
                [word for at in part for word in values[at]],
                [positions[at] for at in part],
                group.slot,
            )
            for group in self._servers.groups(names)
            for part in chunks_of(group.positions, GROUP_MAX, REQUEST_BYTES_MAX, lambda at: len(values[at][0]))
        ]


def answers(reply: Reply, count: int) -> list[int | TableError]:
    """Return what a script that writes answered for each record: a number, or what went wrong."""
    if type(reply) is not list or len(reply) != count:
        return [failed(reply, "unknown")] * count
    return [answer if type(answer) is int else failed(answer, "unknown") for answer in reply]


def _outcome(outcome: Outcome, raw: bytes, answer: int | TableError) -> Outcome:
    if isinstance(answer, TableError) or not raw:
        return answer if isinstance(answer, TableError) else outcome
    assert isinstance(outcome, Written)
    return Written(etag_of(raw), outcome.created, False, outcome.value, answer)
