"""Puts and deletes without conditions: many in one call of a script."""

from collections.abc import Callable, Sequence
from itertools import chain

import pyarrow.compute as pc

from ...core import (
    Changed,
    CompareAndSet,
    Delete,
    Operation,
    Outcome,
    Put,
    PutColumn,
    TableError,
    TableSpec,
    Written,
    WrittenColumn,
    Yielder,
    chunks_of,
    etag_column,
    is_unconditional,
    transition,
)
from .connection import REQUEST_BYTES_MAX
from .driver import Reply
from .keys import KeyNames
from .put_scripts import UNDECIDED
from .record_scripts import RecordBatch, RecordScripts, script_results
from .records import etag_of, etags_of, pack, pack_all
from .scripts import Command
from .tokens import element, is_simple
from .topology import COMMAND_KEYS_MAX, Servers

PACKED_PUTS = 250
"""How many puts are packed before other requests have a turn."""

COLUMN_VALUE_BYTES_MAX = 2**12
"""The maximum size of a value that is sent from a column. Packing a column prepares a text for each possible length."""

PUT_ONCE_BYTES_MAX = 2**20
"""The maximum size of a value that `put_once` writes. `transition` checks the size of larger values."""


class RecordWriter:
    """Writes records of one table without reading them first."""

    def __init__(self, servers: Servers, names: KeyNames, scripts: RecordScripts, spec: TableSpec) -> None:
        self._servers = servers
        self._names = names
        self._scripts = scripts
        self._spec = spec

    async def put(self, puts: Sequence[Put], until: float) -> list[Outcome]:
        """Apply plain puts in one round trip per node."""
        raws = await _packed(puts)
        written = await self._write(self._scripts.put, puts, [(raw,) for raw in raws], until)
        outcomes: list[Outcome] = [None] * len(puts)
        yielder = Yielder()
        for positions, results in written:
            for index, result in zip(positions, results, strict=True):
                outcomes[index] = result if isinstance(result, TableError) else Written(etag_of(raws[index]))
            await yielder.maybe_yield()
        return outcomes

    async def put_column(self, puts: PutColumn, until: float) -> Sequence[Outcome]:
        """Apply plain puts in one round trip to a server that is no cluster, for a table without an index."""
        names, longest = self._names.for_column(puts.keys), pc.max(pc.binary_length(puts.values)).as_py() or 0
        if not 0 < longest <= COLUMN_VALUE_BYTES_MAX or not names.have_usual_side_keys:
            return await self.put(puts, until)
        commands, etags, yielder = list[Command](), list[str](), Yielder()
        step = min(COMMAND_KEYS_MAX, REQUEST_BYTES_MAX // longest)
        for start in range(0, len(puts), step):
            part = slice(start, start + step)
            raws = pack_all(puts.values[part])
            etags.append(etags_of(raws.to_pylist()))
            commands.append(self._scripts.put_column(names[part], raws, range(len(puts))[part]))
            await yielder.maybe_yield()
        replies = await self._servers.run(commands, until, writes=True)
        written = WrittenColumn(etag_column("".join(etags), puts.keys))
        results = list(chain.from_iterable(map(_results, commands, replies)))
        if results.count(0) == len(puts):
            return written
        return [result if isinstance(result, TableError) else one for one, result in zip(written, results, strict=True)]

    async def put_once(self, puts: Sequence[Put], compare_and_set: CompareAndSet, until: float) -> list[Outcome]:
        """Apply puts for which `is_put_once` is true in one round trip per node.

        `compare_and_set` applies those whose tokens are not certainly new, and those of records that it is retrying.
        """
        sent = [index for index, put in enumerate(puts) if not compare_and_set.is_contended(put.key)]
        planned = [puts[index] for index in sent]
        arguments = await self._once(planned)
        outcomes: dict[int, Outcome] = {}
        yielder = Yielder()
        for positions, results in await self._write(self._scripts.put_once, planned, arguments, until):
            for position, result in zip(positions, results, strict=True):
                if result != UNDECIDED:
                    outcomes[sent[position]] = _put_outcome(planned[position], arguments[position][0], result)
            await yielder.maybe_yield()
        others = [index for index in range(len(puts)) if index not in outcomes]
        if others:
            decided = await compare_and_set.apply([puts[index] for index in others], until)
            outcomes.update(zip(others, decided, strict=True))
        return [outcomes[index] for index in range(len(puts))]

    async def _once(self, puts: Sequence[Put]) -> list[tuple[bytes, int, bytes]]:
        """Return the arguments of the script for each put: the value, the time to live in ms, and the token."""
        arguments, yielder = list[tuple[bytes, int, bytes]](), Yielder()
        elements, ttls_ms = dict[int, bytes](), dict[float | None, int]()
        for some in chunks_of(puts, PACKED_PUTS):
            for put in some:
                assert put.token is not None
                if id(put.token) not in elements:
                    elements[id(put.token)] = element(put.token)
                if put.ttl_s not in ttls_ms:
                    _, _, ttls_ms[put.ttl_s] = self._plan(put)
                arguments.append((pack(put.value), ttls_ms[put.ttl_s], elements[id(put.token)]))
            await yielder.maybe_yield()
        return arguments

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
        planned = [writes[index] for index in indexes]
        written = await self._write(self._scripts.write, planned, list(values.values()), until)
        yielder = Yielder()
        for positions, results in written:
            for position, result in zip(positions, results, strict=True):
                index = indexes[position]
                outcomes[index] = _outcome(outcomes[index], values[index][0], result)
            await yielder.maybe_yield()
        return outcomes

    async def _write(
        self,
        script_call: Callable[[RecordBatch, Sequence[int], int], Command],
        writes: Sequence[Put | Delete],
        arguments: Sequence[tuple[bytes, *tuple[bytes | int, ...]]],
        until: float,
    ) -> list[tuple[Sequence[int], list[int | TableError]]]:
        """Call a script whose first argument for each write is the value. Return each call's positions and results."""
        keys = [write.key for write in writes]
        batch = RecordBatch(self._names.for_keys(keys), keys, arguments)
        commands, sizes, yielder = list[Command](), [len(value) for value, *_ in arguments], Yielder()
        for group in self._servers.groups(batch.names):
            for part in chunks_of(group.positions, COMMAND_KEYS_MAX, REQUEST_BYTES_MAX, sizes.__getitem__):
                commands.append(script_call(batch, part, group.slot))
                await yielder.maybe_yield()
        replies = await self._servers.run(commands, until, writes=True)
        return [(command.positions, _results(command, reply)) for command, reply in zip(commands, replies, strict=True)]

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


def is_put_once(operation: Operation) -> bool:
    """Return whether an operation is a put for `put_once`."""
    return (
        isinstance(operation, Put)
        and operation.token is not None
        and is_simple(operation.token)
        and is_unconditional(operation)
        and len(operation.value) <= PUT_ONCE_BYTES_MAX
    )


async def _packed(puts: Sequence[Put]) -> list[bytes]:
    raws, yielder = list[bytes](), Yielder()
    for some in chunks_of(puts, PACKED_PUTS):
        raws += [pack(put.value) for put in some]
        await yielder.maybe_yield()
    return raws


def _results(command: Command, reply: Reply) -> list[int | TableError]:
    return script_results(reply, len(command.positions))


def _put_outcome(put: Put, raw: bytes, result: int | TableError) -> Outcome:
    if isinstance(result, TableError):
        return result
    return Written(etag_of(raw), value=put.value if put.returning else None, expires_ms=result)


def _outcome(outcome: Outcome, raw: bytes, result: int | TableError) -> Outcome:
    if isinstance(result, TableError) or not raw:
        return result if isinstance(result, TableError) else outcome
    assert isinstance(outcome, Written)
    return Written(etag_of(raw), outcome.created, False, outcome.value, result)
