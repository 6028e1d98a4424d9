"""Group checked rows into operations: one per key, folded if the result is exact, otherwise a list of updates.

Everything in this module is a JVM expression made from column names only, so that it can be built again for each
micro-batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column, DataFrame, GroupedData, Window
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from tableside_spark.executor.operation_batch import DELETE, NO_PARTITION, PARTITION, PROBLEM, ROWS, internal
from tableside_spark.plan import fold
from tableside_spark.plan.fold import RowLeaf, RowSelection
from tableside_spark.plan.frames import quoted
from tableside_spark.plan.json_columns import Nulls, first_problem, json_text
from tableside_spark.plan.update_documents import Document

VALUE, UPDATE, DEFAULT, ORDER = map(internal, ("value", "update", "default", "order"))
_LAST, _LAST_DELETE, _UPDATES, _ALONE = map(internal, ("last", "last_delete", "updates", "alone"))


class Grouping(Protocol):
    """Builds operations from checked rows.

    The rows have the columns that identify an operation, `PROBLEM`, the documents, and optionally `ORDER` and `DELETE`.
    The operations have the same columns without `ORDER`, and `ROWS`. If `DELETE` is true and there is an update, the
    record is deleted before the update.
    """

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Return the operations. This only builds a plan."""
        ...


@dataclass(frozen=True, slots=True)
class EachRow:
    """Every row is a separate operation."""

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Return the rows, each with a count of 1."""
        return rows.withColumn(ROWS, F.lit(1).cast("long"))


@dataclass(frozen=True, slots=True)
class OnePerKey:
    """One operation per key; its rows have equal content."""

    keys: tuple[str, ...]

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Return one operation per key."""
        return _per_key(rows, self.keys).agg(F.count(F.lit(1)).alias(ROWS))


@dataclass(frozen=True, slots=True)
class LastRowPerKey:
    """The last row of a key is used: its value, or a delete."""

    keys: tuple[str, ...]
    ordered: bool
    deletes: bool

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Return one put or delete per key."""
        names = [VALUE, *([DELETE] if self.deletes else [])]
        # If several rows have the same `order_by` value, a delete is applied last, as it is for updates.
        order = F.struct(ORDER, DELETE) if self.deletes else _order_column(self.ordered)
        last = RowSelection(order).last(F.struct(*names))
        grouped = _per_key(rows, self.keys).agg(F.count(F.lit(1)).alias(ROWS), last.alias(_LAST))
        return grouped.select(*_columns(self.keys), PROBLEM, ROWS, f"{_LAST}.*")


@dataclass(frozen=True, slots=True)
class UpdatePerKey:
    """The updates of a key become one update: a folded document, or a list of documents.

    `document` is the document to fold. It is None if the updates are listed; the rows then have the column `UPDATE`
    with JSON text. With `deletes`, rows before the last delete of a key are ignored.
    """

    keys: tuple[str, ...]
    document: Document | None
    leaves: tuple[RowLeaf, ...]
    nulls: Nulls
    ordered: bool
    deletes: bool
    has_default: bool

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Return one update, one delete, or both, per key."""
        selection = RowSelection(_order_column(self.ordered), ~F.col(DELETE) if self.deletes else None)
        kept = _since_last_delete(rows, self.keys) if self.deletes else rows
        if self.document is None:
            return self._list(kept, selection)
        return self._fold(kept, selection, self.document)

    def _fold(self, rows: DataFrame, selection: RowSelection, document: Document) -> DataFrame:
        folded = fold.fold(self.leaves, selection, self.nulls)
        aggregates = [aggregate.alias(name) for name, aggregate in folded.aggregates.items()]
        grouped = _per_key(rows, self.keys).agg(*self._key_aggregates(selection), *aggregates)
        text = json_text(document.struct(folded.values), self.nulls)
        return grouped.select(
            *_columns(self.keys),
            ROWS,
            F.coalesce(F.col(PROBLEM), first_problem(folded.overflows)).alias(PROBLEM),
            self._null_without_updates(text).alias(UPDATE),
            *([DEFAULT] if self.has_default else []),
            *([DELETE] if self.deletes else []),
        )

    def _list(self, rows: DataFrame, selection: RowSelection) -> DataFrame:
        text = selection.json_array(F.col(UPDATE)).alias(UPDATE)
        grouped = _per_key(rows, self.keys).agg(*self._key_aggregates(selection), text)
        kept = grouped.withColumn(UPDATE, self._null_without_updates(F.col(UPDATE)))
        return kept.drop(_UPDATES) if self.deletes else kept

    def _key_aggregates(self, selection: RowSelection) -> list[Column]:
        """The aggregates of a key's rows, apart from the update."""
        count = F.max(ROWS) if self.deletes else F.count(F.lit(1))
        default = [selection.first(F.col(DEFAULT)).alias(DEFAULT)] if self.has_default else []
        deletes = [F.bool_or(DELETE).alias(DELETE), selection.count().alias(_UPDATES)] if self.deletes else []
        return [count.alias(ROWS), *default, *deletes]

    def _null_without_updates(self, update: Column) -> Column:
        return F.when(F.col(_UPDATES) > 0, update) if self.deletes else update


def _since_last_delete(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Keep a key's last delete and the rows after it. The count of the delete includes the rows before it."""
    apart, names = _with_group_columns(rows, keys)
    of_key = Window.partitionBy(*_columns(names))
    last = F.max(F.when(F.col(DELETE), F.col(ORDER))).over(of_key)
    marked = apart.withColumn(_LAST_DELETE, last).withColumn(ROWS, F.count(F.lit(1)).over(of_key))
    is_last = F.col(DELETE) & (F.col(ORDER) == F.col(_LAST_DELETE))
    return marked.where(F.col(_LAST_DELETE).isNull() | (F.col(ORDER) > F.col(_LAST_DELETE)) | is_last)


def _per_key(rows: DataFrame, keys: Sequence[str]) -> GroupedData:
    apart, names = _with_group_columns(rows, keys)
    return apart.groupBy(*_columns(names))


def _with_group_columns(rows: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """Return the rows and the columns to group by.

    Rows with a problem form their own group, so that they do not affect other rows of the key. Each row without a
    partition forms its own group, so that it is counted.
    """
    if PARTITION not in keys:
        return rows, [*keys, PROBLEM]
    alone = F.when(F.col(PARTITION) == NO_PARTITION, F.monotonically_increasing_id())
    numbered = rows if _ALONE in rows.columns else rows.withColumn(_ALONE, alone)
    return numbered, [*keys, PROBLEM, _ALONE]


def _columns(names: Sequence[str]) -> list[Column]:
    return [quoted(name) for name in names]


def _order_column(ordered: bool) -> Column | None:
    return F.col(ORDER) if ordered else None
