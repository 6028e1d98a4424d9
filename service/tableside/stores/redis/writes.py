"""Puts and deletes without conditions: many in one call of a script."""

from collections.abc import Iterator, Sequence

from ...core import Changed, Delete, Outcome, Put, TableError, TableSpec, Written, Yielder, chunks_of, transition
from .connection import REQUEST_BYTES_MAX
from .keys import KeyNames
from .record_scripts import RecordBatch, RecordScripts, script_results
from .records import etag_of, pack
from .scripts import Command
from .topology import COMMAND_KEYS_MAX, Servers

PLAIN_BYTES_MAX = 2**20
"""`transition` checks the size of larger values."""


class RecordWriter:
    """Writes records of one table without reading them first."""

    def __init__(self, servers: Servers, names: KeyNames, scripts: RecordScripts, spec: TableSpec) -> None:
        self._servers = servers
        self._names = names
        self._scripts = scripts
        self._spec = spec

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
        keys = [writes[index].key for index in values]
        batch = RecordBatch(self._names.for_keys(keys), keys, list(values.values()))
        commands, sizes = list[Command](), [len(value) for value, _ in values.values()]
        for command in self._commands(batch, list(values), sizes):
            commands.append(command)
            if yielder.due:
                await yielder.maybe_yield()
        replies = await self._servers.run(commands, until, writes=True)
        yielder = Yielder()
        for command, reply in zip(commands, replies, strict=True):
            for index, result in zip(command.positions, script_results(reply, len(command.positions)), strict=True):
                outcomes[index] = _outcome(outcomes[index], values[index][0], result)
            if yielder.due:
                await yielder.maybe_yield()
        return outcomes

    def _plan(self, write: Put | Delete) -> tuple[Outcome, bytes, int]:
        """Return the expected outcome, the bytes to store (empty: delete) and the time to live in ms (0: no expiry)."""
        if isinstance(write, Delete):
            return Written(None), b"", 0
        if write.ttl_s is None and self._spec.ttl_s is None and len(write.value) <= PLAIN_BYTES_MAX:
            return Written("", value=write.value if write.returning else None), pack(write.value), 0
        # At time 0 the expiry equals the time to live, which Redis counts from the server's time.
        planned = transition(None, write, self._spec, now_ms=0, etag="")
        if not isinstance(planned, Changed):
            return planned.outcome, b"", 0
        assert planned.stored is not None
        return planned.outcome, pack(write.value), planned.stored.expires_ms

    def _commands(self, batch: RecordBatch, positions: Sequence[int], sizes: Sequence[int]) -> Iterator[Command]:
        for group in self._servers.groups(batch.names):
            for part in chunks_of(group.positions, COMMAND_KEYS_MAX, REQUEST_BYTES_MAX, sizes.__getitem__):
                yield self._scripts.write(batch, part, group.slot, [positions[at] for at in part])


def _outcome(outcome: Outcome, raw: bytes, result: int | TableError) -> Outcome:
    if isinstance(result, TableError) or not raw:
        return result if isinstance(result, TableError) else outcome
    assert isinstance(outcome, Written)
    return Written(etag_of(raw), outcome.created, False, outcome.value, result)
