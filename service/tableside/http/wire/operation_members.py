"""The members of an operation, which JSON, Arrow and headers have in common: their meaning and valid combinations."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from ...core import (
    INTEGER_MAX,
    INTEGER_MIN,
    Changes,
    Delete,
    Get,
    InvalidOperation,
    Json,
    Key,
    Operation,
    Put,
    TableError,
    TableSpec,
    Unsupported,
    Update,
    target_partitions,
    updates,
    values,
)
from ...core.changes import CHECKED_TYPES
from ...core.operations import Token
from ...core.partitioner import Partitions, parse_partitions
from ...core.transitions import checked_ttl_s
from .projections import Fields

Members = Mapping[str, Any]
"""Members by name, as JSON, Arrow or headers gave them. None means absent, except for `partitions`: it means all."""

WRITER_CHARACTERS_MAX = 128
FIELDS_MAX = 1000

_COMMON = frozenset({"op", "key", "fields", "partitions"})

MEMBERS = {
    "get": _COMMON,
    "put": _COMMON | {"value", "if_match", "if_absent", "ttl_s", "token", "return", "order"},
    "update": _COMMON | {"update", "default", "if_match", "ttl_s", "token", "return", "order"},
    "delete": _COMMON | {"if_match", "token", "return", "order", "forget"},
}

EXACT_MAX = 2**53
"""The largest order that may be written as a double. A larger one may have lost digits of its text."""

_NAME = re.compile("[A-Za-z_-]{1,32}")
_INDEX = re.compile("-?[0-9]{1,9}")

_BARE_PUT = frozenset({"op", "key", "fields", "value"})


def operation(spec: TableSpec, members: Members) -> Operation:
    """Return the operation that the members describe. Raise InvalidOperation if they are invalid."""
    if "partitions" in members and not spec.partitions:
        raise not_partitioned()
    if "if_absent" in members and (members["if_absent"] is None or members["if_absent"] is False):
        members = {name: member for name, member in members.items() if name != "if_absent"}
    if "order" in members and members["order"] is None:
        members = {name: member for name, member in members.items() if name != "order"}
    kind = members.get("op")
    allowed = MEMBERS.get(kind) if isinstance(kind, str) else None
    if allowed is None:
        raise InvalidOperation(f"op must be one of {', '.join(MEMBERS)}")
    if not members.keys() <= allowed:
        article = "an" if kind == "update" else "a"
        raise InvalidOperation(f"{article} {kind} has no member {display_name(min(members.keys() - allowed))}")
    if "key" not in members:
        raise InvalidOperation("an operation needs a key")
    return build(spec, str(kind), spec.key.from_json(members["key"]), members)


def build(spec: TableSpec, kind: str, key: Key, members: Members) -> Operation:
    """Return an operation on a key that is already checked."""
    if "partitions" not in members:
        return _BUILD[kind](spec, key, members)
    chosen = choose_partitions(spec, members["partitions"])
    return msgspec.structs.replace(_BUILD[kind](spec, key, members), partitions=chosen)


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


def fields(raw: object) -> Fields:
    """Return the names of the requested members of values, None for all."""
    if raw is None:
        return None
    if not isinstance(raw, (list, tuple)) or len(raw) > FIELDS_MAX:
        raise InvalidOperation(f"fields must be an array of at most {FIELDS_MAX} names")
    if not all(isinstance(name, str) and name for name in raw):
        raise InvalidOperation("fields must be an array of names")
    return frozenset(raw)


def token(writer: object, sequence: object) -> Token:
    """Return a token. Raise InvalidOperation if it is invalid."""
    if not isinstance(writer, str) or not 1 <= len(writer) <= WRITER_CHARACTERS_MAX or "\0" in writer:
        raise InvalidOperation(f"a token's writer must have 1 to {WRITER_CHARACTERS_MAX} characters")
    if isinstance(sequence, float) and sequence.is_integer():
        sequence = int(sequence)
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= INTEGER_MAX:
        raise InvalidOperation("a token's sequence must be an integer from 0 to 2^63-1")
    return Token(writer, sequence)


def order(raw: object) -> int | None:
    """Return an order, None if it is not given. Raise InvalidOperation if it is invalid."""
    if isinstance(raw, float) and raw.is_integer() and abs(raw) <= EXACT_MAX:
        raw = int(raw)
    if raw is None or (type(raw) is int and INTEGER_MIN <= raw <= INTEGER_MAX):
        return raw
    raise InvalidOperation("order must be an integer from -2^63 to 2^63-1")


def _get(spec: TableSpec, key: Key, members: Members) -> Operation:
    return Get(key)


def _put(spec: TableSpec, key: Key, members: Members) -> Operation:
    if members.get("value") is None:
        raise InvalidOperation("a put needs a value, which must be an object")
    text = _text(spec, key, members["value"])
    if members.keys() <= _BARE_PUT:
        return Put(key, text)
    if_match, if_absent = _conditions(members)
    return Put(key, text, if_match, if_absent, *_modifiers(members))


def _update(spec: TableSpec, key: Key, members: Members) -> Operation:
    if members.get("update") is None:
        raise InvalidOperation("an update needs a member update, which must be an object or an array of objects")
    default = members.get("default")
    text = None if default is None else _text(spec, key, default)
    if_match, _ = _conditions(members)
    update = members["update"]  # JSON has neither of these types, so such an update is already checked.
    changes = update if isinstance(update, CHECKED_TYPES) else updates.parse(update)
    return Update(key, changes, text, if_match, *_modifiers(members))


def _delete(spec: TableSpec, key: Key, members: Members) -> Operation:
    if_match, _ = _conditions(members)
    _, write_token, _, at = _modifiers(members)
    forget = members.get("forget") or False
    if not isinstance(forget, bool):
        raise InvalidOperation("forget must be true or false")
    if forget and (write_token is not None or at is not None):
        raise InvalidOperation("forget cannot be combined with a token or an order")
    return Delete(key, if_match, write_token, at, forget)


_BUILD: dict[str, Callable[[TableSpec, Key, Members], Operation]] = {
    "get": _get,
    "put": _put,
    "update": _update,
    "delete": _delete,
}


def _text(spec: TableSpec, key: Key, value: Json | bytes) -> bytes:
    """Return the canonical text of a value. JSON has no bytes, so bytes are a text that is already canonical."""
    if isinstance(value, bytes):
        text = value
    else:
        text = values.encode(spec.key.without_key(value, key) if isinstance(value, dict) else value)
    spec.check_value(text)
    return text


def _conditions(members: Members) -> tuple[tuple[str, ...] | None, bool]:
    if_match, if_absent = members.get("if_match"), members.get("if_absent") or False
    if isinstance(if_match, str):
        if_match = (if_match,)
    if if_match is not None and not isinstance(if_match, tuple):
        raise InvalidOperation("if_match must be an etag")
    if not isinstance(if_absent, bool):
        raise InvalidOperation("if_absent must be true or false")
    if if_match is not None and if_absent:
        raise InvalidOperation("if_match and if_absent cannot be combined")
    return if_match, if_absent


def _modifiers(members: Members) -> tuple[float | None, Token | None, bool, int | None]:
    returning = members.get("return") or False
    if not isinstance(returning, bool):
        raise InvalidOperation("return must be true or false")
    return checked_ttl_s(members.get("ttl_s")), _token(members.get("token")), returning, order(members.get("order"))


def _token(raw: object) -> Token | None:
    if raw is None or isinstance(raw, Token):
        return raw
    if not isinstance(raw, dict) or raw.keys() != {"writer", "sequence"}:
        raise InvalidOperation("a token must have the members writer and sequence")
    return token(raw["writer"], raw["sequence"])


REPEATED_BYTES_MAX = 256
BODIES_MAX = 256
"""How many parsed bodies are kept."""

_MEMBERS = {"update", "default", "ttl_s"}


def update_members(body: bytes) -> dict[str, Any]:
    """Return the members in the body of an update.

    Raise NotJson if it is not JSON, InvalidOperation if it is not an object, or has other members.
    """
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
    """Parse `partitions` in its JSON form.

    Raise Unsupported if the table is not partitioned, InvalidOperation if `raw` is invalid.
    """
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
