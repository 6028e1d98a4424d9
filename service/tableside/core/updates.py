"""The update language, pure: `parse` a document, `apply` it to a value, `fold` two into one.

An update is a merge patch (RFC 7396), an operator document with MongoDB's meanings, or an array of these applied in
order as one step. Knows nothing of records, stores or the wire: text in, text out, or InvalidOperation.
"""

import copy
from collections.abc import Callable, Iterator
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
"""How many changes the array of an update may have: they are all read and applied in one go."""


class MergePatch(msgspec.Struct, frozen=True):
    """RFC 7396: members replace, objects merge, null removes."""

    patch: JsonObject


class Edit(msgspec.Struct, frozen=True):
    """One operator at one path; for `$push` and `$addToSet` the operand is the array of elements."""

    operator: Operator
    path: Path
    operand: Json


class Edits(msgspec.Struct, frozen=True):
    """An operator document; no path in it is another one, or the parent of another one."""

    edits: tuple[Edit, ...]


Change: TypeAlias = MergePatch | Edits
Changes: TypeAlias = tuple[Change, ...]
"""An update that was checked: what to do to a value, in order, as one step."""


def parse(document: object) -> Changes:
    """Check an update as it was read from JSON.

    Raise InvalidOperation if no value could ever take it, TooLarge if it has more changes than an update may have.
    """
    if isinstance(document, list):
        if len(document) > CHANGES_MAX:
            raise TooLarge(f"an update may have {CHANGES_MAX} changes")
        return tuple(_change(one) for one in document)
    return (_change(document),)


def apply(value: bytes, changes: Changes) -> bytes:
    """Return the value's text after the changes. Raise InvalidOperation if they do not fit it."""
    result = values.decode(value)
    for change in changes:
        match change:
            case MergePatch(patch):
                result = _merged(result, patch)
            case Edits(edits):
                for edit in edits:
                    _APPLY[edit.operator](result, edit)
    return values.encode(result)


def fold(first: Changes, second: Changes) -> Changes:
    """Return one update that does to every value what the two do in turn, as short as that is possible.

    Where the last change of the first and the first change of the second cannot be one, they follow each other in an
    array, which means the same. `$inc` is never added up here: on a double, sums taken in another order differ.
    """
    if not first or not second:
        return first + second
    together = _folded(first[-1], second[0])
    return first + second if together is None else (*first[:-1], together, *second[1:])


def touched_members(changes: Changes) -> set[str]:
    """Return the names of the top-level members that an update touches."""
    names: set[str] = set()
    for change in changes:
        names.update(change.patch if isinstance(change, MergePatch) else [edit.path[0] for edit in change.edits])
    return names


# Reading a document


def _change(document: object) -> Change:
    if not isinstance(document, dict):
        raise InvalidOperation("an update is an object, or an array of objects")
    operators = [name for name in document if name.startswith("$")]
    if not operators:
        return MergePatch(_checked_patch(document))
    if len(operators) != len(document):
        raise InvalidOperation("an update mixes operators and members")
    return Edits(_disjoint(tuple(edit for name in operators for edit in _edits(name, document[name]))))


def _checked_patch(document: JsonObject) -> JsonObject:
    try:
        return values.normalize(document)
    except InvalidOperation as error:
        raise InvalidOperation(f"merge patch: {error.detail}") from None


def _edits(operator: str, operands: Json) -> Iterator[Edit]:
    if operator not in OPERATORS:
        raise InvalidOperation("an update has an unknown operator")
    known: Operator = operator  # type: ignore[assignment]  # just looked up among the literal's values
    if known == "$unset" and isinstance(operands, list):
        operands = dict.fromkeys(_unset_paths(operands))
    if not isinstance(operands, dict):
        raise InvalidOperation(f"{operator} takes an object whose members are paths")
    for path, operand in operands.items():
        try:
            names = _path(path)
            yield Edit(known, names, _OPERAND[known](operand, len(names) + 1))
        except InvalidOperation as error:
            raise InvalidOperation(f"{operator}: {error.detail}") from None


