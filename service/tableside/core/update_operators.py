"""The operators of an update, in one table: how each is checked and applied, and what stores may do by it.

A fault names the operator and the path, and never a value.
"""

from collections.abc import Callable
from functools import partial
from operator import add, itemgetter, mul
from typing import Any, Literal, TypeAlias, cast

import msgspec

from . import values
from .errors import InvalidOperation, TooLarge, quoted
from .values import Json, JsonObject, copied, is_number, kind_of

Path: TypeAlias = tuple[str, ...]
"""The names on the way to a member."""

VISITED_ELEMENTS_MAX = 200_000
"""Maximum number of elements that the `$pull`, `$slice` and `$sort` of an update visit: each visits a whole array."""

SORT_VISITS = 10
"""How often an element counts that `$sort` sorts: it takes about ten times as long as comparing it."""


class ArraySets:
    """The elements of arrays of one value, hashed while one update is applied to the value.

    As long as arrays only grow at their ends, and a new array replaces the whole array, the elements that are already
    hashed stay valid. After an operator that does otherwise, `forget` is called.
    """

    def __init__(self) -> None:
        self._hashed: dict[int, tuple[list[Json], set[bytes], int]] = {}
        """By the id of an array: the array, so that its id is not used again, its hashed elements, their number."""
        self._visited = 0

    def visit(self, array: list[Json], times: int = 1) -> None:
        """Count an operator that visits the whole array. Raise TooLarge beyond `VISITED_ELEMENTS_MAX`."""
        self._visited += times * len(array)
        if self._visited > VISITED_ELEMENTS_MAX:
            limit = f"{VISITED_ELEMENTS_MAX} elements of arrays (visited_elements_max)"
            raise TooLarge(f"`$pull`, `$slice` and `$sort` may visit {limit}, of which `$sort` counts each ten times")

    def add(self, array: list[Json], elements: list[Json]) -> None:
        """Append copies of the elements that the array does not contain. Equality ignores the order of members."""
        _, known, count = self._hashed.get(id(array), (array, set[bytes](), 0))
        known.update(map(_identity, array[count:]))
        for element in elements:
            if (identity := _identity(element)) not in known:
                known.add(identity)
                array.append(copied(element))
        self._hashed[id(array)] = array, known, len(array)

    def forget(self) -> None:
        """Forget all elements, after an operator that does not keep them."""
        self._hashed.clear()


_identity = msgspec.json.Encoder(order="sorted").encode
"""Returns text that is the same for two equal elements, ignoring the order of members.

Each result takes only its own length in memory. Results of `orjson` take 4 KiB each.
"""


class Edit(msgspec.Struct, frozen=True, gc=False):
    """One operator at one path.

    The operand of `$push`, `$addToSet` and `$pull` is the array of elements. That of a `$push` with modifiers is an
    object with this array as `$each`.
    """

    operator: str
    path: Path
    operand: Any  # JSON, whose type is recursive: msgspec cannot decode it


class Rule(msgspec.Struct, frozen=True):
    """What the service knows of one operator.

    `check` returns the operand in the form that is kept, for its depth in the value, or raises InvalidOperation.
    `apply` changes a value. `inserts`: the operator acts only on a record that its update makes. `keeps_elements`: the
    operator changes no element of an array, and adds elements only at the end, or it replaces the array. `in_text` is
    the operand with which Redis' script applies the operator to the text of a value, None if it cannot.
    """

    check: "Callable[[Json, int], Json]"
    apply: "Callable[[JsonObject, Edit, ArraySets], None]"
    inserts: bool = False
    keeps_elements: bool = False
    in_text: Literal["integer", "any"] | None = None


def apply_edit(value: JsonObject, edit: Edit, sets: ArraySets) -> None:
    """Change a value. Raise InvalidOperation, with the value possibly changed in part, if the operator does not fit."""
    rule = OPERATORS[edit.operator]
    rule.apply(value, edit, sets)
    if not rule.keeps_elements:
        sets.forget()


def fault(operator: str, path: Path | str, reason: str) -> InvalidOperation:
    """Return the error of an operator at a path. An empty text as the path is left out."""
    text = path if isinstance(path, str) else ".".join(path)
    return InvalidOperation(f"{quoted(operator)}{f' at {quoted(text)}' if text else ''}: {reason}")


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


