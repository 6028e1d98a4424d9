"""Makes operations of the members that JSON, Arrow and headers have in common. `members` declares the optional ones."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from ...core import InvalidOperation, TableError, TableSpec, Unsupported, updates, values
from ...core.operations import Key, Operation
from ...core.partitioner import Partitions, parse_partitions, target_partitions
from ...core.updates import Changes
from ...core.values import Json
from .members import BY_NAME, KINDS, OF_KIND, conflict

Members = Mapping[str, Any]
"""Members by name, as JSON, Arrow or headers gave them. None means absent, except for `partitions`: it means all."""

_DOCUMENTS = {"put": {"value"}, "update": {"update", "default"}}
_OPTIONAL = {kind: frozenset(member.name for member in OF_KIND[kind]) for kind in KINDS}

NAMES = {
    kind: {"op", "key", "fields", "partitions"} | _DOCUMENTS.get(kind, set()) | optional
    for kind, optional in _OPTIONAL.items()
}
"""The names of the members of each kind of operations."""

_NAME = re.compile("[A-Za-z_-]{1,32}")
_INDEX = re.compile("-?[0-9]{1,9}")


def operation(spec: TableSpec, kind: str, members: Members) -> Operation:
    """Return the operation that the members describe. Raise InvalidOperation if they are invalid."""
    if "partitions" in members and not spec.partitions:
        raise not_partitioned()
    if None in members.values() or False in members.values():
        members = {name: raw for name, raw in members.items() if not _is_ignored(name, raw)}
    if not members.keys() <= NAMES[kind]:
        article = "an" if kind == "update" else "a"
        raise InvalidOperation(f"{article} {kind} has no member {display_name(min(members.keys() - NAMES[kind]))}")
    if "key" not in members:
        raise InvalidOperation("an operation needs a key")
    return build(spec, kind, spec.key.from_json(members["key"]), members)


def _is_ignored(name: str, raw: object) -> bool:
    member = BY_NAME.get(name)
    return member is not None and member.lenient and (raw is None or (raw is False and bool in member.cells))


def build(spec: TableSpec, kind: str, key: Key, members: Members) -> Operation:
    """Return an operation on a key that is already checked."""
    needed: tuple[Any, ...] = ()
    if kind == "put":
        if members.get("value") is None:
            raise InvalidOperation("a put needs a value, which must be an object")
        needed = (_text(spec, key, members["value"]),)
    elif kind == "update":
        if (update := members.get("update")) is None:
            raise InvalidOperation("an update needs a member update, which must be an object or an array of objects")
        default = None if members.get("default") is None else _text(spec, key, members["default"])
        needed = (update if isinstance(update, Changes) else updates.parse(update), default)
    fields = _options(kind, members)
    if "partitions" in members:
        fields["partitions"] = choose_partitions(spec, members["partitions"])
    return KINDS[kind](key, *needed, **fields)


class _ValueTexts(msgspec.Struct):
    value: msgspec.Raw = msgspec.Raw()
    default: msgspec.Raw = msgspec.Raw()


def check_value_texts(spec: TableSpec, text: bytes) -> None:
    """Raise TooLarge if the JSON text of an operation contains a value that is too long to be parsed."""
    if len(text) <= spec.value_bytes_max:
        return
    try:
        found = msgspec.json.decode(text, type=_ValueTexts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # Parsing the text finds its error.
    for value in (found.value, found.default):
        spec.check_value(memoryview(value))


def display_name(name: str) -> str:
    """Return an unknown name for an error message. Text that does not look like a name may be a key or a secret."""
    return repr(name) if _NAME.fullmatch(name) else "of that name"


def _options(kind: str, members: Members) -> dict[str, Any]:
    """Return the values of the fields that the optional members give."""
    found: dict[str, Any] = {}
    if _OPTIONAL[kind].isdisjoint(members):
        return found  # Most operations
    for member in OF_KIND[kind]:
        if (raw := members.get(member.name)) is not None:
            found[member.field or member.name] = member.parse(raw)
    if len(found) > 1 and (reason := conflict(kind, found)):
        raise InvalidOperation(reason)
    if kind == "delete":
        found.pop("returning", None)
    return found


def _text(spec: TableSpec, key: Key, value: Json | bytes) -> bytes:
    """Return the canonical text of a value. JSON has no bytes, so bytes are a text that is already canonical."""
    if not isinstance(value, bytes):
        value = values.encode(spec.key.without_key(value, key) if isinstance(value, dict) else value)
    spec.check_value(value)
    return value


REPEATED_BYTES_MAX = 256
BODIES_MAX = 256
"""How many parsed bodies are kept."""

_MEMBERS = {"update", "default", "ttl_s"}


def update_members(body: bytes) -> dict[str, Any]:
    """Return the members in the body of an update. Raise InvalidOperation if it has others, or is not an object."""
    changes = _repeated(body) if len(body) <= REPEATED_BYTES_MAX else None
    return _parsed(body) if changes is None else {"update": changes}


@lru_cache(maxsize=BODIES_MAX)
def _repeated(body: bytes) -> Changes | None:
    """Return the changes of a valid update without other members. They are immutable, and may be applied repeatedly."""
    try:
        members = _parsed(body)
        return updates.parse(members["update"]) if members.keys() == {"update"} else None
    except TableError:
        return None


def _parsed(body: bytes) -> dict[str, Any]:
    members = values.parse(body)
    if not isinstance(members, dict) or not members.keys() <= _MEMBERS:
        raise InvalidOperation(
            "the body must be an object with update, and optionally default and ttl_s; "
            "a merge patch has the media type application/merge-patch+json"
        )
    return members


def choose_partitions(spec: TableSpec, raw: object) -> Partitions:
    """Parse `partitions` in its JSON form. Raise Unsupported if the table is not partitioned."""
    if not spec.partitions:
        raise not_partitioned()
    return parse_partitions(raw, spec.partitions)


def not_partitioned() -> Unsupported:
    """Return the error for `partitions` of a table that has none."""
    return Unsupported("partitions: this table is not partitioned")


def parse_partitions_query(text: str) -> object:
    """Return the JSON form of `?partitions=`: indexes separated by commas, `all`, `default`, or an empty text."""
    if text in ("all", "default"):
        return text
    indexes = text.split(",") if text else []
    if not all(_INDEX.fullmatch(index) for index in indexes):
        raise InvalidOperation(
            "partitions must be indexes separated by commas, all, default, or empty for no partition"
        )
    return [int(index) for index in indexes]


def scan_partitions(spec: TableSpec, text: str | None) -> tuple[int, ...] | None:
    """Return the partitions that a scan reads, None for all."""
    if text is None:
        return None
    partitions = choose_partitions(spec, parse_partitions_query(text))
    if not partitions:
        raise InvalidOperation("a scan reads at least one partition, and it has no key that could select one")
    return partitions


def operation_partitions(spec: TableSpec, operation: Operation) -> tuple[int, ...]:
    """Return the partitions that an operation goes to: none if it is dropped or its choice is invalid."""
    try:
        return target_partitions(operation, spec.partitions)
    except InvalidOperation:
        return ()
