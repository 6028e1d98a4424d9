"""The operators of an update, in one table: how each is checked, applied and folded, and what stores may do by it.

A fault names the operator and the path, and never a value.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias, cast

import msgspec

from . import values
from .errors import InvalidOperation, quoted
from .values import Json, JsonObject, copied, is_number, kind_of

Path: TypeAlias = tuple[str, ...]
"""The names on the way to a member."""


class ArraySets:
    """The elements of arrays of one value, hashed while one update is applied to the value.

    As long as arrays only grow at their ends, and a new array replaces the whole array, the elements that are already
    hashed stay valid. After an operator that does otherwise, `forget` is called.
    """

    def __init__(self) -> None:
        self._sets: dict[int, _ArraySet] = {}

    def add(self, array: list[Json], elements: list[Json]) -> None:
        """Append copies of the elements that the array does not contain. Equality ignores the order of members."""
        if (known := self._sets.get(id(array))) is None:
            known = self._sets[id(array)] = _ArraySet(array)
        known.add(elements)

    def forget(self) -> None:
        """Forget all elements, after an operator that does not keep them."""
        self._sets.clear()


class _ArraySet:
    """An array, and the elements before `_hashed`. It references the array, so that its id is not used again."""

    def __init__(self, array: list[Json]) -> None:
        self._array = array
        self._elements: set[bytes] = set()
        self._hashed = 0

    def add(self, elements: list[Json]) -> None:
        self._elements.update(map(_identity, self._array[self._hashed :]))
        for element in elements:
            if (identity := _identity(element)) not in self._elements:
                self._elements.add(identity)
                self._array.append(copied(element))
        self._hashed = len(self._array)


_identity = msgspec.json.Encoder(order="sorted").encode
"""Returns text that is the same for two equal elements, ignoring the order of members.

Each result takes only its own length in memory. Results of `orjson` take 4 KiB each.
"""


class Edit(msgspec.Struct, frozen=True):
    """One operator at one path. The operand of `$push` and `$addToSet` is the array of elements."""

    operator: str
    path: Path
    operand: Json


class Rule(msgspec.Struct, frozen=True):
    """What the service knows of one operator.

    `check` returns the operand in the form that is kept, for its depth in the value, or raises InvalidOperation.
    `apply` changes a value. Of two successive edits of one path, `fold` tells which edit has the effect of both: the
    last one, the better one of two that are comparable, or one with the elements of both. None: both are applied.
    `keeps_elements`: the operator changes no element of an array, and adds elements only at the end. `in_text` is the
    operand with which Redis' script applies the operator to the text of a value, None if it cannot.
    """

    check: "Callable[[Json, int], Json]"
    apply: "Callable[[JsonObject, Edit, ArraySets], None]"
    fold: Literal["last", "better", "both"] | None = None
    keeps_elements: bool = False
    in_text: Literal["integer", "any"] | None = None


def apply_edit(value: JsonObject, edit: Edit, sets: ArraySets) -> None:
    """Change a value. Raise InvalidOperation, with the value possibly changed in part, if the operator does not fit.

    `sets` contains the hashed elements of the value's arrays, for all edits of one update.
    """
    rule = OPERATORS[edit.operator]
    rule.apply(value, edit, sets)
    if not rule.keeps_elements:
        sets.forget()


def fault(operator: str, path: str, reason: str) -> InvalidOperation:
    """Return the error of an operator at a path. An empty path is left out."""
    return InvalidOperation(f"{quoted(operator)}{f' at {quoted(path)}' if path else ''}: {reason}")


def dotted(path: Path) -> str:
    """Return a path as updates write it."""
    return ".".join(path)


def _set(value: JsonObject, edit: Edit, sets: ArraySets) -> None:
    _parent_of(value, edit)[edit.path[-1]] = copied(edit.operand)


def _unset(value: JsonObject, edit: Edit, sets: ArraySets) -> None:
    parent: Json = value
    for name in edit.path[:-1]:
        if not isinstance(parent, dict) or name not in parent:
            return
        parent = parent[name]
    if isinstance(parent, dict):
        parent.pop(edit.path[-1], None)


def _inc(value: JsonObject, edit: Edit, sets: ArraySets) -> None:
    parent, name = _parent_of(value, edit), edit.path[-1]
    present = parent.get(name, 0)
    if not is_number(present):
        raise _misfit(edit, present, "a number")
    total = cast("float", present) + cast("float", edit.operand)
    try:
        parent[name] = values.checked_integer(total) if isinstance(total, int) else values.normalize_number(total)
    except InvalidOperation:
        raise fault(edit.operator, dotted(edit.path), "the sum is out of range") from None


def _replace_if_better(value: JsonObject, edit: Edit, sets: ArraySets) -> None:
    parent, name = _parent_of(value, edit), edit.path[-1]
    if name not in parent:
        parent[name] = edit.operand
        return
    present = parent[name]
    if not comparable(present, edit.operand):
        reason = f"the field is {kind_of(present)}, but the operand is {kind_of(edit.operand)}"
        raise fault(edit.operator, dotted(edit.path), reason)
    parent[name] = better(edit.operator, present, edit.operand)


def _push(value: JsonObject, edit: Edit, sets: ArraySets) -> None:
    _array_at(value, edit).extend(copied(edit.operand))  # type: ignore[arg-type]  # parsed as an array


def _add_to_set(value: JsonObject, edit: Edit, sets: ArraySets) -> None:
    sets.add(_array_at(value, edit), cast("list[Json]", edit.operand))


def better(operator: str, present: Json, operand: Json) -> Json:
    """Return the smaller one of two comparable operands for `$min`, the larger one for `$max`. If equal, the first."""
    best = min if operator == "$min" else max
    return best(present, operand)  # type: ignore[type-var]  # comparable


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


# The depth of an operand in the value is checked here, so that applying an update never exceeds the depth limit.


def _checked_number(operand: Json, depth: int) -> Json:
    if not is_number(operand):
        raise InvalidOperation(f"the operand is {kind_of(operand)}, not a number")
    return values.normalize_member(operand)


def _checked_number_or_string(operand: Json, depth: int) -> Json:
    if not (is_number(operand) or isinstance(operand, str)):
        raise InvalidOperation(f"the operand is {kind_of(operand)}, neither a number nor a string")
    return values.normalize_member(operand)


def _checked_elements(operand: Json, depth: int) -> Json:
    if isinstance(operand, dict) and "$each" in operand:
        if len(operand) != 1:
            raise InvalidOperation("`$each` allows no other members")
        if not isinstance(operand["$each"], list):
            raise InvalidOperation(f"the operand of `$each` is {kind_of(operand['$each'])}, not an array")
        return values.normalize_member(operand["$each"], depth)
    return values.normalize_member([operand], depth)


def _nothing(operand: Json, depth: int) -> Json:
    return None


OPERATORS: dict[str, Rule] = {
    "$set": Rule(values.normalize_member, _set, "last", keeps_elements=True, in_text="any"),
    "$unset": Rule(_nothing, _unset, "last", keeps_elements=True),
    "$inc": Rule(_checked_number, _inc, keeps_elements=True, in_text="integer"),
    "$min": Rule(_checked_number_or_string, _replace_if_better, "better", keeps_elements=True, in_text="integer"),
    "$max": Rule(_checked_number_or_string, _replace_if_better, "better", keeps_elements=True, in_text="integer"),
    "$push": Rule(_checked_elements, _push, "both", keeps_elements=True),
    "$addToSet": Rule(_checked_elements, _add_to_set, "both", keeps_elements=True),
}
"""The operators by name. One that is not here is unknown everywhere."""