def _compute(compute: Callable[[Any, Any], float], noun: str, value: JsonObject, edit: Edit, sets: ArraySets) -> None:
    """Replace a number, 0 if it is absent, by the result for it and the operand. `noun` names the result."""
    parent, name = _parent_of(value, edit), edit.path[-1]
    present = parent.get(name, 0)
    if not is_number(present):
        raise _misfit(edit, present, "a number")
    found = compute(present, edit.operand)
    try:
        parent[name] = values.checked_integer(found) if isinstance(found, int) else values.normalize_number(found)
    except InvalidOperation:
        raise fault(edit.operator, edit.path, f"the {noun} is out of range") from None


def _replace_if_better(value: JsonObject, edit: Edit, sets: ArraySets) -> None:
    parent, name = _parent_of(value, edit), edit.path[-1]
    if name not in parent:
        parent[name] = edit.operand
        return
    present = parent[name]
    if type(present) is not type(edit.operand) and kind_of(present) != kind_of(edit.operand):
        reason = f"the field is {kind_of(present)}, but the operand is {kind_of(edit.operand)}"
        raise fault(edit.operator, edit.path, reason)
    best = min if edit.operator == "$min" else max
    parent[name] = best(present, edit.operand)  # type: ignore[type-var]  # comparable


def _push(value: JsonObject, edit: Edit, sets: ArraySets) -> None:
    array, given = _array_at(value, edit), edit.operand
    elements, modifiers = (given["$each"], given) if isinstance(given, dict) else (given, {})
    array.extend(cast("list[Json]", copied(elements)))
    if modifiers:
        sets.visit(array, SORT_VISITS if "$sort" in modifiers else 1)
        array = _sorted(array, modifiers)
        count = cast("int", modifiers.get("$slice", len(array)))
        _parent_of(value, edit)[edit.path[-1]] = array[:count] if count >= 0 else array[count:]


def _sorted(array: list[Json], modifiers: JsonObject) -> list[Json]:
    """Return the elements in the order of `$sort`: nothing, numbers, strings, others by their text. Equal ones stay."""
    if (by := modifiers.get("$sort")) is None:
        return array
    member, direction = cast("tuple[str | None, int]", next(iter(by.items())) if isinstance(by, dict) else (None, by))
    numbers, strings, nothing, others = (list[tuple[Any, Json]]() for _ in range(4))
    for element in array:
        key: Any = element if member is None else element.get(member) if isinstance(element, dict) else None
        if key is None:
            nothing.append((None, element))
        elif isinstance(key, str):
            strings.append((key, element))
        elif is_number(key):
            numbers.append((key, element))
        else:
            others.append((_identity(key), element))
    for ranked in (numbers, strings, others):
        ranked.sort(key=itemgetter(0), reverse=direction == -1)
    order = (nothing, numbers, strings, others)
    return [element for ranked in order[::direction] for _, element in ranked]


def _add_to_set(value: JsonObject, edit: Edit, sets: ArraySets) -> None:
    sets.add(_array_at(value, edit), edit.operand)


def _pull(value: JsonObject, edit: Edit, sets: ArraySets) -> None:
    parent, name = _parent_of(value, edit, make=False), edit.path[-1]
    if name not in parent:
        return
    array = parent[name]
    if not isinstance(array, list):
        raise _misfit(edit, array, "an array")
    sets.visit(array)
    pulled = set(map(_identity, edit.operand))
    parent[name] = [element for element in array if _identity(element) not in pulled]


def _parent_of(value: JsonObject, edit: Edit, *, make: bool = True) -> JsonObject:
    """Return the object that contains the path's last name. Missing objects are created, in the value if `make`."""
    if len(edit.path) == 1:
        return value  # most paths, in half the time
    parent = value
    for index, name in enumerate(edit.path[:-1], 1):
        member = parent.get(name)
        if member is None and name not in parent:
            member = {}
            if make:
                parent[name] = member
        if not isinstance(member, dict):
            above = quoted(".".join(edit.path[:index]))
            raise fault(edit.operator, edit.path, f"{above} is {kind_of(member)}, not an object")
        parent = member
    return parent


def _array_at(value: JsonObject, edit: Edit) -> list[Json]:
    array = _parent_of(value, edit).setdefault(edit.path[-1], [])
    if not isinstance(array, list):
        raise _misfit(edit, array, "an array")
    return array


