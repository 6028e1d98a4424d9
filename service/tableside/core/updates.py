"""The update language: `parse` an update document, and `apply` it to a value.

An update is a merge patch (RFC 7396), an operator document with MongoDB's semantics, or an array of these that is
applied in order as one step. Functions are pure: JSON text in, JSON text out, or InvalidOperation.
"""

import copy
import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, TypeAlias, cast, get_args

import msgspec
import orjson

from . import values
from .errors import InvalidOperation, TooLarge
from .values import Json, JsonObject

Operator: TypeAlias = Literal["$set", "$unset", "$inc", "$min", "$max", "$push", "$addToSet"]
Path: TypeAlias = tuple[str, ...]

OPERATORS: frozenset[str] = frozenset(get_args(Operator))

CHANGES_MAX = 100_000
"""Maximum number of changes in an update array; they are all parsed and applied in one step."""


class MergePatch(msgspec.Struct, frozen=True):
    """A merge patch (RFC 7396): members replace, objects merge, null removes."""

    patch: JsonObject


class Edit(msgspec.Struct, frozen=True):
    """One operator at one path. The operand of `$push` and `$addToSet` is the array of elements."""

    operator: Operator
    path: Path
    operand: Json


class Edits(msgspec.Struct, frozen=True):
    """An operator document. Its paths are distinct, and none is the parent of another."""

    edits: tuple[Edit, ...]


Change: TypeAlias = MergePatch | Edits
Changes: TypeAlias = tuple[Change, ...]
"""A validated update: its changes are applied to a value in order, as one step."""


def parse(document: object) -> Changes:
    """Validate an update that was decoded from JSON.

    Raise InvalidOperation if it cannot apply to any value, TooLarge if it has more than `CHANGES_MAX` changes.
    """
    if isinstance(document, list):
        if len(document) > CHANGES_MAX:
            raise TooLarge(f"an update may have {CHANGES_MAX} changes")
        return tuple(_parse_change(one) for one in document)
    return (_parse_change(document),)


def apply(value: bytes, changes: Changes) -> bytes:
    """Return the value's text after the changes. Raise InvalidOperation if they do not match its structure."""
    result = values.decode(value)
    for change in changes:
        match change:
            case MergePatch(patch):
                result = _merge(result, patch)
            case Edits(edits):
                for edit in edits:
                    _APPLY[edit.operator](result, edit)
    return values.encode(result)


def touched_members(changes: Changes) -> set[str]:
    """Return the names of the top-level members that an update changes."""
    names: set[str] = set()
    for change in changes:
        names.update(change.patch if isinstance(change, MergePatch) else [edit.path[0] for edit in change.edits])
    return names


# Parsing


def _parse_change(document: object) -> Change:
    if not isinstance(document, dict):
        raise InvalidOperation("an update is an object, or an array of objects")
    operators = [name for name in document if name.startswith("$")]
    if not operators:
        return MergePatch(_checked_patch(document))
    if len(operators) != len(document):
        raise InvalidOperation("an update mixes operators and members")
    return Edits(disjoint(tuple(edit for name in operators for edit in _parse_edits(name, document[name]))))


def _checked_patch(document: JsonObject) -> JsonObject:
    try:
        return values.normalize(document)
    except InvalidOperation as error:
        raise InvalidOperation(f"merge patch: {error.detail}") from None


def _parse_edits(name: str, operands: Json) -> Iterator[Edit]:
    if name not in OPERATORS:
        raise InvalidOperation("an update has an unknown operator")
    known: Operator = name  # type: ignore[assignment]  # checked against the literal's values above
    if known == "$unset" and isinstance(operands, list):
        operands = dict.fromkeys(_unset_paths(operands))
    if not isinstance(operands, dict):
        raise InvalidOperation(f"{name} takes an object whose members are paths")
    for path, operand in operands.items():
        try:
            names = _parse_path(path)
            yield Edit(known, names, _OPERAND_CHECKS[known](operand, len(names) + 1))
        except InvalidOperation as error:
            raise InvalidOperation(f"{name}: {error.detail}") from None


def _unset_paths(paths: list[Json]) -> list[str]:
    strings = [path for path in paths if isinstance(path, str)]
    if len(strings) != len(paths):
        raise InvalidOperation("$unset takes an array of paths")
    if len(set(strings)) != len(strings):
        raise InvalidOperation("two operators on one path, or on a path and its parent")
    return strings


def _parse_path(text: str) -> Path:
    names = tuple(text.split("."))
    if not all(names):
        raise InvalidOperation("a path has an empty name")
    if "\0" in text:
        raise InvalidOperation("a path contains U+0000")
    if names[0].startswith(values.RESERVED_PREFIX):
        raise InvalidOperation("a top-level member's name may not begin with _ts")
    if len(names) > values.DEPTH_MAX:
        raise InvalidOperation(f"a path has more than {values.DEPTH_MAX} names")
    return names


