"""Updates that a script applies in one round trip: edits of top-level members whose operators have `in_text`.

The script applies an update only if `transition` has the same result (see `edit_script`). All others, and all errors,
are decided by compare-and-set.
"""

import re
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import msgspec
import orjson

from ...core import (
    OPERATORS,
    Batch,
    Changed,
    Changes,
    CompareAndSet,
    Edits,
    Outcome,
    Results,
    TableError,
    TableSpec,
    Update,
    Written,
    chunks_of,
    transition,
)
from .connection import REQUEST_BYTES_MAX
from .driver import Reply
from .edit_script import EDITED_BYTES_MAX, INTEGER_MAX
from .errors import from_unexpected_reply
from .keys import KeyNames
from .record_scripts import RecordBatch, RecordScripts
from .records import etag_of, pack_all, value_of
from .tokens import element
from .topology import COMMAND_KEYS_MAX, Servers

RESULT_BYTES_MAX = 3 * EDITED_BYTES_MAX
"""More than the script's longest result: it checks no other limit on values."""

_UNCHANGED = 0
"""The script's result for a record that it left unchanged."""

_SIMPLE_NAME = re.compile("[A-Za-z0-9_-]+")


class _Planned(msgspec.Struct, frozen=True):
    """The script's arguments for an update: the edits, and the value to put if the record is absent."""

    edits: bytes
    default: bytes
    default_ttl_ms: int

    @property
    def size_bytes(self) -> int:
        return len(self.edits) + len(self.default)


class RecordEditor:
    """Updates records of one table."""

    def __init__(self, servers: Servers, names: KeyNames, scripts: RecordScripts, spec: TableSpec) -> None:
        self._servers = servers
        self._names = names
        self._scripts = scripts
        self._spec = spec

    async def apply(self, updates: Batch, compare_and_set: CompareAndSet, until: float) -> Sequence[Outcome]:
        """Apply updates without preconditions and times to live: those that the script can apply, then the others.

        `compare_and_set` applies the others, and updates of records that it is retrying.
        """
        plans = self._plans(updates)
        edited = [
            at
            for at, (plan, key) in enumerate(zip(plans, updates.keys, strict=True))
            if plan is not None and not compare_and_set.is_contended(key)
        ]
        outcomes: dict[int, Outcome] = {}
        if edited:
            sent = updates if len(edited) == len(updates) else updates.at(edited)
            results = await self._edit(sent, [plan for at in edited if (plan := plans[at]) is not None], until)
            if _UNCHANGED not in results and len(edited) == len(updates):
                return _results(sent, results)
            found = zip(edited, _results(sent, results), results, strict=True)
            outcomes = {at: outcome for at, outcome, result in found if result != _UNCHANGED}
        others = [at for at in range(len(updates)) if at not in outcomes]
        outcomes.update(zip(others, await compare_and_set.apply(updates.at(others), until), strict=True))
        return [outcomes[at] for at in range(len(updates))]

    def _plans(self, updates: Batch) -> list[_Planned | None]:
        """Return the arguments of the updates that the script may apply. Updates with the same objects share them."""
        plans: dict[tuple[int, bytes | None], _Planned | None] = {}
        found: list[_Planned | None] = []
        for at, (changes, default) in enumerate(zip(updates.columns["changes"], updates.cells("default"), strict=True)):
            shared = (id(changes), default)
            if shared not in plans:
                update = updates[at]
                assert isinstance(update, Update)
                plans[shared] = self._planned(update)
            found.append(plans[shared])
        return found

    def _planned(self, update: Update) -> _Planned | None:
        if self._spec.value_bytes_max < RESULT_BYTES_MAX:
            return None
        edits = _packed(update.changes, self._spec.key.names)
        if edits is None or update.default is None:
            return None if edits is None else _Planned(edits, b"", 0)
        # At time 0 the expiry equals the time to live, which Redis counts from the server's time.
        created = transition(None, update, self._spec, now_ms=0, etag="")
        if not isinstance(created, Changed) or created.stored is None or created.stored.value is None:
            return None
        value = created.stored.value
        return _Planned(edits, value, created.stored.expires_ms) if len(value) <= EDITED_BYTES_MAX else None

    async def _edit(self, updates: Batch, plans: Sequence[_Planned], until: float) -> list[Reply]:
        """Call the script, and return its result for each record: `_UNCHANGED` if it left the record unchanged."""
        tokens = updates.cells("token")
        elements = {token: b"" if token is None else element(token) for token in set(tokens)}
        suffixes, defaults = pack_all([b""] * len(plans)), pack_all([plan.default for plan in plans])
        rows = zip(plans, suffixes, defaults, tokens, strict=True)
        arguments = [
            (plan.edits, suffix, default if plan.default else b"", plan.default_ttl_ms, elements[token])
            for plan, suffix, default, token in rows
        ]
        batch = RecordBatch(self._names.for_keys(updates.keys), updates.keys, arguments)
        sizes = [plan.size_bytes for plan in plans]
        commands = [
            self._scripts.edit(batch, part, group.slot, part)
            for group in self._servers.groups(batch.names)
            for part in chunks_of(group.positions, COMMAND_KEYS_MAX, REQUEST_BYTES_MAX, sizes.__getitem__)
        ]
        results: list[Reply] = [None] * len(plans)
        for command, reply in zip(commands, await self._servers.run(commands, until, writes=True), strict=True):
            whole = type(reply) is list and len(reply) == len(command.positions)
            for at, result in zip(command.positions, reply if whole else repeat(reply), strict=False):
                results[at] = result
        return results


