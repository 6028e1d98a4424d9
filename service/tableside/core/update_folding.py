"""Folding: combine updates of one record into one that has the same effect, in time linear in their size."""

from collections.abc import Sequence

from .update_operators import OPERATORS, Edit, Path, better, comparable, elements_of, modifiers_of
from .updates import Change, Changes, Edits, MergePatch, PathSet, for_present
from .values import JsonObject, copied


def fold(updates: Sequence[Changes]) -> tuple[Change, ...]:
    """Return one update with the effect of these in turn, with as few changes as possible.

    Changes of neighboring updates that cannot be combined stay in the array, which has the same effect. `$inc`
    operands are never added: sums of doubles depend on the order of additions. Only the first update can meet a new
    record.
    """
    folded: list[Change] = []
    last: _FoldedPatch | _FoldedEdits | None = None
    for number, changes in enumerate(updates):
        for index, change in enumerate(changes if number == 0 else map(for_present, changes)):
            if last is not None and index == 0 and last.add(change):
                continue
            if last is not None:
                folded.append(last.change())
            last = _FoldedPatch(change) if isinstance(change, MergePatch) else _FoldedEdits(change)
    return tuple(folded) if last is None else (*folded, last.change())


class _FoldedPatch:
    """A merge patch into which later ones are folded."""

    def __init__(self, first: MergePatch) -> None:
        self._first: MergePatch | None = first
        self._patch: JsonObject = {}

    def add(self, change: Change) -> bool:
        """Fold a change. Return False, with nothing changed, if that is not exact."""
        patch = self._patch if self._first is None else self._first.patch
        if not isinstance(change, MergePatch) or not _can_fold(patch, change.patch):
            return False
        if self._first is not None:
            self._patch, self._first = _copied(self._first.patch), None
        _fold_into(self._patch, change.patch)
        return True

    def change(self) -> Change:
        """Return the folded merge patch."""
        return MergePatch(self._patch) if self._first is None else self._first


class _FoldedEdits:
    """An operator document into which later ones are folded."""

    def __init__(self, first: Edits) -> None:
        self._edits: dict[Path, Edit] = {edit.path: edit for edit in first.edits}
        self._paths: PathSet | None = None
        self._own: set[Path] = set()  # the paths whose operand is an array that only this object uses

    def add(self, change: Change) -> bool:
        """Fold a change. Return False, with nothing changed, if that is not exact."""
        if not isinstance(change, Edits):
            return False
        if self._paths is None:
            self._paths = PathSet()
            for path in self._edits:
                self._paths.add(path)
        if not all(self._can_fold(edit, self._paths) for edit in change.edits):
            return False
        for edit in change.edits:
            self._fold(edit, self._paths)
        return True

    def change(self) -> Change:
        """Return the folded operator document."""
        return Edits(tuple(self._edits.values()))

    def _can_fold(self, edit: Edit, paths: PathSet) -> bool:
        present = self._edits.get(edit.path)
        if present is None:
            return not paths.overlaps(edit.path)
        fold = OPERATORS[edit.operator].fold
        if present.operator != edit.operator or fold is None:
            return False
        if fold == "both":
            return modifiers_of(present.operand) == modifiers_of(edit.operand)
        return fold != "better" or comparable(present.operand, edit.operand)

    def _fold(self, edit: Edit, paths: PathSet) -> None:
        present = self._edits.get(edit.path)
        if present is None:
            paths.add(edit.path)
            self._edits[edit.path] = edit
            return
        match OPERATORS[edit.operator].fold:
            case "both":
                self._extend(present, edit)
            case "better":
                best = better(edit.operator, present.operand, edit.operand)
                self._edits[edit.path] = Edit(edit.operator, edit.path, best)
            case _:
                self._edits[edit.path] = edit

    def _extend(self, present: Edit, edit: Edit) -> None:
        if edit.path in self._own:
            elements_of(present.operand).extend(elements_of(edit.operand))
            return
        self._own.add(edit.path)
        both, modifiers = elements_of(present.operand) + elements_of(edit.operand), modifiers_of(edit.operand)
        self._edits[edit.path] = Edit(edit.operator, edit.path, {"$each": both, **modifiers} if modifiers else both)


def _can_fold(earlier: JsonObject, later: JsonObject) -> bool:
    for name, member in later.items():
        if isinstance(member, dict) and name in earlier:
            present = earlier[name]
            if not isinstance(present, dict):
                return False  # The later patch starts from an empty object, which a merge patch cannot express.
            if not _can_fold(present, member):
                return False
    return True


def _fold_into(patch: JsonObject, later: JsonObject) -> None:
    for name, member in later.items():
        present = patch.get(name)
        if isinstance(member, dict) and isinstance(present, dict):
            _fold_into(present, member)
        else:
            patch[name] = _copied(member) if isinstance(member, dict) else member


def _copied(patch: JsonObject) -> JsonObject:
    copy = copied(patch)
    assert isinstance(copy, dict)
    return copy
