"""The planned writes of a transaction, and their outcomes."""

from collections.abc import Collection

import msgspec

from ...core import Changed, Key, Outcome, Stored, Write, Written
from .rows import Row


class DecidedWrite(msgspec.Struct, frozen=True):
    """A decided write that is not yet executed: the write, the decision, and the resulting row."""

    write: Write
    changed: Changed
    row: Row


class Conflict(msgspec.Struct, frozen=True):
    """Another writer has changed the record in the meantime, so the write must be decided again."""


CONFLICT = Conflict()


class TransactionPlan:
    """The changes of one transaction, and the outcomes of its writes."""

    def __init__(self, count: int) -> None:
        self.outcomes: list[Outcome | DecidedWrite | Conflict] = [None] * count
        self.updates: dict[int, DecidedWrite] = {}
        self.inserts: dict[int, DecidedWrite] = {}
        self.deletes: list[Key] = []
        self.side_rows: dict[Key, Stored | None] = {}
        self.created_keys: Collection[Key] = ()

    @property
    def changes_anything(self) -> bool:
        """Whether the transaction writes anything."""
        return bool(self.updates or self.inserts or self.deletes or self.side_rows)

    def set_outcome(self, index: int, decision: DecidedWrite, outcome: Outcome | Conflict) -> None:
        """Store the outcome of a write, and the new etag for its side row."""
        self.outcomes[index] = outcome
        if isinstance(outcome, Written) and decision.changed.stored is not None:
            self.side_rows[decision.row.key] = msgspec.structs.replace(decision.changed.stored, etag=outcome.etag or "")
