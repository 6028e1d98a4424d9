"""Ordered writes: each top-level member of a record belongs to the write of it with the highest order.

    put     at 5  {"a": 1, "b": 1}    the record is {"a": 1, "b": 1}
    update  at 7  {"a": 2}            the record is {"a": 2, "b": 1}
    put     at 6  {"b": 3}            the record is {"a": 2, "b": 3}, because the update of `a` is newer

A put or a delete at an order writes all members: those that it does not have are absent as of that order. An update
writes the members that it names. A write changes nothing where the record remembers a higher order, so writes may
arrive in any sequence and repeatedly. An equal order is applied.

The orders of a record are a JSON object. An empty name stands for all members.
"""

from typing import Any, Final

import msgspec

from .errors import InvalidOperation, quoted
from .updates import Changes
from .values import INTEGER_MIN, JsonObject

ALL = ""
"""The newest put or delete. The other orders of a record are higher than this one."""

EXISTS = "_ts_exists"
"""The newest update that names no member: it writes only that the record exists."""

EXPIRY = "_ts_expiry"
"""The newest update that gives a time to live."""

MEMBERS_MAX = 1000
"""Maximum number of members of a record with orders of their own."""

NAMES_BYTES_MAX = 2**17
"""Maximum size of a record's orders, as JSON."""

ABSENT: Final = msgspec.UNSET
"""As the value of a member: an update removes it."""

Assignments = dict[str, Any]
"""The members that an update writes: their values, or ABSENT."""


def assignments(changes: Changes) -> Assignments:
    """Return what an update writes. Raise InvalidOperation if it is no update that can have an order."""
    found: Assignments = {}
    for change in changes:
        if change.patch is not None:
            if any(isinstance(value, dict) for value in change.patch.values()):
                raise InvalidOperation(
                    "order: a merge patch cannot be ordered if a member is an object; $set replaces it whole"
                )
            found.update({name: ABSENT if value is None else value for name, value in change.patch.items()})
        for edit in change.edits:
            if edit.operator not in ("$set", "$unset"):
                cannot = f"{quoted(edit.operator)} cannot be ordered, only $set, $unset and merge patches"
                raise InvalidOperation(f"order: {cannot}")
            if len(edit.path) > 1:
                raise InvalidOperation(f"order: {edit.operator} must name top-level members, and this path is deeper")
            found[edit.path[0]] = edit.operand if edit.operator == "$set" else ABSENT
    return found


class Orders:
    """The orders that a record remembers. `text` is from `Orders.text`, empty if there are none."""

    def __init__(self, text: bytes = b"") -> None:
        self._of: dict[str, int] = msgspec.json.decode(text, type=dict[str, int]) if text else {}

    @property
    def text(self) -> bytes:
        """The orders as JSON. Raise InvalidOperation if they are too many."""
        text = msgspec.json.encode(self._of)
        if len(self._of.keys() - {ALL, EXISTS, EXPIRY}) > MEMBERS_MAX or len(text) > NAMES_BYTES_MAX:
            raise InvalidOperation(
                f"order: at most {MEMBERS_MAX} members of a record, with {NAMES_BYTES_MAX} bytes of names, may be "
                "newer than its newest ordered put or delete (ordered_members_max). A newer ordered put makes room"
            )
        return text

    @property
    def newest(self) -> int:
        """The order of the newest write, less than any order if there is none."""
        return max(self._of.values(), default=INTEGER_MIN - 1)

    def may_write(self, name: str, order: int) -> bool:
        """Return whether a write with this order changes a member, or `ALL`, or another register."""
        return order >= self._of.get(name, self._of.get(ALL, INTEGER_MIN - 1))

    def write_all(self, order: int) -> set[str]:
        """Remember a put or a delete. Return the names with higher orders, which it does not change."""
        self._of = {name: other for name, other in self._of.items() if other > order}
        newer = set(self._of)
        self._of[ALL] = order
        return newer

    def write(self, name: str, order: int) -> None:
        """Remember the write of one member."""
        if order > self._of.get(ALL, INTEGER_MIN - 1):
            self._of[name] = order


def assigned(present: JsonObject, members: Assignments) -> JsonObject:
    """Return a value after the assignments of an update."""
    return {name: member for name, member in {**present, **members}.items() if member is not ABSENT}
