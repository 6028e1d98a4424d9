"""Compare-and-set in Redis: read records, and replace those whose bytes have not changed.

Comparing bytes also detects writes of other tools. Side keys with the tokens of writers are read and compared only for
writes that carry a token. Expiry times are times to live, which the server counts.
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from ...core import (
    UPDATE_BYTES_MAX,
    BoundedReads,
    Key,
    Outcome,
    ReadBudget,
    Replacement,
    TableError,
    Update,
    VersionedRecord,
    Written,
    chunks_of,
)
from .connection import REQUEST_BYTES_MAX
from .keys import KeyNames, side_key
from .reads import RecordReader, ScriptResult
from .record_scripts import RecordBatch, RecordScripts, script_results
from .records import etag_of, pack, pack_writers, stored, wrong_type
from .topology import COMMAND_KEYS_MAX, Servers

RECORD_CHANGED = -1
"""The script's result for a record that has changed since it was read."""


class RecordBytes(msgspec.Struct, frozen=True):
    """The bytes that were read. `state` is `a` for absent, `v` for a value, `o` for another type than a string."""

    state: str
    value: bytes = b""
    side: bytes = b""


class RedisVersionedRecords:
    """Reads and replaces records of one table, with their side keys if `tokened`."""

    def __init__(
        self, servers: Servers, names: KeyNames, reads: RecordReader, scripts: RecordScripts, *, tokened: bool
    ) -> None:
        self._servers = servers
        self._names = names
        self._reads = reads
        self._scripts = scripts
        self._tokened = tokened
        self._bounded = BoundedReads(UPDATE_BYTES_MAX)

    async def read(self, keys: Sequence[Key], until: float) -> Sequence[VersionedRecord | TableError]:
        """Read records with their expiry. Large records are read in several calls."""
        return await self._bounded.read(self._names.for_keys(keys), partial(self._read, until))

    async def _read(
        self, until: float, names: Sequence[str], budget: ReadBudget
    ) -> Sequence[VersionedRecord | TableError]:
        side_names = [side_key(name) for name in names] if self._tokened else []
        records: dict[int, VersionedRecord | TableError] = {}
        for positions, found in await self._reads.read_by_script(names, until, side_names, budget):
            for at, position in enumerate(positions):
                records[position] = (
                    found if isinstance(found, TableError) else _versioned_record(found, at, len(positions))
                )
        return [records[position] for position in range(len(names))]

    async def replace(self, replacements: Sequence[Replacement], until: float) -> list[Outcome | bool]:
        """Replace records that have not changed since they were read. The outcomes include the expiry."""
        keys = [replacement.write.key for replacement in replacements]
        raws = [_raw(replacement) for replacement in replacements]
        arguments = [*map(_arguments, replacements, raws)]
        sizes = [len(raw) + len(replacement.version.value) for raw, replacement in zip(raws, replacements, strict=True)]
        batch = RecordBatch(self._names.for_keys(keys), keys, arguments)
        commands = [
            self._scripts.replace(batch, part, group.slot)
            for group in self._servers.groups(batch.names)
            for part in chunks_of(group.positions, COMMAND_KEYS_MAX, REQUEST_BYTES_MAX, sizes.__getitem__)
        ]
        outcomes: list[Outcome | bool] = [None] * len(replacements)
        for command, reply in zip(commands, await self._servers.run(commands, until, writes=True), strict=True):
            for position, result in zip(command.positions, script_results(reply, len(command.positions)), strict=True):
                outcomes[position] = _outcome(replacements[position], raws[position], result)
        return outcomes


def _versioned_record(found: ScriptResult, at: int, count: int) -> VersionedRecord:
    """Return the record at an index. The side keys, if any were read, follow the `count` records."""
    raw, side = found.values[at], None
    if len(found.values) > count:
        side = found.values[at + count]
    if at in found.wrong_types:
        return VersionedRecord(wrong_type(side), RecordBytes("o", b"", side or b""))
    expires_ms = found.expiries[at] if found.expiries else 0
    version = RecordBytes("a" if raw is None else "v", raw or b"", side or b"")
    return VersionedRecord(stored(raw, expires_ms, side), version)


def _raw(replacement: Replacement) -> bytes:
    new = replacement.changed.stored
    return b"" if new is None or new.value is None else pack(new.value)


def _arguments(replacement: Replacement, raw: bytes) -> tuple[str | bytes | int, ...]:
    version: RecordBytes = replacement.version
    new = replacement.changed.stored
    ttl_ms = 0 if new is None else new.expires_ms
    side: tuple[str | bytes, ...] = ("u", b"", b"")
    if replacement.write.token is not None:
        assert new is not None
        side = ("t", version.side, pack_writers(new.writers, deleted=not raw))
    return (version.state, version.value, _action(replacement, raw), raw, ttl_ms, *side)


def _action(replacement: Replacement, raw: bytes) -> str:
    """Return the script's action: `d` delete, `k` put and keep the expiry, `p` put."""
    if not raw:
        return "d"
    exists = replacement.version.state == "v"
    return "k" if exists and isinstance(replacement.write, Update) and replacement.write.ttl_s is None else "p"


def _outcome(replacement: Replacement, raw: bytes, result: int | TableError) -> Outcome | bool:
    if isinstance(result, TableError):
        return result
    if result == RECORD_CHANGED:
        return False
    if not raw:
        return True
    outcome = replacement.changed.outcome
    assert isinstance(outcome, Written)
    return Written(etag_of(raw), outcome.created, False, outcome.value, result)
