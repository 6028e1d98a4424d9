"""The update language: its `Changes`, `parse` for an update document, and `apply` for a value.

An update is a merge patch (RFC 7396), an operator document with MongoDB's semantics, or an array of these that is
applied in order as one step. Functions are pure: JSON text in, JSON text out, or InvalidOperation.

Many small objects take up to 30 times the memory of their text. A long update is therefore kept as text, and unpacked
only while it is used.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, Self

import msgspec

from . import values
from .errors import InvalidOperation, TooLarge, quoted
from .update_operators import OPERATORS, ArraySets, Edit, Path, apply_edit, fault
from .values import Json, JsonObject, check_elements, copied, kind_of

PACKED_BYTES_MIN = 256
"""Changes with a shorter text are kept as objects: 10,000 of them take a few megabytes."""


class Change(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A merge patch (RFC 7396), or the edits of an operator document.

    In a patch members replace, objects merge, and null removes. The paths of edits are distinct, and none is the parent
    of another.
    """

    patch: dict[str, Any] | None = None
    edits: tuple[Edit, ...] = ()


def for_present(change: Change) -> Change:
    """Return the change as it applies to a record that exists: without the operators that act on a new one."""
    kept = [edit for edit in change.edits if not OPERATORS[edit.operator].inserts]
    return change if len(kept) == len(change.edits) else Change(edits=tuple(kept))


_decode = msgspec.json.Decoder(list[Change]).decode


class Changes(msgspec.Struct, frozen=True, gc=False):
    """A validated update: its changes are applied to a value in order, as one step.

    `text` is their JSON. `kept` are the changes of a short text. Each iteration of a long one unpacks them.
    """

    text: bytes
    kept: tuple[Change, ...] | None

    @classmethod
    def of(cls, changes: Iterable[Change]) -> Self:
        """Return the update that consists of these changes."""
        kept = tuple(changes)
        text = msgspec.json.encode(kept)
        return cls(text, kept if len(text) < PACKED_BYTES_MIN else None)

    def __hash__(self) -> int:
        return hash(self.text)

    def __iter__(self) -> Iterator[Change]:
        return iter(_decode(self.text) if self.kept is None else self.kept)


def joined(updates: Sequence[Changes]) -> Changes:
    """Return one update with the effect of these in turn. Only the first of them can meet a new record."""
    return Changes.of(chain(updates[0], map(for_present, chain.from_iterable(updates[1:]))))


CHANGES_MAX = 10_000
"""Maximum number of changes in an update array. They are all parsed and applied in one step."""

PATH_NAMES_MAX = 50_000
"""Maximum number of names in the paths of an update. A name takes two bytes of text, but may create an object."""

_MONGODB_OPERATORS = OPERATORS.keys() | {"$rename", "$currentDate", "$pop", "$pullAll", "$bit"}
"""Names that are no members of a merge patch, because the client has sent an update with the wrong media type."""


def parse(document: object) -> Changes:
    """Validate an update that was decoded from JSON. Of an array, only the first update can meet a new record.

    Raise InvalidOperation if it cannot apply to any value, TooLarge if it has more than `CHANGES_MAX` changes or
    `PATH_NAMES_MAX` names in paths.
    """
    if not isinstance(document, list):
        return Changes.of([_Parser().change(document)])
    if len(document) > CHANGES_MAX:
        raise TooLarge(f"an update may have at most {CHANGES_MAX} changes (changes_max)")
    changes = list(map(_Parser().change, document))
    return Changes.of([*changes[:1], *map(for_present, changes[1:])])


def parse_merge_patch(document: object) -> Changes:
    """Validate a merge patch that was decoded from JSON. Its members may have names such as `$schema`.

    Raise InvalidOperation if it is not valid, or has the name of an operator: it is an update of another media type.
    """
    if not isinstance(document, dict):
        raise InvalidOperation("a merge patch must be an object")
    if operators := document.keys() & _MONGODB_OPERATORS:
        raise InvalidOperation(
            f"a merge patch cannot contain the operator {quoted(min(operators))}: send the update as application/json"
        )
    return Changes.of([Change(_checked_patch(document))])


