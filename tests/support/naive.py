"""A small, slow reference implementation of a table, written only from the description of the operations.

It shares only the classes of operations and outcomes with the service. It stores Python objects instead of text, and
copies values instead of changing them.
"""

import copy
from dataclasses import dataclass, field, replace
from typing import Any

from support.naive_orders import History, Past, assignments, is_superseded, newer, value_after
from tableside.core.operations import Delete, Get, Operation, Put, Token, Update, Write

DAY_MS = 24 * 3600 * 1000
DELETE_MEMORY_MS = 7 * DAY_MS


class Refused(Exception):
    """The operation is refused. The argument is the error code."""


@dataclass(frozen=True)
class Entry:
    """The state of a key. Without a value, it has only the last writers and the history of its orders."""

    value: dict[str, Any] | None
    version: str
    until_ms: int | None
    seen: dict[str, int] = field(default_factory=dict)
    history: History = ()

    @property
    def ordered(self) -> bool:
        return any(past.order is not None for past in self.history)


ABSENT = Entry(None, "", None)


@dataclass(frozen=True)
class NaiveOutcome:
    """The result of an operation: `code` is "found", "absent", "done" or an error code."""

    code: str
    value: dict[str, Any] | None = None
    created: bool = False
    replayed: bool = False
    superseded: bool = False
    left: bool = False
    until_ms: int | None = None


@dataclass(frozen=True)
class Sent:
    """An operation and its update document, which the service stores in parsed form."""

    operation: Operation
    document: Any = None


class Naive:
    """A table in a dictionary. The caller provides `versions`, one name for each write in turn."""

    def __init__(self, ttl_s: float | None) -> None:
        self.ttl_s = ttl_s
        self.held: dict[Any, Entry] = {}
        self.count = 0

    def live(self, now_ms: int) -> dict[Any, Entry]:
        kept = {key: held if is_live(held, now_ms) else expired(held) for key, held in self.held.items()}
        return {key: held for key, held in kept.items() if is_live(held, now_ms)}

    def records(self, now_ms: int) -> dict[Any, dict[str, Any]]:
        return {key: held.value for key, held in self.live(now_ms).items() if held.value is not None}

    def do(self, asked: Sent, now_ms: int) -> NaiveOutcome:
        self.held = self.live(now_ms)
        operation = asked.operation
        held = self.held.get(operation.key)
        value = held.value if held else None
        if isinstance(operation, Get):
            return (
                NaiveOutcome("absent")
                if value is None or held is None
                else NaiveOutcome("found", value, until_ms=held.until_ms)
            )
        if held and operation.token and held.seen.get(operation.token.writer, -1) >= operation.token.sequence:
            shown = value if not isinstance(operation, Delete) and operation.returning else None
            return NaiveOutcome("done", shown, replayed=True, left=value is not None)
        try:
            if operation.order is not None:
                return self._write_ordered(asked, held or ABSENT, operation.order, now_ms)
            return self._write(asked, held, value, now_ms)
        except Refused as refusal:
            return NaiveOutcome(str(refusal))

    def _write(self, asked: Sent, held: Entry | None, value: dict[str, Any] | None, now_ms: int) -> NaiveOutcome:
        operation = asked.operation
        assert not isinstance(operation, Get)
        self._check(operation, held, value)
        seen = remembered(held.seen if held else {}, operation.token)
        self.count += 1
        version = f"v{self.count}"
        if isinstance(operation, Delete):
            if operation.forget:
                self.held.pop(operation.key, None)
            elif operation.token or (value is not None and held and held.ordered):
                self._hold(operation, replace(held or ABSENT, version=version, seen=seen), None, None, now_ms)
            elif value is not None:
                del self.held[operation.key]
            return NaiveOutcome("done")
        until_ms = self._until_ms(operation, now_ms)
        if isinstance(operation, Put):
            made, created = asked.document, operation.if_absent
        else:
            made, created = self._updated(asked, value), value is None
            if held and value is not None and operation.ttl_s is None:
                until_ms = held.until_ms
        self._hold(operation, replace(held or ABSENT, version=version, seen=seen), made, until_ms, now_ms)
        return NaiveOutcome("done", made if operation.returning else None, created, left=True)

    def _until_ms(self, write: Write, now_ms: int) -> int | None:
        ttl_s = self.ttl_s if isinstance(write, Delete) or write.ttl_s is None else write.ttl_s
        return None if ttl_s is None or ttl_s == -1 else now_ms + round(ttl_s * 1000)

    def _hold(self, write: Write, held: Entry, value: dict[str, Any] | None, until_ms: int | None, now_ms: int) -> None:
        """Keep what a write leaves: a record, or what it remembers without one."""
        if write.order is None:
            held = replace(held, history=(*held.history, Past("by hand", None, value)))
        if value is None:
            until_ms = now_ms + max(DAY_MS if held.seen else 0, DELETE_MEMORY_MS if held.ordered else 0)
        self.held[write.key] = replace(held, value=value, until_ms=until_ms)

    def _write_ordered(self, asked: Sent, held: Entry, order: int, now_ms: int) -> NaiveOutcome:
        write, past, later = asked.operation, self._past(asked, order), newer(held.history, order)
        assert not isinstance(write, Get)
        superseded = is_superseded(held.history, past)
        gives_expiry = past.gives_expiry and not any(other.gives_expiry for other in later)
        if held.value is None and later:  # It stays absent, also after a delete by hand and after its expiry.
            superseded, gives_expiry = past.whole or bool(past.members), False
        if (superseded or (past.members == {} and not past.whole and later)) and not gives_expiry:
            shown = held.value if not isinstance(write, Delete) and write.returning else None
            return NaiveOutcome("done", shown, superseded=superseded, left=held.value is not None)
        self.count += 1
        history = (*held.history, past)
        value = value_after(history)
        until_ms = held.until_ms if held.value is not None and not gives_expiry else self._until_ms(write, now_ms)
        seen = held.seen if superseded else remembered(held.seen, write.token)
        self._hold(write, Entry(None, f"v{self.count}", None, seen, history), value, until_ms, now_ms)
        shown = value if not isinstance(write, Delete) and write.returning else None
        created = past.kind == "update" and held.value is None
        return NaiveOutcome("done", shown, created, superseded=superseded, left=value is not None)

    def _past(self, asked: Sent, order: int) -> Past:
        write = asked.operation
        assert not isinstance(write, Get)
        if write.if_match is not None or (isinstance(write, Put) and write.if_absent):
            raise Refused("invalid_operation")
        if isinstance(write, Put):
            return Past("put", order, asked.document)
        if isinstance(write, Delete):
            return Past("delete", order)
        members = assignments(asked.document["update"])
        if members is None or write.default is not None:
            raise Refused("invalid_operation")
        return Past("update", order, members, write.ttl_s is not None)

    def _check(self, operation: Write, held: Entry | None, value: dict[str, Any] | None) -> None:
        if operation.if_match is not None:
            wanted = value is not None and held and ("*" in operation.if_match or held.version in operation.if_match)
            if not wanted:
                raise Refused("precondition_failed")
        if isinstance(operation, Put) and operation.if_absent and value is not None:
            raise Refused("precondition_failed")

    def _updated(self, asked: Sent, value: dict[str, Any] | None) -> dict[str, Any]:
        if value is None:
            if not isinstance(asked.operation, Update) or asked.operation.default is None:
                raise Refused("record_not_found")
            value = asked.document["default"]
        return updated(value, asked.document["update"])


