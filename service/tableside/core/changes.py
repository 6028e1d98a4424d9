"""The changes of an update, as objects or packed as text.

Many small objects take up to 30 times the memory of their text. A large batch therefore keeps its updates packed, and
each is unpacked only while it is used.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec
import orjson

from .update_operators import OPERATORS, Edit
from .values import JsonObject

PACKED_BYTES_MIN = 256
"""Changes with a shorter text stay objects: 10,000 of them take a few megabytes."""


class MergePatch(msgspec.Struct, frozen=True):
    """A merge patch (RFC 7396): members replace, objects merge, null removes."""

    patch: JsonObject


class Edits(msgspec.Struct, frozen=True):
    """An operator document. Its paths are distinct, and none is the parent of another."""

    edits: tuple[Edit, ...]


Change: TypeAlias = MergePatch | Edits


def for_present(change: Change) -> Change:
    """Return the change as it applies to a record that exists: without the operators that act on a new one."""
    if isinstance(change, MergePatch) or not any(OPERATORS[edit.operator].inserts for edit in change.edits):
        return change
    return Edits(tuple(edit for edit in change.edits if not OPERATORS[edit.operator].inserts))


class PackedChanges(msgspec.Struct, frozen=True, gc=False):
    """Changes as text. Each iteration unpacks them."""

    text: bytes

    def __len__(self) -> int:
        """Return the number of changes."""
        return len(orjson.loads(self.text))

    def __iter__(self) -> Iterator[Change]:
        """Iterate over the changes."""
        return map(_change, orjson.loads(self.text))


Changes: TypeAlias = tuple[Change, ...] | PackedChanges
"""A validated update: its changes are applied to a value in order, as one step."""

CHECKED_TYPES = (tuple, PackedChanges)
"""The types of `Changes`, for `isinstance`. JSON has neither."""


def packed(changes: Changes, bytes_min: int = PACKED_BYTES_MIN) -> Changes:
    """Return changes as text if it has at least `bytes_min` bytes."""
    if isinstance(changes, PackedChanges):
        return changes
    text = _text(changes)
    return changes if len(text) < bytes_min else PackedChanges(text)


def changes_bytes(changes: Changes) -> int:
    """Return the size of the text of changes."""
    return len(_text(changes))


def _text(changes: Changes) -> bytes:
    return changes.text if isinstance(changes, PackedChanges) else msgspec.json.encode(changes)


def _change(document: dict[str, Any]) -> Change:
    return MergePatch(document["patch"]) if "patch" in document else Edits(tuple(map(_edit, document["edits"])))


def _edit(document: dict[str, Any]) -> Edit:
    return Edit(document["operator"], tuple(document["path"]), document["operand"])
