"""Folding: combine two updates into one that has the same effect."""

from .errors import InvalidOperation
from .update_operators import Edit, comparable
from .updates import Change, Changes, Edits, MergePatch, disjoint
from .values import JsonObject


def fold(first: Changes, second: Changes) -> Changes:
    """Return one update with the effect of `first` followed by `second`, with as few changes as possible.

    If the last change of `first` and the first change of `second` cannot be combined, both stay in the array, which has
    the same effect. `$inc` operands are never added: sums of doubles depend on the order of additions.
    """
    if not first or not second:
        return first + second
    folded = _fold_changes(first[-1], second[0])
    return first + second if folded is None else (*first[:-1], folded, *second[1:])


def _fold_changes(first: Change, second: Change) -> Change | None:
    match first, second:
        case MergePatch(earlier), MergePatch(later):
            patch = _fold_patches(earlier, later)
            return None if patch is None else MergePatch(patch)
        case Edits(earlier_edits), Edits(later_edits):
            edits = _fold_edits(earlier_edits, later_edits)
            return None if edits is None else Edits(edits)
    return None


def _fold_patches(earlier: JsonObject, later: JsonObject) -> JsonObject | None:
    patch = dict(earlier)
    for name, member in later.items():
        if isinstance(member, dict) and name in earlier:
            present = earlier[name]
            if not isinstance(present, dict):
                return None  # The later patch starts from an empty object, which a merge patch cannot express.
            folded = _fold_patches(present, member)
            if folded is None:
                return None
            patch[name] = folded
        else:
            patch[name] = member
    return patch


def _fold_edits(earlier: tuple[Edit, ...], later: tuple[Edit, ...]) -> tuple[Edit, ...] | None:
    edits = {edit.path: edit for edit in earlier}
    for edit in later:
        present = edits.get(edit.path)
        folded = edit if present is None else _fold_edit(present, edit)
        if folded is None:
            return None
        edits[edit.path] = folded
    try:
        return disjoint(tuple(edits.values()))
    except InvalidOperation:
        return None


def _fold_edit(earlier: Edit, later: Edit) -> Edit | None:
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
        case "$min" | "$max" if comparable(one, other):
            best = min if earlier.operator == "$min" else max
            return Edit(earlier.operator, earlier.path, best(one, other))  # type: ignore[type-var]  # comparable
    return None
