"""What a record is after ordered writes, computed from all of its acknowledged writes.

Written only from the description of ordered writes. The service remembers one order for each member instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MISSING = object()
"""As a member of a write: the write removes it."""


@dataclass(frozen=True)
class Past:
    """An acknowledged write: all members of a put, or those that an update names.

    A write without an order has the members of the record that it left, None if it left none.
    """

    kind: str
    order: int | None
    members: dict[str, Any] | None = field(default_factory=dict)
    gives_expiry: bool = True

    @property
    def whole(self) -> bool:
        return self.kind != "update"

    def writes(self, name: str) -> bool:
        return self.whole or name in (self.members or {})


History = Sequence[Past]


def value_after(history: History) -> dict[str, Any] | None:
    """Return the value after writes in the sequence of their arrival, None if there is no record."""
    deciding = effective(history)
    if not deciding or deciding[-1].kind == "delete" or deciding[-1].members is None:
        return None
    names = {name for past in history for name in past.members or {}}
    last = {name: effective([past for past in history if past.writes(name)]) for name in names}
    members = {name: (writes[-1].members or {}).get(name, MISSING) for name, writes in last.items() if writes}
    return {name: member for name, member in members.items() if member is not MISSING}


def effective(history: History) -> list[Past]:
    """Return the writes that no earlier write with a higher order precedes. One without an order always counts."""
    return [past for at, past in enumerate(history) if past.order is None or not newer(history[:at], past.order)]


def newer(history: History, order: int) -> list[Past]:
    return [past for past in history if past.order is not None and past.order > order]


def is_superseded(history: History, past: Past) -> bool:
    """Return whether a write that arrives after others is superseded."""
    assert past.order is not None
    later = newer(history, past.order)
    if past.whole:
        return any(other.whole for other in later)
    names = past.members or {}
    return bool(names) and all(any(other.writes(name) for other in later) for name in names)


def assignments(document: Any) -> dict[str, Any] | None:
    """Return the members that an update writes, None if it cannot be ordered."""
    found: dict[str, Any] = {}
    for one in document if isinstance(document, list) else [document]:
        operators = {name for name in one if name.startswith("$")}
        if operators - {"$set", "$unset"}:
            return None
        paths = {path for operator in operators for path in one[operator]}
        if any("." in path for path in paths) or (
            not operators and any(isinstance(member, dict) for member in one.values())
        ):
            return None
        if operators:
            found |= one.get("$set", {})
            found |= dict.fromkeys(one.get("$unset", []), MISSING)
        else:
            found |= {name: MISSING if member is None else member for name, member in one.items()}
    return found
