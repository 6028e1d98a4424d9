"""The operations of a request, decoded in pieces."""

from collections.abc import Sequence
from itertools import chain

import msgspec

from ...core import Batch, Operation, TableError
from .operation_columns import DecodedRows
from .projections import Fields


class DecodedBatch(msgspec.Struct, frozen=True):
    """A decoded batch of `count` operations: the valid ones, and the errors of the others by position.

    `fields` are the requested members of values at each position, None if all operations request whole values.
    """

    operations: Sequence[Operation]
    errors: dict[int, TableError]
    fields: list[Fields] | None
    count: int


class BatchBuilder:
    """Joins decoded rows. Operations of one kind stay in columns."""

    def __init__(self) -> None:
        self.count = 0
        self._parts: list[Sequence[Operation]] = []
        self._errors: dict[int, TableError] = {}
        self._fields: list[list[Fields]] = []
        self._projects = False

    def add(self, count: int, rows: DecodedRows) -> None:
        """Add `count` decoded rows."""
        self._errors.update({self.count + at: error for at, error in rows.errors.items()})
        if len(rows.operations):
            self._parts.append(rows.operations)
        self._fields.append([None] * count if rows.fields is None else rows.fields)
        self._projects = self._projects or rows.fields is not None
        self.count += count

    def skip(self, count: int, error: TableError) -> None:
        """Add rows that are not decoded."""
        self.add(count, DecodedRows([], dict.fromkeys(range(count), error)))

    def build(self) -> DecodedBatch:
        """Return the batch."""
        fields = list(chain.from_iterable(self._fields)) if self._projects else None
        return DecodedBatch(self._operations(), self._errors, fields, self.count)

    def _operations(self) -> Sequence[Operation]:
        batches = [part for part in self._parts if isinstance(part, Batch)]
        if batches and len(batches) == len(self._parts) and len({batch.kind for batch in batches}) == 1:
            return Batch.joined(batches)
        return list(chain.from_iterable(self._parts))
