"""Ordered writes: the sequence of each row, and the updates that can still take effect.

Each top-level member of a record keeps the value with the highest order, whatever arrives last. So of the rows of a
key, only the newest one for each member matters, and the operations of a key can be applied in any order.
"""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window, functions as F
from pyspark.sql.types import DataType, DateType, IntegralType, TimestampNTZType, TimestampType

from tableside_client.key_columns import DAY_US
from tableside_client.operators import MERGE_PATCH, OPERATORS, WHOLE_UPDATE
from tableside_spark.executor.operation_batch import DELETE, EXPIRY, PROBLEM, SEQUENCE
from tableside_spark.plan.fold import RowLeaf
from tableside_spark.plan.frames import quoted
from tableside_spark.plan.grouping import LIVE, UpdatePerKey
from tableside_spark.plan.json_columns import Check, json_kind
from tableside_spark.plan.update_documents import Document

SequenceBy = str | Column | None

_TYPES = (IntegralType, DateType, TimestampType, TimestampNTZType)
_DAYS_MAX = (2**63 - 1) // DAY_US
_ORDERED = (OPERATORS["$set"], OPERATORS["$unset"], MERGE_PATCH, WHOLE_UPDATE)


def sequence_column(frame: DataFrame, sequence_by: str | Column) -> Column:
    """Return the column `SEQUENCE`. Raises `ValueError` for a type that is not an integer, a date or a timestamp."""
    if not isinstance(sequence_by, str | Column):
        raise ValueError(f"sequence_by is one column or its name, not {type(sequence_by).__name__}")
    column = (quoted(sequence_by) if isinstance(sequence_by, str) else sequence_by).alias(SEQUENCE)
    require_sequence_type(frame.select(column).schema[SEQUENCE].dataType)
    return column


def require_sequence_type(kind: DataType) -> None:
    """Raise `ValueError` for a type whose values are not sequences."""
    if not isinstance(kind, _TYPES):
        raise ValueError(f"sequence_by is {kind.simpleString()}: it must be an integer, a timestamp or a date")


def sequence_checks(rows: DataFrame, sequence_by: SequenceBy) -> list[Check]:
    """Return the conditions for rows of an ordered write that have no order, and their problems."""
    if sequence_by is None:
        return []
    name = f"column {sequence_by} of sequence_by" if isinstance(sequence_by, str) else "sequence_by"
    checks: list[Check] = [(F.col(SEQUENCE).isNull(), f"{name} is null")]
    if isinstance(rows.schema[SEQUENCE].dataType, DateType):
        is_beyond = F.abs(F.unix_date(SEQUENCE)) > _DAYS_MAX
        checks.append((is_beyond, f"{name} is a date whose microseconds since 1970 exceed 64 bits"))
    return checks


def require_ordered_update(documents: Sequence[Document], leaves: Sequence[RowLeaf]) -> None:
    """Raise `ValueError` for an update that has no order: one that does more than replace or remove members."""
    for document in documents:
        for used in document.operators:
            if used not in _ORDERED:
                raise ValueError(f"{used.name} cannot have sequence_by: only $set, $unset and merge patches can")
        for name, part in document.template.items():
            if not isinstance(part, dict):
                continue
            if MERGE_PATCH in document.operators:
                raise _merges(name)
            if paths := [path for path in part if "." in path]:
                raise ValueError(f"{name} {paths[0]} cannot have sequence_by: it must name a top-level member")
    for leaf in leaves:
        if leaf.leaf.operator is MERGE_PATCH and json_kind(leaf.kind) == "object":
            raise _merges(leaf.leaf.label)


def _merges(member: str) -> ValueError:
    return ValueError(
        f"the merge patch of {member} cannot have sequence_by, because it merges objects: $set replaces the member"
    )


@dataclass(frozen=True, slots=True)
class UpdatePerSequence(UpdatePerKey):
    """One update or delete per key and `SEQUENCE`. A row without effect belongs to that of its key's newest row."""

    @property
    def _marks_live(self) -> bool:
        return True

    def _mark_live(self, rows: DataFrame) -> DataFrame:
        """Add `LIVE`: whether a row can still take effect. `SEQUENCE` and `DELETE` become those of its operation."""
        sequence, newest = F.col(SEQUENCE), self._newest(F.lit(True))
        is_live = (sequence == newest) | self._is_newest_of_a_member()
        is_delete, deletes = F.lit(False), dict[str, Column]()
        if self.deletes:
            last_delete = self._newest(F.col(DELETE))
            is_live &= F.coalesce(sequence > last_delete, F.lit(True))
            is_delete = F.coalesce(F.col(DELETE) & (sequence == last_delete), F.lit(False))
            deletes = {DELETE: is_delete}
        own = F.when(is_live | is_delete, sequence).otherwise(newest)
        return rows.withColumns({LIVE: is_live, SEQUENCE: own, **deletes})

    def _is_newest_of_a_member(self) -> Column:
        """The condition for rows that write a member, or the expiry, of which no newer row is known."""
        if any(part.leaf.operator == WHOLE_UPDATE for part in self.leaves):
            return F.lit(True)
        # If nulls are written, every row writes all members.
        members = [] if self.nulls == "write" else [part.name for part in self.leaves]
        present = [F.col(name).isNotNull() for name in (*members, *([EXPIRY] if self.has_expiry else []))]
        newest = [each & (F.col(SEQUENCE) == self._newest(each)) for each in present]
        return functools.reduce(operator.or_, newest, F.lit(False))

    def _newest(self, condition: Column) -> Column:
        of_key = Window.partitionBy(*[quoted(name) for name in self.keys if name != SEQUENCE])
        return F.max(F.when(F.col(PROBLEM).isNull() & condition, F.col(SEQUENCE))).over(of_key)
