"""Updates that a script applies in one round trip: `$inc`, `$set`, `$min` and `$max` of top-level members.

The script applies an update only if `transition` has the same result (see `edit_script`). All others, and all errors,
are decided by compare-and-set.
"""

import re
from collections.abc import Sequence

import msgspec
import orjson

from ...core import (
    Changed,
    Changes,
    CompareAndSet,
    Edits,
    Operation,
    Outcome,
    TableError,
    TableSpec,
    Token,
    Update,
    Written,
    Yielder,
    chunks_of,
    transition,
)
from .connection import REQUEST_BYTES_MAX
from .driver import Reply
from .edit_script import EDITED_BYTES_MAX, INTEGER_MAX
from .errors import from_unexpected_reply
from .keys import KeyNames
from .record_scripts import RecordBatch, RecordScripts
from .records import etag_of, pack, value_of
from .tokens import element, is_simple
from .topology import COMMAND_KEYS_MAX, Servers

RESULT_BYTES_MAX = 3 * EDITED_BYTES_MAX
"""More than the script's longest result: it checks no other limit on values."""

_SIMPLE_NAME = re.compile("[A-Za-z0-9_-]+")
_NUMERIC = ("$inc", "$min", "$max")


class _Planned(msgspec.Struct, frozen=True):
    """The script's arguments for an update: the edits, and the value to put if the record is absent."""

    edits: bytes
    default: bytes
    default_ttl_ms: int

    @property
    def size_bytes(self) -> int:
        return len(self.edits) + len(self.default)


class RecordEditor:
    """Updates records of one table. `compare_and_set` applies updates that the script cannot."""

    def __init__(
        self,
        servers: Servers,
        names: KeyNames,
        scripts: RecordScripts,
        spec: TableSpec,
        compare_and_set: CompareAndSet,
    ) -> None:
        self._servers = servers
        self._names = names
        self._scripts = scripts
        self._spec = spec
        self._compare_and_set = compare_and_set

    async def apply(self, updates: Sequence[Update], until: float) -> list[Outcome]:
        """Apply the updates: the ones that the script can apply in one round trip per node, then the others."""
        outcomes: dict[int, Outcome] = {}
        yielder = Yielder()
        planned = await self._plan(updates, yielder)
        if planned:
            outcomes = await self._edit(updates, planned, until, yielder)
        others = [index for index in range(len(updates)) if index not in outcomes]
        if others:
            decided = await self._compare_and_set.apply([updates[index] for index in others], until)
            outcomes.update(zip(others, decided, strict=True))
        return [outcomes[index] for index in range(len(updates))]

    async def _plan(self, updates: Sequence[Update], yielder: Yielder) -> dict[int, _Planned]:
        """Return the arguments of the updates that the script may apply. Equal updates are planned once."""
        plans: dict[tuple[int, bytes | None], _Planned | None] = {}
        found: dict[int, _Planned] = {}
        for index, update in enumerate(updates):
            if yielder.due:
                await yielder.maybe_yield()
            shared = (id(update.changes), update.default)
            if shared not in plans:
                plans[shared] = self._planned(update)
            plan = plans[shared]
            if plan is not None and not self._compare_and_set.is_contended(update.key):
                found[index] = plan
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

    async def _edit(
        self, updates: Sequence[Update], planned: dict[int, _Planned], until: float, yielder: Yielder
    ) -> dict[int, Outcome]:
        """Call the script, and return the outcomes except of records that it left unchanged."""
        positions, plans = list(planned), list(planned.values())
        keys = [updates[index].key for index in positions]
        arguments = [_arguments(updates[index].token, plan) for index, plan in planned.items()]
        if yielder.due:
            await yielder.maybe_yield()
        batch = RecordBatch(self._names.for_keys(keys), keys, arguments)
        sizes = [plan.size_bytes for plan in plans]
        commands = [
            self._scripts.edit(batch, part, group.slot, [positions[at] for at in part])
            for group in self._servers.groups(batch.names)
            for part in chunks_of(group.positions, COMMAND_KEYS_MAX, REQUEST_BYTES_MAX, sizes.__getitem__)
        ]
        outcomes: dict[int, Outcome] = {}
        replies = await self._servers.run(commands, until, writes=True)
        yielder = Yielder()
        for command, reply in zip(commands, replies, strict=True):
            results = reply if type(reply) is list and len(reply) == len(command.positions) else None
            for at, index in enumerate(command.positions):
                result = reply if results is None else results[at]
                if result != 0 or results is None:
                    outcomes[index] = _outcome(updates[index], result)
            if yielder.due:
                await yielder.maybe_yield()
        return outcomes


def is_editable(operation: Operation) -> bool:
    """Return whether an operation is an update that the script may apply, as far as its modifiers show."""
    return (
        isinstance(operation, Update)
        and operation.if_match is None
        and operation.ttl_s is None
        and (operation.token is None or is_simple(operation.token))
    )


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
        suits = number is not None if edit.operator in _NUMERIC else edit.operator == "$set"
        if below or not suits or name in key_names or not _SIMPLE_NAME.fullmatch(name):
            return None
        text = orjson.dumps(edit.operand)
        size_bytes += len(name) + len(text)
        if size_bytes > EDITED_BYTES_MAX:
            return None
        words.append((edit.operator, f'"{name}":', number or 0, text))
    packed = msgspec.msgpack.encode([(operator, name, number, text.decode()) for operator, name, number, text in words])
    return packed if len(packed) <= EDITED_BYTES_MAX else None


def _arguments(token: Token | None, plan: _Planned) -> tuple[bytes, ...]:
    default = pack(plan.default) if plan.default else b""
    return plan.edits, pack(b""), default, b"%d" % plan.default_ttl_ms, b"" if token is None else element(token)


def _outcome(update: Update, result: Reply) -> Outcome:
    if type(result) is list and len(result) == 3 and type(result[0]) is bytes:
        raw, expires_ms, created = result
        return Written(etag_of(raw), created == 1, False, value_of(raw) if update.returning else None, expires_ms)
    error: TableError = from_unexpected_reply(result, "unknown")
    return error