def apply(
    value: bytes,
    changes: Changes,
    finish: Callable[[JsonObject], JsonObject] | None = None,
    *,
    is_default: bool = False,
) -> bytes:
    """Return the canonical text of a value after the changes, and after `finish` if it is given.

    `is_default`: the value is the default of a record that the update makes. Raise InvalidOperation if the changes do
    not match the value's structure, TooLarge if it has or gets more than `ELEMENTS_MAX` elements, or if the changes
    visit more than `VISITED_ELEMENTS_MAX`.
    """
    check_elements(value)
    result, sets = values.decode(value), ArraySets()
    for change in changes if is_default else map(for_present, changes):
        if change.patch is not None:
            result = _merge(result, change.patch)
        for edit in change.edits:
            apply_edit(result, edit, sets)
    # The result needs no validation: `parse` has checked everything that the changes write.
    text = values.encode_canonical(result if finish is None else finish(result))
    check_elements(text)
    return text


def touched_members(changes: Changes) -> set[str]:
    """Return the names of the top-level members that an update changes."""
    names: set[str] = set()
    for change in changes:
        names.update(change.patch or (), [edit.path[0] for edit in change.edits])
    return names


class _Parser:
    """Parses the changes of one update, and counts the names in their paths."""

    def __init__(self) -> None:
        self._names = 0

    def change(self, document: object) -> Change:
        if not isinstance(document, dict):
            raise InvalidOperation(f"an update is an object or an array of objects, not {kind_of(document)}")
        operators = [name for name in document if name.startswith("$")]
        if not operators:
            return Change(_checked_patch(document))
        if len(operators) != len(document):
            member = quoted(next(name for name in document if not name.startswith("$")))
            raise InvalidOperation(f"an update mixes operators and members: {quoted(operators[0])} and {member}")
        edits = [edit for name in operators for edit in self._edits(name, document[name])]
        if len({edit.path[0] for edit in edits}) < len(edits):
            _check_paths(edits)
        return Change(edits=tuple(edits))

    def _edits(self, name: str, operands: Json) -> list[Edit]:
        if name not in OPERATORS:
            raise InvalidOperation(f"unknown operator {quoted(name)}; known are {', '.join(OPERATORS)}")
        if name == "$unset" and isinstance(operands, list):
            operands = _unset_paths(operands)
        if not isinstance(operands, dict):
            raise fault(name, "", f"the operand is {kind_of(operands)}, not an object whose members are paths")
        check, edits = OPERATORS[name].check, list[Edit]()
        for path, operand in operands.items():
            try:
                names = self._path(path)
                edits.append(Edit(name, names, check(operand, len(names) + 1)))
            except InvalidOperation as error:
                raise fault(name, path, error.detail) from None
        return edits

    def _path(self, text: str) -> Path:
        self._names += text.count(".") + 1
        if self._names > PATH_NAMES_MAX:
            raise TooLarge(f"the paths of an update may have at most {PATH_NAMES_MAX} names (path_names_max)")
        names = tuple(text.split("."))
        if "\0" in text:
            raise InvalidOperation("the path contains U+0000")
        if "" in names:
            raise InvalidOperation("a name in the path is empty")
        if text.startswith(values.RESERVED_PREFIX):
            raise InvalidOperation("a top-level member's name may not begin with _ts")
        if len(names) > values.DEPTH_MAX:
            raise InvalidOperation(f"the path has more than {values.DEPTH_MAX} names")
        return names


def _check_paths(edits: Sequence[Edit]) -> None:
    """Raise InvalidOperation if a path occurs twice or is below another one."""
    # A path is directly before those below it, because names do not contain U+0000.
    for above, below in pairwise(sorted(edits, key=lambda edit: "\0".join(edit.path))):
        if below.path == above.path:
            raise fault(below.operator, below.path, f"{quoted(above.operator)} has the same path")
        if below.path[: len(above.path)] == above.path:
            raise fault(above.operator, above.path, "another operator has a path below it")


def _checked_patch(document: JsonObject) -> JsonObject:
    try:
        return values.normalize(document)
    except InvalidOperation as error:
        raise InvalidOperation(f"merge patch: {error.detail}") from None


def _unset_paths(paths: list[Json]) -> JsonObject:
    found: JsonObject = {}
    for path in paths:
        if not isinstance(path, str):
            raise fault("$unset", "", f"an element of the array is {kind_of(path)}, not a path")
        if path in found:
            raise fault("$unset", path, "the path occurs twice")
        found[path] = None
    return found


def _merge(target: Json, patch: JsonObject) -> JsonObject:
    result = target if isinstance(target, dict) else {}
    for name, member in patch.items():
        if member is None:
            result.pop(name, None)
        elif isinstance(member, dict):
            result[name] = _merge(result.get(name), member)
        else:
            result[name] = copied(member)
    return result