def _packed(changes: Changes, key_names: frozenset[str]) -> bytes | None:
    """Return the edits in MessagePack, or None if the script cannot apply the changes.

    A stored member that is named like a key field makes the script leave the record unchanged.
    """
    if not isinstance(changes, tuple) or len(changes) != 1 or not isinstance(changes[0], Edits):
        return None
    words: list[tuple[str, str, int, bytes]] = [("absent", f'"{name}":', 0, b"") for name in sorted(key_names)]
    size_bytes = 0
    for edit in changes[0].edits:
        [name, *below] = edit.path
        number = edit.operand if type(edit.operand) is int and abs(edit.operand) <= INTEGER_MAX else None
        in_text = OPERATORS[edit.operator].in_text
        suits = in_text == "any" or (in_text == "integer" and number is not None)
        if below or not suits or name in key_names or not _SIMPLE_NAME.fullmatch(name):
            return None
        text = orjson.dumps(edit.operand)
        size_bytes += len(name) + len(text)
        if size_bytes > EDITED_BYTES_MAX:
            return None
        words.append((edit.operator, f'"{name}":', number or 0, text))
    packed = msgspec.msgpack.encode([(operator, name, number, text.decode()) for operator, name, number, text in words])
    return packed if len(packed) <= EDITED_BYTES_MAX else None


def _results(updates: Batch, results: Sequence[Reply]) -> Results:
    """Return the outcomes of updates from the script's results: the value, the expiry and whether it is new."""
    failed: dict[int, TableError] = {
        at: from_unexpected_reply(result, "unknown") for at, result in enumerate(results) if not _is_written(result)
    }
    edited = [(b"", 0, 0) if at in failed else result for at, result in enumerate(results)] if failed else results
    raws, expiries_ms, created = zip(*edited, strict=True)
    columns: dict[str, Sequence[Any]] = {"etag": list(map(etag_of, raws))}
    if any(created):
        columns["created"] = [one == 1 for one in created]
    if any(expiries_ms):
        columns["expires_ms"] = expiries_ms
    if "returning" in updates.columns:
        both = zip(raws, updates.columns["returning"], strict=True)
        columns["value"] = [value_of(raw) if returning else None for raw, returning in both]
    return Results(Written, columns, failed)


def _is_written(result: Reply) -> bool:
    return type(result) is list and len(result) == 3 and type(result[0]) is bytes
