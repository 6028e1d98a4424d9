"""A small, slow reference implementation of a table, written only from the description of the operations.

It shares only the classes of operations and outcomes with the service. It stores Python objects instead of text, and
copies values instead of changing them.
"""

import copy
from dataclasses import dataclass, field
from typing import Any

from tableside.core.operations import Delete, Get, Operation, Put, Token, Update, Write

DAY_MS = 24 * 3600 * 1000


class Refused(Exception):
    """The operation is refused. The argument is the error code."""


@dataclass(frozen=True)
class Entry:
    """The state of a key. Without a value, it has only the last writers."""

    value: dict[str, Any] | None
    version: str
    until_ms: int | None
    seen: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NaiveOutcome:
    """The result of an operation: `code` is "found", "absent", "done" or an error code."""

    code: str
    value: dict[str, Any] | None = None
    created: bool = False
    replayed: bool = False
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
        return {key: held for key, held in self.held.items() if held.until_ms is None or held.until_ms > now_ms}

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
            if operation.token:
                self.held[operation.key] = Entry(None, version, now_ms + DAY_MS, seen)
            elif value is not None:
                del self.held[operation.key]
            return NaiveOutcome("done")
        ttl_s = operation.ttl_s if operation.ttl_s is not None else self.ttl_s
        until_ms = None if ttl_s is None or ttl_s == -1 else now_ms + round(ttl_s * 1000)
        if isinstance(operation, Put):
            made, created = asked.document, operation.if_absent
        else:
            made, created = self._updated(asked, value), value is None
            if held and value is not None and operation.ttl_s is None:
                until_ms = held.until_ms
        self.held[operation.key] = Entry(made, version, until_ms, seen)
        return NaiveOutcome("done", made if operation.returning else None, created, left=True)

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
