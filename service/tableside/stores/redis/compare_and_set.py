"""How records that must be read first are read, and replaced if they are still what was read: by their bytes.

Whoever tells that a record was changed, the bytes do: another tool's write is noticed as ours is. What is remembered of
writers is read and compared only for writes that carry a token. Times are times to live, counted by the server.
"""

from collections.abc import Sequence

import msgspec

from ...core import Key, Outcome, Replacement, Stored, TableError, Update, VersionedRecord, Written, chunks_of
from .connection import REQUEST_BYTES_MAX
from .keys import Names, side
from .reads import Found, Reads
from .records import etag_of, other_type, pack, pack_writers, stored
from .scripts import REPLACE, call
from .topology import GROUP_MAX, Servers
from .writes import answers

CHANGED = -1
"""What the script answers where the record is another one by now."""


class Mark(msgspec.Struct, frozen=True):
    """What was seen: `a` absent, `v` the value, `o` something else than a string; and the side key."""

    state: str
    value: bytes = b""
    memory: bytes = b""


class RedisExchange:
    """Reads and replaces records of one table; `tokened` ones with what is remembered of their writers."""

    def __init__(self, servers: Servers, names: Names, reads: Reads, *, tokened: bool) -> None:
        self._servers = servers
        self._names = names
        self._reads = reads
        self._tokened = tokened

    async def read(self, keys: Sequence[Key], until: float) -> list[VersionedRecord | TableError]:
        """Read records, and when they expire."""
        names = self._names.of(keys)
        beside = [side(name) for name in names] if self._tokened else []
        seen: dict[int, VersionedRecord | TableError] = {}
        for positions, found in await self._reads.exactly(names, until, beside):
            for at, position in enumerate(positions):
                seen[position] = found if isinstance(found, TableError) else _seen(found, at, len(positions))
        return [seen[position] for position in range(len(names))]

    async def replace(self, steps: Sequence[Replacement], until: float) -> list[Outcome | bool]:
        """Replace records that are still as they were seen; the outcomes say when they expire."""
        names = self._names.of([step.write.key for step in steps])
        raws = [_raw(step) for step in steps]
        sizes = [len(raw) + len(step.current.version.value) for raw, step in zip(raws, steps, strict=True)]
        commands = [
            call(
                REPLACE,
                [key for at in part for key in (names[at], side(names[at]))],
                [word for at in part for word in _arguments(steps[at], raws[at])],
                part,
                group.slot,
            )
            for group in self._servers.groups(names)
            for part in chunks_of(group.positions, GROUP_MAX, REQUEST_BYTES_MAX, sizes.__getitem__)
        ]
        outcomes: list[Outcome | bool] = [None] * len(steps)
        for command, reply in zip(commands, await self._servers.run(commands, until, writes=True), strict=True):
            for position, answer in zip(command.positions, answers(reply, len(command.positions)), strict=True):
                outcomes[position] = _outcome(steps[position], raws[position], answer)
        return outcomes


def _seen(found: Found, at: int, count: int) -> VersionedRecord:
    """Return what was seen at a position; the side keys, if any were read, follow the `count` records."""
    raw, memory = found.values[at], None
    if len(found.values) > count:
        memory = found.values[at + count]
    if at in found.others:
        return VersionedRecord(other_type(), Mark("o", b"", memory or b""))
    expires_ms = found.expiries[at] if found.expiries else 0
    mark = Mark("a" if raw is None else "v", raw or b"", memory or b"")
    return VersionedRecord(stored(raw, expires_ms, memory), mark)


def _raw(step: Replacement) -> bytes:
    becomes = step.changed.stored
    return b"" if becomes is None or becomes.value is None else pack(becomes.value)


def _arguments(step: Replacement, raw: bytes) -> tuple[str | bytes | int, ...]:
    mark: Mark = step.current.version
    becomes = step.changed.stored
    ttl_ms = 0 if becomes is None else becomes.expires_ms
    memory: tuple[str | bytes, ...] = ("u", b"", b"")
    if step.write.token is not None:
        assert becomes is not None
        memory = ("t", mark.memory, pack_writers(becomes.writers, deleted=not raw))
    return (mark.state, mark.value, _work(step, raw), raw, ttl_ms, *memory)


def _work(step: Replacement, raw: bytes) -> str:
    """Return what to do: delete, put and keep the expiry, or put."""
    if not raw:
        return "d"
    before = step.current.stored
    there = isinstance(before, Stored) and before.value is not None
    return "k" if there and isinstance(step.write, Update) and step.write.ttl_s is None else "p"


def _outcome(step: Replacement, raw: bytes, answer: int | TableError) -> Outcome | bool:
    if isinstance(answer, TableError):
        return answer
    if answer == CHANGED:
        return False
    if not raw:
        return True
    outcome = step.changed.outcome
    assert isinstance(outcome, Written)
    return Written(etag_of(raw), outcome.created, False, outcome.value, answer)
