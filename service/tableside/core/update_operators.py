"""The operators of an update: one operator at one path, and its effect on a value.

A fault names the operator and the path, and never a value.
"""

import operator
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias, cast, get_args

import msgspec

from . import values
from .array_sets import ArraySets
from .errors import InvalidOperation
from .path_set import Path
from .quoting import quoted
from .values import Json, JsonObject, copied, is_number, kind_of

Operator: TypeAlias = Literal["$set", "$unset", "$inc", "$min", "$max", "$push", "$addToSet"]

OPERATORS: frozenset[str] = frozenset(get_args(Operator))


class Edit(msgspec.Struct, frozen=True):
    """One operator at one path. The operand of `$push` and `$addToSet` is the array of elements."""

    operator: Operator
    path: Path
    operand: Json


def apply_edit(value: JsonObject, edit: Edit, sets: ArraySets) -> None:
    """Change a value. Raise InvalidOperation, with the value possibly changed in part, if the operator does not fit.

    `sets` contains the hashed elements of the value's arrays, for all edits of one update.
    """
    if edit.operator == "$addToSet":
        sets.add(_array_at(value, edit), cast("list[Json]", edit.operand))
    else:
        _APPLY[edit.operator](value, edit)


def fault(operator: str, path: str, reason: str) -> InvalidOperation:
    """Return the error of an operator at a path. An empty path is left out."""
    return InvalidOperation(f"{quoted(operator)}{f' at {quoted(path)}' if path else ''}: {reason}")


def dotted(path: Path) -> str:
    """Return a path as updates write it."""
    return ".".join(path)


def _set(value: JsonObject, edit: Edit) -> None:
    _parent_of(value, edit)[edit.path[-1]] = copied(edit.operand)


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
    if not is_number(present):
        raise _misfit(edit, present, "a number")
    total = cast("float", present) + cast("float", edit.operand)
    try:
        parent[name] = values.checked_integer(total) if isinstance(total, int) else values.normalize_number(total)
    except InvalidOperation:
        raise fault(edit.operator, dotted(edit.path), "the sum is out of range") from None


def _replace_if_better(value: JsonObject, edit: Edit, better: Callable[..., bool]) -> None:
    parent, name = _parent_of(value, edit), edit.path[-1]
    if name not in parent:
        parent[name] = edit.operand
        return
    present = parent[name]
    if not comparable(present, edit.operand):
        reason = f"the field is {kind_of(present)}, but the operand is {kind_of(edit.operand)}"
        raise fault(edit.operator, dotted(edit.path), reason)
    if better(edit.operand, present):
        parent[name] = edit.operand


def _push(value: JsonObject, edit: Edit) -> None:
    _array_at(value, edit).extend(copied(edit.operand))  # type: ignore[arg-type]  # parsed as an array


_APPLY: dict[Operator, Callable[[JsonObject, Edit], None]] = {
    "$set": _set,
    "$unset": _unset,
    "$inc": _inc,
    "$min": partial(_replace_if_better, better=operator.lt),
    "$max": partial(_replace_if_better, better=operator.gt),
    "$push": _push,
}


def _parent_of(value: JsonObject, edit: Edit) -> JsonObject:
    """Return the object that contains the path's last name. Missing objects are created."""
    if len(edit.path) == 1:
        return value  # most paths, in half the time
    parent = value
    for index, name in enumerate(edit.path[:-1], 1):
        member = parent.get(name)
        if member is None and name not in parent:
            member = parent[name] = {}
        if not isinstance(member, dict):
            above = quoted(dotted(edit.path[:index]))
            raise fault(edit.operator, dotted(edit.path), f"{above} is {kind_of(member)}, not an object")
        parent = member
    return parent


def _array_at(value: JsonObject, edit: Edit) -> list[Json]:
    array = _parent_of(value, edit).setdefault(edit.path[-1], [])
    if not isinstance(array, list):
        raise _misfit(edit, array, "an array")
    return array


def _misfit(edit: Edit, present: Json, wanted: str) -> InvalidOperation:
    return fault(edit.operator, dotted(edit.path), f"the field is {kind_of(present)}, not {wanted}")


def comparable(one: Json, other: Json) -> bool:
    """Return whether both are numbers, or both are strings."""
    return (is_number(one) and is_number(other)) or (isinstance(one, str) and isinstance(other, str))