def _misfit(edit: Edit, present: Json, wanted: str) -> InvalidOperation:
    return fault(edit.operator, edit.path, f"the field is {kind_of(present)}, not {wanted}")


# The depth of an operand in the value is checked here, so that applying an update never exceeds the depth limit.


def _checked_scalar(kinds: tuple[type, ...], wanted: str, operand: Json, depth: int) -> Json:
    if not isinstance(operand, kinds) or isinstance(operand, bool):
        raise InvalidOperation(f"the operand is {kind_of(operand)}, {wanted}")
    return values.normalize_member(operand)


_checked_number = partial(_checked_scalar, (int, float), "not a number")
_checked_number_or_string = partial(_checked_scalar, (int, float, str), "neither a number nor a string")


def _checked_elements(operand: Json, depth: int) -> Json:
    if isinstance(operand, dict) and "$each" in operand:
        return _checked_list(operand, "$each", depth)
    return values.normalize_member([operand], depth)


def _checked_pushed(operand: Json, depth: int) -> Json:
    given = {name: operand[name] for name in _MODIFIERS if name in operand} if isinstance(operand, dict) else {}
    if not isinstance(operand, dict) or not given:
        return _checked_elements(operand, depth)
    if "$each" not in operand:
        raise InvalidOperation(f"{quoted(min(given))} is a modifier of `$each`, which is missing")
    each = {name: member for name, member in operand.items() if name not in given}
    checked = {name: _MODIFIERS[name](modifier) for name, modifier in given.items()}
    return {"$each": _checked_list(each, "$each", depth), **checked}


def _checked_slice(count: Json) -> Json:
    number = values.normalize_member(count)
    if type(number) is not int:
        raise InvalidOperation(f"`$slice` is {kind_of(count)}, but must be an integer")
    return number


def _checked_sort(order: Json) -> Json:
    given = [*order.values()] if isinstance(order, dict) else [order]
    if len(given) != 1 or isinstance(given[0], bool) or given[0] not in (1, -1):
        raise InvalidOperation("`$sort` must be 1, -1, or an object with one member, whose value is 1 or -1")
    return values.normalize_member(order)


_MODIFIERS: dict[str, Callable[[Json], Json]] = {"$slice": _checked_slice, "$sort": _checked_sort}


def _checked_pulled(operand: Json, depth: int) -> Json:
    if isinstance(operand, dict) and "$in" in operand:
        return _checked_list(operand, "$in", depth)
    inner = operand.values() if isinstance(operand, dict) else operand if isinstance(operand, list) else ()
    for document in (operand, *inner):
        for name in document if isinstance(document, dict) else ():
            if name.startswith("$"):
                raise InvalidOperation(f"{quoted(name)} is not supported: the operand is an element, or `$in`")
    return values.normalize_member([operand], depth)


def _checked_list(operand: JsonObject, name: str, depth: int) -> Json:
    if others := operand.keys() - {name}:
        raise InvalidOperation(f"`{name}` does not allow {quoted(min(others))} beside it")
    if not isinstance(operand[name], list):
        raise InvalidOperation(f"the operand of `{name}` is {kind_of(operand[name])}, not an array")
    return values.normalize_member(operand[name], depth)


OPERATORS: dict[str, Rule] = {
    "$set": Rule(values.normalize_member, _set, keeps_elements=True, in_text="any"),
    "$unset": Rule(lambda operand, depth: None, _unset, keeps_elements=True),
    "$inc": Rule(_checked_number, partial(_compute, add, "sum"), keeps_elements=True, in_text="integer"),
    "$min": Rule(_checked_number_or_string, _replace_if_better, keeps_elements=True, in_text="integer"),
    "$max": Rule(_checked_number_or_string, _replace_if_better, keeps_elements=True, in_text="integer"),
    "$mul": Rule(_checked_number, partial(_compute, mul, "product"), keeps_elements=True),
    "$push": Rule(_checked_pushed, _push, keeps_elements=True),
    "$addToSet": Rule(_checked_elements, _add_to_set, keeps_elements=True),
    "$pull": Rule(_checked_pulled, _pull, keeps_elements=True),
    "$setOnInsert": Rule(values.normalize_member, _set, inserts=True, keeps_elements=True),
}
"""The operators by name. One that is not here is unknown everywhere."""