def _unset_paths(paths: list[Json]) -> list[str]:
    strings = [path for path in paths if isinstance(path, str)]
    if len(strings) != len(paths):
        raise InvalidOperation("$unset takes an array of paths")
    if len(set(strings)) != len(strings):
        raise InvalidOperation("two operators on one path, or on a path and its parent")
    return strings


def _path(text: str) -> Path:
    names = tuple(text.split("."))
    if not all(names):
        raise InvalidOperation("a path has an empty name")
    if "\0" in text:
        raise InvalidOperation("a path holds U+0000")
    if names[0].startswith(values.RESERVED_PREFIX):
        raise InvalidOperation("a top-level member's name may not begin with _ts")
    if len(names) > values.DEPTH_MAX:
        raise InvalidOperation(f"a path has more than {values.DEPTH_MAX} names")
    return names


def _disjoint(edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    paths = {edit.path for edit in edits}
    parents = {path[:length] for path in paths for length in range(1, len(path))}
    if len(paths) != len(edits) or paths & parents:
        raise InvalidOperation("two operators on one path, or on a path and its parent")
    return edits


# How deep an operand would stand is known here, so that no value can be made too deep when it is applied.


def _any(operand: Json, depth: int) -> Json:
    return values.normalize_member(operand, depth)


def _nothing(operand: Json, depth: int) -> Json:
    return None


def _number(operand: Json, depth: int) -> Json:
    if not _is_number(operand):
        raise InvalidOperation("the operand is not a number")
    return values.normalize_member(operand)


def _number_or_string(operand: Json, depth: int) -> Json:
    if not (_is_number(operand) or isinstance(operand, str)):
        raise InvalidOperation("the operand is neither a number nor a string")
    return values.normalize_member(operand)


def _elements(operand: Json, depth: int) -> Json:
    if isinstance(operand, dict) and "$each" in operand:
        if len(operand) != 1:
            raise InvalidOperation("nothing may stand beside $each")
        if not isinstance(operand["$each"], list):
            raise InvalidOperation("$each takes an array")
        return values.normalize_member(operand["$each"], depth)
    return values.normalize_member([operand], depth)


_OPERAND: dict[Operator, Callable[[Json, int], Json]] = {
    "$set": _any,
    "$unset": _nothing,
    "$inc": _number,
    "$min": _number_or_string,
    "$max": _number_or_string,
    "$push": _elements,
    "$addToSet": _elements,
}


# Applying it


def _merged(target: Json, patch: JsonObject) -> JsonObject:
    result = target if isinstance(target, dict) else {}
    for name, member in patch.items():
        if member is None:
            result.pop(name, None)
        elif isinstance(member, dict):
            result[name] = _merged(result.get(name), member)
        else:
            result[name] = _own(member)
    return result


def _set(value: JsonObject, edit: Edit) -> None:
    _parent(value, edit)[edit.path[-1]] = _own(edit.operand)


def _unset(value: JsonObject, edit: Edit) -> None:
    parent: Json = value
    for name in edit.path[:-1]:
        if not isinstance(parent, dict) or name not in parent:
            return
        parent = parent[name]
    if isinstance(parent, dict):
        parent.pop(edit.path[-1], None)


def _inc(value: JsonObject, edit: Edit) -> None:
    parent, name = _parent(value, edit), edit.path[-1]
    present = parent.get(name, 0)
    if not _is_number(present):
        raise InvalidOperation("$inc on what is not a number")
    total = cast("float", present) + cast("float", edit.operand)
    parent[name] = values.checked_integer(total) if isinstance(total, int) else values.normalize_number(total)


def _least(value: JsonObject, edit: Edit) -> None:
    _compared(value, edit, lambda operand, present: operand < present)


def _greatest(value: JsonObject, edit: Edit) -> None:
    _compared(value, edit, lambda operand, present: operand > present)


def _compared(value: JsonObject, edit: Edit, better: Callable[..., bool]) -> None:
    parent, name = _parent(value, edit), edit.path[-1]
    if name not in parent:
        parent[name] = edit.operand
        return
    present = parent[name]
    if not _comparable(present, edit.operand):
        raise InvalidOperation(f"{edit.operator} compares two numbers or two strings")
    if better(edit.operand, present):
        parent[name] = edit.operand


def _push(value: JsonObject, edit: Edit) -> None:
    _array(value, edit).extend(_own(edit.operand))  # type: ignore[arg-type]  # parsed as an array


def _add_to_set(value: JsonObject, edit: Edit) -> None:
    array = _array(value, edit)
    seen = {_identity(element) for element in array}
    assert isinstance(edit.operand, list)
    for element in edit.operand:
        if (identity := _identity(element)) not in seen:
            seen.add(identity)
            array.append(_own(element))


_APPLY: dict[Operator, Callable[[JsonObject, Edit], None]] = {
    "$set": _set,
    "$unset": _unset,
    "$inc": _inc,
    "$min": _least,
    "$max": _greatest,
    "$push": _push,
    "$addToSet": _add_to_set,
}


def _parent(value: JsonObject, edit: Edit) -> JsonObject:
    """Return the object that holds the path's last name, made where it is absent."""
    parent = value
    for name in edit.path[:-1]:
        member = parent.setdefault(name, {})
        if not isinstance(member, dict):
            raise InvalidOperation(f"{edit.operator}: a path leads through what is not an object")
        parent = member
    return parent


def _array(value: JsonObject, edit: Edit) -> list[Json]:
    array = _parent(value, edit).setdefault(edit.path[-1], [])
    if not isinstance(array, list):
        raise InvalidOperation(f"{edit.operator} on what is not an array")
    return array


def _own(operand: Json) -> Json:
    # An update may be applied many times: what it puts into a value must not be shared with the next.
    return copy.deepcopy(operand) if isinstance(operand, (dict, list)) else operand


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _comparable(one: Json, other: Json) -> bool:
    return (_is_number(one) and _is_number(other)) or (isinstance(one, str) and isinstance(other, str))


def _identity(element: Json) -> bytes:
    """Return text that two elements share if they are equal, the order of members aside."""
    return orjson.dumps(element, option=orjson.OPT_SORT_KEYS)


# Folding two changes


def _folded(first: Change, second: Change) -> Change | None:
    match first, second:
        case MergePatch(earlier), MergePatch(later):
            patch = _folded_patch(earlier, later)
            return None if patch is None else MergePatch(patch)
        case Edits(earlier_edits), Edits(later_edits):
            edits = _folded_edits(earlier_edits, later_edits)
            return None if edits is None else Edits(edits)
    return None


def _folded_patch(earlier: JsonObject, later: JsonObject) -> JsonObject | None:
    patch = dict(earlier)
    for name, member in later.items():
        if isinstance(member, dict) and name in earlier:
            present = earlier[name]
            if not isinstance(present, dict):
                return None  # It must begin from nothing, which a merge patch cannot say.
            together = _folded_patch(present, member)
            if together is None:
                return None
            patch[name] = together
        else:
            patch[name] = member
    return patch


def _folded_edits(earlier: tuple[Edit, ...], later: tuple[Edit, ...]) -> tuple[Edit, ...] | None:
    edits = {edit.path: edit for edit in earlier}
    for edit in later:
        present = edits.get(edit.path)
        together = edit if present is None else _folded_edit(present, edit)
        if together is None:
            return None
        edits[edit.path] = together
    try:
        return _disjoint(tuple(edits.values()))
    except InvalidOperation:
        return None


def _folded_edit(earlier: Edit, later: Edit) -> Edit | None:
    if earlier.operator != later.operator:
        return None
    one, other = earlier.operand, later.operand
    match earlier.operator:
        case "$set" | "$unset":
            return later
        case "$push":
            assert isinstance(one, list)
            assert isinstance(other, list)
            return Edit("$push", earlier.path, one + other)
        case "$addToSet":
            assert isinstance(one, list)
            assert isinstance(other, list)
            return Edit("$addToSet", earlier.path, one + other)
        case "$min" | "$max" if _comparable(one, other):
            best = min if earlier.operator == "$min" else max
            return Edit(earlier.operator, earlier.path, best(one, other))  # type: ignore[type-var]  # comparable
    return None
