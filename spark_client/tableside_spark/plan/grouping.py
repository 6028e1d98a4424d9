"""Checked rows as operations: one for each key, its rows folded where that is exact, else a list of what they say.

Everything here is expressions for the JVM, made from names alone, so that it can be made anew for each micro-batch.
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
    """Makes operations of checked rows.

    The rows have the columns that tell operations apart, `PROBLEM`, the documents, and `ORDER` and `DELETE` where
    there is an order and some rows are deletes. The operations have the first three, `ROWS` and `DELETE` (where it
    is true and there is an update too, the record is deleted first).
    """

    def __call__(self, rows: DataFrame) -> DataFrame:
        """The operations; nothing runs yet."""
        ...


@dataclass(frozen=True, slots=True)
class EachRow:
    """Every row is an operation of its own."""

    def __call__(self, rows: DataFrame) -> DataFrame:
        """The rows, each standing for itself."""
        return rows.withColumn(ROWS, F.lit(1).cast("long"))


@dataclass(frozen=True, slots=True)
class OnePerKey:
    """The rows of a key say all the same."""

    keys: tuple[str, ...]

    def __call__(self, rows: DataFrame) -> DataFrame:
        """One operation for each key."""
        return _per_key(rows, self.keys).agg(F.count(F.lit(1)).alias(ROWS))


@dataclass(frozen=True, slots=True)
class LastRowPerKey:
    """The last row of a key counts: its value, or that it is a delete."""

    keys: tuple[str, ...]
    ordered: bool
    deletes: bool

    def __call__(self, rows: DataFrame) -> DataFrame:
        """One put or delete for each key."""
        names = [VALUE, *([DELETE] if self.deletes else [])]
        # Of rows with one place in the order a delete is the last, as it is for updates.
        order = F.struct(ORDER, DELETE) if self.deletes else _order_column(self.ordered)
        last = RowSelection(order).last(F.struct(*names))
        grouped = _per_key(rows, self.keys).agg(F.count(F.lit(1)).alias(ROWS), last.alias(_LAST))
        return grouped.select(*_columns(self.keys), PROBLEM, ROWS, f"{_LAST}.*")


@dataclass(frozen=True, slots=True)
class UpdatePerKey:
    """The updates of a key become one: a document where each of its leaves folds, else a list of documents.

    `document` is what folds, or None, where the rows have `UPDATE`, the text of their own. With `deletes`, what comes
    before the last delete of a key does not count any more.
    """

    keys: tuple[str, ...]
    document: Document | None
    leaves: tuple[RowLeaf, ...]
    nulls: Nulls
    ordered: bool
    deletes: bool
    has_default: bool

    def __call__(self, rows: DataFrame) -> DataFrame:
        """One update for each key, a delete, or both."""
        taking = RowSelection(_order_column(self.ordered), ~F.col(DELETE) if self.deletes else None)
        kept = _since_last_delete(rows, self.keys) if self.deletes else rows
        if self.document is None:
            return self._list(kept, taking)
        return self._fold(kept, taking, self.document)

    def _fold(self, rows: DataFrame, taking: RowSelection, document: Document) -> DataFrame:
        folded = fold.fold(self.leaves, taking, self.nulls)
        aggregates = [aggregate.alias(name) for name, aggregate in folded.aggregates.items()]
        grouped = _per_key(rows, self.keys).agg(*self._key_aggregates(taking), *aggregates)
        text = json_text(document.struct(folded.values), self.nulls)
        return grouped.select(
            *_columns(self.keys),
            ROWS,
            F.coalesce(F.col(PROBLEM), first_problem(folded.overflows)).alias(PROBLEM),
            self._null_without_updates(text).alias(UPDATE),
            *([DEFAULT] if self.has_default else []),
            *([DELETE] if self.deletes else []),
        )

    def _list(self, rows: DataFrame, taking: RowSelection) -> DataFrame:
        text = taking.json_array(F.col(UPDATE)).alias(UPDATE)
        grouped = _per_key(rows, self.keys).agg(*self._key_aggregates(taking), text)
        kept = grouped.withColumn(UPDATE, self._null_without_updates(F.col(UPDATE)))
        return kept.drop(_UPDATES) if self.deletes else kept

    def _key_aggregates(self, taking: RowSelection) -> list[Column]:
        """What is known of a key's rows besides the update."""
        count = F.max(ROWS) if self.deletes else F.count(F.lit(1))
        default = [taking.first(F.col(DEFAULT)).alias(DEFAULT)] if self.has_default else []
        deletes = [F.bool_or(DELETE).alias(DELETE), taking.count().alias(_UPDATES)] if self.deletes else []
        return [count.alias(ROWS), *default, *deletes]

    def _null_without_updates(self, update: Column) -> Column:
        return F.when(F.col(_UPDATES) > 0, update) if self.deletes else update


def _since_last_delete(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """A key's last delete and what follows it; the delete stands for all the rows before."""
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
    """The rows, and the columns that hold apart what is not one operation.

    Rows with a problem do not spoil the others of their key; each that is for no partition is counted by itself.
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
