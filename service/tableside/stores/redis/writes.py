"""Puts and deletes without conditions: many in one call of a script."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ...core import (
    Batch,
    CompareAndSet,
    Outcome,
    Results,
    TableError,
    TableSpec,
    Written,
    chunks_of,
    expiry_ms,
)
from .connection import REQUEST_BYTES_MAX
from .keys import KeyNames
from .put_scripts import UNDECIDED
from .record_scripts import RecordBatch, RecordScripts, script_results
from .records import etag_of, pack_all
from .scripts import Command
from .tokens import element
from .topology import COMMAND_KEYS_MAX, Servers

MakeCommand: TypeAlias = Callable[[Sequence[str], Sequence[int], int], Command]
"""Makes the command for a part of a batch, from the names of all records, the part's positions, and its slot."""


class RecordWriter:
    """Writes records of one table without reading them first."""

    def __init__(self, servers: Servers, names: KeyNames, scripts: RecordScripts, spec: TableSpec) -> None:
        self._servers = servers
        self._names = names
        self._scripts = scripts
        self._spec = spec

    async def put(self, puts: Batch, until: float) -> Results:
        """Apply puts without conditions and tokens in one round trip per node."""
        raws, ttls_ms = pack_all(puts.columns["value"]), self._ttls_ms(puts)
        distinct = set(ttls_ms)

        def command(names: Sequence[str], part: Sequence[int], slot: int) -> Command:
            if self._scripts.indexed:
                batch = RecordBatch(names, puts.keys, [*zip(raws, ttls_ms, strict=True)])
                return self._scripts.write(batch, part, slot)
            values: list[bytes | int] = [raws[at] for at in part]
            if distinct != {0}:
                values += [*distinct] if len(distinct) == 1 else [ttls_ms[at] for at in part]
            return self._scripts.put([names[at] for at in part], values, part, slot)

        return _written(puts, raws, await self._run(command, puts.keys, raws, until))

    async def put_once(self, puts: Batch, compare_and_set: CompareAndSet, until: float) -> Sequence[Outcome]:
        """Apply puts with simple tokens and without conditions in one round trip per node.

        `compare_and_set` applies those whose tokens are not certainly new, and those of records that it is retrying.
        """
        raws, ttls_ms = pack_all(puts.columns["value"]), self._ttls_ms(puts)
        elements = {token: element(token) for token in set(puts.columns["token"])}
        arguments = [*zip(raws, ttls_ms, [elements[token] for token in puts.columns["token"]], strict=True)]
        contended = [at for at, key in enumerate(puts.keys) if compare_and_set.is_contended(key)]
        if contended:
            return await compare_and_set.apply(puts, until)

        def command(names: Sequence[str], part: Sequence[int], slot: int) -> Command:
            return self._scripts.put_once(RecordBatch(names, puts.keys, arguments), part, slot)

        results = await self._run(command, puts.keys, raws, until)
        written = _written(puts, raws, results)
        undecided = [at for at, result in enumerate(results) if result == UNDECIDED]
        if not undecided:
            return written
        outcomes = [*written]
        decided = await compare_and_set.apply(puts.at(undecided), until)
        for at, outcome in zip(undecided, decided, strict=True):
            outcomes[at] = outcome
        return outcomes

    async def delete(self, deletes: Batch, until: float) -> Results:
        """Apply deletes without conditions and tokens in one round trip per node."""
        batch_arguments = [(b"", 0)] * len(deletes)

        def command(names: Sequence[str], part: Sequence[int], slot: int) -> Command:
            return self._scripts.write(RecordBatch(names, deletes.keys, batch_arguments), part, slot)

        results = await self._run(command, deletes.keys, [b""] * len(deletes), until)
        return Results(Written, {"etag": [None] * len(deletes)}, _failed(results))

    async def _run(
        self, command: MakeCommand, keys: Sequence[Any], raws: Sequence[bytes], until: float
    ) -> list[int | TableError]:
        """Call a script for all records, and return the result of each."""
        names, sizes = self._names.for_keys(keys), list(map(len, raws))
        commands = [
            command(names, part, group.slot)
            for group in self._servers.groups(names)
            for part in chunks_of(group.positions, COMMAND_KEYS_MAX, REQUEST_BYTES_MAX, sizes.__getitem__)
        ]
        results: list[int | TableError] = [0] * len(names)
        for sent, reply in zip(commands, await self._servers.run(commands, until, writes=True), strict=True):
            for position, result in zip(sent.positions, script_results(reply, len(sent.positions)), strict=True):
                results[position] = result
        return results

    def _ttls_ms(self, puts: Batch) -> list[int]:
        """Return the times to live in ms, 0 for none. At time 0 an expiry equals the time to live."""
        ttls_s = puts.cells("ttl_s")
        distinct = {ttl_s: expiry_ms(self._spec.ttl_s if ttl_s is None else ttl_s, 0) for ttl_s in set(ttls_s)}
        return [distinct[ttl_s] for ttl_s in ttls_s]


def _written(puts: Batch, raws: Sequence[bytes], results: Sequence[int | TableError]) -> Results:
    """Return the outcomes of puts, where each result is an expiry or an error."""
    columns: dict[str, Sequence[Any]] = {"etag": list(map(etag_of, raws))}
    if "returning" in puts.columns:
        both = zip(puts.columns["value"], puts.columns["returning"], strict=True)
        columns["value"] = [value if returning else None for value, returning in both]
    if any(results):
        columns["expires_ms"] = results
    return Results(Written, columns, _failed(results))


def _failed(results: Sequence[int | TableError]) -> dict[int, TableError]:
    if set(map(type, results)) <= {int}:
        return {}
    return {at: result for at, result in enumerate(results) if isinstance(result, TableError)}