def is_live(held: Entry, now_ms: int) -> bool:
    return held.until_ms is None or held.until_ms > now_ms


def expired(held: Entry) -> Entry:
    """Return what is remembered of a record that has expired."""
    if held.value is None or held.until_ms is None or not held.ordered:
        return held
    past = Past("expiry", None, None)
    return replace(held, value=None, until_ms=held.until_ms + DELETE_MEMORY_MS, history=(*held.history, past))


def remembered(seen: dict[str, int], token: Token | None) -> dict[str, int]:
    if token is None:
        return seen
    others = [(writer, sequence) for writer, sequence in seen.items() if writer != token.writer]
    return dict([*others, (token.writer, token.sequence)][-8:])


def updated(value: dict[str, Any], document: Any) -> dict[str, Any]:
    value = copy.deepcopy(value)
    for one in document if isinstance(document, list) else [document]:
        if any(name.startswith("$") for name in one):
            for operator, operands in one.items():
                for path, operand in (
                    dict.fromkeys(operands).items() if isinstance(operands, list) else operands.items()
                ):
                    value = at(value, path.split("."), operator, operand)
        else:
            value = patched(value, one)
    return value


def patched(value: Any, patch: Any) -> Any:
    """RFC 7396, section 2, word for word."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(value) if isinstance(value, dict) else {}
    for name, member in patch.items():
        if member is None:
            result.pop(name, None)
        else:
            result[name] = patched(result.get(name), member)
    return result


MISSING = object()


def at(value: Any, names: list[str], operator: str, operand: Any) -> Any:
    """Return a copy of an object with one operator applied at one path."""
    if not isinstance(value, dict):
        if operator == "$unset":
            return value
        raise Refused("invalid_operation")
    name, *rest = names
    if rest:
        if operator == "$unset" and name not in value:
            return value
        return {**value, name: at(value.get(name, {}), rest, operator, operand)}
    if operator == "$unset":
        return {other: member for other, member in value.items() if other != name}
    return {**value, name: changed(value.get(name, MISSING), operator, operand)}


def changed(member: Any, operator: str, operand: Any) -> Any:
    if operator == "$set":
        return copy.deepcopy(operand)
    if operator == "$inc":
        member = 0 if member is MISSING else member
        if type(member) not in (int, float):
            raise Refused("invalid_operation")
        total = member + operand
        if isinstance(total, int) and not -(2**63) <= total < 2**63:
            raise Refused("invalid_operation")
        return int(total) if isinstance(total, float) and total.is_integer() and -(2**63) <= total < 2**63 else total
    if operator in ("$min", "$max"):
        if member is MISSING:
            return operand
        if isinstance(member, str) != isinstance(operand, str) or type(member) not in (int, float, str):
            raise Refused("invalid_operation")
        return (min if operator == "$min" else max)(member, operand)
    elements = operand["$each"] if isinstance(operand, dict) and "$each" in operand else [operand]
    member = [] if member is MISSING else member
    if not isinstance(member, list):
        raise Refused("invalid_operation")
    for element in elements:
        if operator == "$push" or not any(equal(element, other) for other in member):
            member = [*member, copy.deepcopy(element)]
    return member


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool) or type(one) is not type(other):
        return one is other
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)