def disjoint(edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    """Return the edits. Raise InvalidOperation if two have the same path, or one has the parent of another's."""
    paths = {edit.path for edit in edits}
    parents = {path[:length] for path in paths for length in range(1, len(path))}
    if len(paths) != len(edits) or paths & parents:
        raise InvalidOperation("two operators on one path, or on a path and its parent")
    return edits


# The depth of an operand in the value is checked here, so that applying an update never exceeds the depth limit.


def _checked_number(operand: Json, depth: int) -> Json:
    if not _is_number(operand):
        raise InvalidOperation("the operand is not a number")
    return values.normalize_member(operand)


def _checked_number_or_string(operand: Json, depth: int) -> Json:
    if not (_is_number(operand) or isinstance(operand, str)):
        raise InvalidOperation("the operand is neither a number nor a string")
    return values.normalize_member(operand)


def _checked_elements(operand: Json, depth: int) -> Json:
    if isinstance(operand, dict) and "$each" in operand:
        if len(operand) != 1:
            raise InvalidOperation("$each allows no other members")
        if not isinstance(operand["$each"], list):
            raise InvalidOperation("$each takes an array")
        return values.normalize_member(operand["$each"], depth)
    return values.normalize_member([operand], depth)


_OPERAND_CHECKS: dict[Operator, Callable[[Json, int], Json]] = {
    "$set": values.normalize_member,
    "$unset": lambda operand, depth: None,
    "$inc": _checked_number,
    "$min": _checked_number_or_string,
    "$max": _checked_number_or_string,
    "$push": _checked_elements,
    "$addToSet": _checked_elements,
}


# Applying


def _merge(target: Json, patch: JsonObject) -> JsonObject:
    result = target if isinstance(target, dict) else {}
    for name, member in patch.items():
        if member is None:
            result.pop(name, None)
        elif isinstance(member, dict):
            result[name] = _merge(result.get(name), member)
        else:
            result[name] = _copied(member)
    return result


def _set(value: JsonObject, edit: Edit) -> None:
    _parent_of(value, edit)[edit.path[-1]] = _copied(edit.operand)


def _unset(value: JsonObject, edit: Edit) -> None:
    parent: Json = value
    for name in edit.path[:-1]:
        if not isinstance(parent, dict) or name not in parent:
            return
        parent = parent[name]
    if isinstance(parent, dict):
        parent.pop(edit.path[-1], None)


def _inc(value: JsonObject, edit: Edit) -> None:
    parent, name = _parent_of(value, edit), edit.path[-1]
    present = parent.get(name, 0)
    if not _is_number(present):
        raise InvalidOperation("$inc on a value that is not a number")
    total = cast("float", present) + cast("float", edit.operand)
    parent[name] = values.checked_integer(total) if isinstance(total, int) else values.normalize_number(total)


def _replace_if_better(value: JsonObject, edit: Edit, better: Callable[..., bool]) -> None:
    parent, name = _parent_of(value, edit), edit.path[-1]
    if name not in parent:
        parent[name] = edit.operand
        return
    present = parent[name]
    if not comparable(present, edit.operand):
        raise InvalidOperation(f"{edit.operator} compares two numbers or two strings")
    if better(edit.operand, present):
        parent[name] = edit.operand


def _push(value: JsonObject, edit: Edit) -> None:
    _array_at(value, edit).extend(_copied(edit.operand))  # type: ignore[arg-type]  # parsed as an array


def _add_to_set(value: JsonObject, edit: Edit) -> None:
    array = _array_at(value, edit)
    seen = {_identity(element) for element in array}
    assert isinstance(edit.operand, list)
    for element in edit.operand:
        if (identity := _identity(element)) not in seen:
            seen.add(identity)
            array.append(_copied(element))


_APPLY: dict[Operator, Callable[[JsonObject, Edit], None]] = {
    "$set": _set,
    "$unset": _unset,
    "$inc": _inc,
    "$min": partial(_replace_if_better, better=operator.lt),
    "$max": partial(_replace_if_better, better=operator.gt),
    "$push": _push,
    "$addToSet": _add_to_set,
}


def _parent_of(value: JsonObject, edit: Edit) -> JsonObject:
    """Return the object that contains the path's last name. Missing objects are created."""
    parent = value
    for name in edit.path[:-1]:
        member = parent.setdefault(name, {})
        if not isinstance(member, dict):
            raise InvalidOperation(f"{edit.operator}: a path leads through a value that is not an object")
        parent = member
    return parent


def _array_at(value: JsonObject, edit: Edit) -> list[Json]:
    array = _parent_of(value, edit).setdefault(edit.path[-1], [])
    if not isinstance(array, list):
        raise InvalidOperation(f"{edit.operator} on a value that is not an array")
    return array


def _copied(operand: Json) -> Json:
    # An update may be applied many times, so the values that it writes must not share mutable parts with it.
    return copy.deepcopy(operand) if isinstance(operand, (dict, list)) else operand


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def comparable(one: Json, other: Json) -> bool:
    """Return whether both are numbers, or both are strings."""
    return (_is_number(one) and _is_number(other)) or (isinstance(one, str) and isinstance(other, str))


def _identity(element: Json) -> bytes:
    """Return text that is the same for two equal elements, ignoring the order of members."""
    return orjson.dumps(element, option=orjson.OPT_SORT_KEYS)
