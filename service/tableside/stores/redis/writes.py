"""Puts and deletes without conditions: many in one call of a script."""

from collections.abc import Sequence

from ...core import Changed, Delete, Key, Outcome, Put, TableError, TableSpec, Written, Yielder, chunks_of, transition
from .connection import REQUEST_BYTES_MAX
from .keys import KeyNames
from .record_scripts import RecordBatch, RecordScripts, script_results
from .records import etag_of, pack
from .scripts import Command
from .topology import COMMAND_KEYS_MAX, Servers

PACKED_PUTS = 250
"""How many puts are packed before other requests have a turn."""


class RecordWriter:
    """Writes records of one table without reading them first."""

    def __init__(self, servers: Servers, names: KeyNames, scripts: RecordScripts, spec: TableSpec) -> None:
        self._servers = servers
        self._names = names
        self._scripts = scripts
        self._spec = spec

    async def put(self, puts: Sequence[Put], until: float) -> list[Outcome]:
        """Apply plain puts in one round trip per node."""
        raws, yielder = list[bytes](), Yielder()
        for some in chunks_of(puts, PACKED_PUTS):
            raws += [pack(put.value) for put in some]
            await yielder.maybe_yield()
        written = await self._write([put.key for put in puts], [(raw, 0) for raw in raws], until)
        outcomes: list[Outcome] = [None] * len(puts)
        yielder = Yielder()
        for positions, results in written:
            for index, result in zip(positions, results, strict=True):
                outcomes[index] = result if isinstance(result, TableError) else Written(etag_of(raws[index]))
            await yielder.maybe_yield()
        return outcomes

    async def apply(self, writes: Sequence[Put | Delete], until: float) -> list[Outcome]:
        """Apply the writes in one round trip per node."""
        outcomes: list[Outcome] = [None] * len(writes)
        values: dict[int, tuple[bytes, int]] = {}
        yielder = Yielder()
        for index, write in enumerate(writes):
            if yielder.due:
                await yielder.maybe_yield()
            outcomes[index], value, ttl_ms = self._plan(write)
            if not isinstance(outcomes[index], TableError):
                values[index] = value, ttl_ms
        indexes = list(values)
        written = await self._write([writes[index].key for index in indexes], list(values.values()), until)
        yielder = Yielder()
        for positions, results in written:
            for position, result in zip(positions, results, strict=True):
                index = indexes[position]
                outcomes[index] = _outcome(outcomes[index], values[index][0], result)
            await yielder.maybe_yield()
        return outcomes

    async def _write(
        self, keys: Sequence[Key], values: Sequence[tuple[bytes, int]], until: float
    ) -> list[tuple[Sequence[int], list[int | TableError]]]:
        """Write the values, with their times to live in ms. Return the positions and results of each call."""
        batch = RecordBatch(self._names.for_keys(keys), keys, values)
        commands, sizes, yielder = list[Command](), [len(value) for value, _ in values], Yielder()
        for group in self._servers.groups(batch.names):
            for part in chunks_of(group.positions, COMMAND_KEYS_MAX, REQUEST_BYTES_MAX, sizes.__getitem__):
                commands.append(self._scripts.write(batch, part, group.slot))
                await yielder.maybe_yield()
        replies = await self._servers.run(commands, until, writes=True)
        return [
            (command.positions, script_results(reply, len(command.positions)))
            for command, reply in zip(commands, replies, strict=True)
        ]

    def _plan(self, write: Put | Delete) -> tuple[Outcome, bytes, int]:
        """Return the expected outcome, the bytes to store (empty: delete) and the time to live in ms (0: no expiry)."""
        if isinstance(write, Delete):
            return Written(None), b"", 0
        # At time 0 the expiry equals the time to live, which Redis counts from the server's time.
        planned = transition(None, write, self._spec, now_ms=0, etag="")
        if not isinstance(planned, Changed):
            return planned.outcome, b"", 0
        assert planned.stored is not None
        return planned.outcome, pack(write.value), planned.stored.expires_ms


def _outcome(outcome: Outcome, raw: bytes, result: int | TableError) -> Outcome:
    if isinstance(result, TableError) or not raw:
        return result if isinstance(result, TableError) else outcome
    assert isinstance(outcome, Written)
    return Written(etag_of(raw), outcome.created, False, outcome.value, result)
