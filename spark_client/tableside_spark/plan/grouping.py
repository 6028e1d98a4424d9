"""Group checked rows into operations, with expressions of column names only, built for each micro-batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window, functions as F

from tableside_spark.executor.operation_batch import DELETE, EXPIRY, INVALID, LATER_PARTS, PROBLEM, ROWS, internal
from tableside_spark.plan import fold
from tableside_spark.plan.fold import RowLeaf, RowSelection
from tableside_spark.plan.frames import quoted
from tableside_spark.plan.json_columns import Nulls, first_problem, json_text
from tableside_spark.plan.update_documents import Document

VALUE, UPDATE, DEFAULT, ORDER = map(internal, ("value", "update", "default", "order"))
LIVE, _LAST, _UPDATES = map(internal, ("live", "last", "updates"))


@dataclass(frozen=True, slots=True)
class Grouping:
    """Builds operations, which have `ROWS` and no `ORDER`, from checked rows. Here, each row is an operation."""

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that rows share with their operation, if they are valid. Empty if each row is an operation."""
        return ()

    def assign(self, rows: DataFrame) -> DataFrame:
        """Add the columns that assign each row to its operation. `operations` and `with_text` take the result."""
        return rows

    def operations(self, rows: DataFrame) -> DataFrame:
        """Return the operations."""
        return rows.withColumn(ROWS, F.lit(1).cast("long"))

    def with_text(self, rows: DataFrame) -> DataFrame:
        """Add the documents of each row as JSON text, unless the rows have them."""
        return rows


@dataclass(frozen=True, slots=True)
class OnePerKey(Grouping):
    """One operation per key. Its rows have equal content."""

    keys: tuple[str, ...]

    @property
    def identity(self) -> tuple[str, ...]:
        """The key and `LATER_PARTS`."""
        return (*self.keys, LATER_PARTS)

    def assign(self, rows: DataFrame) -> DataFrame:
        """Assign all valid rows of a key to one operation."""
        return rows.withColumn(LATER_PARTS, F.when(F.col(PROBLEM).isNull(), 0).otherwise(INVALID))

    def operations(self, rows: DataFrame) -> DataFrame:
        """Return one operation per key."""
        return rows.groupBy(*self._group()).agg(F.count(F.lit(1)).alias(ROWS))

    def _group(self) -> list[Column]:
        """The columns to group by. Rows with a problem form separate groups, and do not affect other rows."""
        return [*map(quoted, self.identity), F.col(PROBLEM)]


@dataclass(frozen=True, slots=True)
class LastRowPerKey(OnePerKey):
    """The last row of a key is used: its `columns`, which are its value, whether it is a delete, and so on."""

    columns: tuple[str, ...]
    ordered: bool

    def operations(self, rows: DataFrame) -> DataFrame:
        """Return one put or delete per key."""
        # If several rows have the same `order_by` value, a delete is applied last, like a delete among updates.
        order = F.struct(ORDER, DELETE) if DELETE in self.columns else F.col(ORDER) if self.ordered else None
        last = RowSelection(order).last(F.struct(*self.columns))
        grouped = rows.groupBy(*self._group()).agg(F.count(F.lit(1)).alias(ROWS), last.alias(_LAST))
        return grouped.select(*self._group(), ROWS, f"{_LAST}.*")


@dataclass(frozen=True, slots=True)
class UpdatePerKey(OnePerKey):
    """The updates of a key become one: a folded document, or, if `document` is None, a list of the texts in `UPDATE`.

    With `deletes`, rows before the last delete of a key are ignored. An update whose size depends on the number of rows
    is divided into parts of limited size.
    """

    document: Document | None
    leaves: tuple[RowLeaf, ...]
    nulls: Nulls
    ordered: bool
    deletes: bool
    has_default: bool
    has_expiry: bool

    def assign(self, rows: DataFrame) -> DataFrame:
        """Assign the valid rows of a key to one operation, or to several of limited size."""
        marked = self._mark_live(rows) if self._marks_live else rows
        if not self._grows():
            return OnePerKey.assign(self, marked)
        order = [F.desc(ORDER)] if self.ordered else []
        parts = add_later_parts(self.with_text(marked), self.keys, UPDATE, order, self._selected())
        return parts.withColumn(LATER_PARTS, F.when(F.col(PROBLEM).isNull(), F.col(LATER_PARTS)).otherwise(INVALID))

    def operations(self, rows: DataFrame) -> DataFrame:
        """Return one update, one delete, or both, per key and part. The parts of a key are in one task, in order."""
        updates = self._list(rows) if self.document is None else self._fold(rows, self.document)
        if not self._grows():
            return updates
        return updates.repartition(*map(quoted, self.keys)).sortWithinPartitions(F.desc(LATER_PARTS))

    def with_text(self, rows: DataFrame) -> DataFrame:
        """Add the column `UPDATE`, the document of a single row."""
        if self.document is None or UPDATE in rows.columns:
            return rows
        operands = [fold.operand_in_row(part.leaf, F.col(part.name), self.nulls) for part in self.leaves]
        return rows.withColumn(UPDATE, json_text(self.document.struct(operands), self.nulls))

    def _grows(self) -> bool:
        """Whether the size of the update depends on the number of rows."""
        return self.document is None or any(part.leaf.operator.elements for part in self.leaves)

    def _selected(self) -> Column:
        is_valid = F.col(PROBLEM).isNull()
        return is_valid & F.col(LIVE) if self._marks_live else is_valid

    def _selection(self) -> RowSelection:
        return RowSelection(F.col(ORDER) if self.ordered else None, self._selected())

    def _fold(self, rows: DataFrame, document: Document) -> DataFrame:
        folded = fold.fold(self.leaves, self._selection(), self.nulls)
        aggregates = [aggregate.alias(name) for name, aggregate in folded.aggregates.items()]
        grouped = rows.groupBy(*self._group()).agg(*self._key_aggregates(), *aggregates)
        text = json_text(document.struct(folded.values), self.nulls)
        return grouped.select(
            *map(quoted, self.keys),
            LATER_PARTS,
            ROWS,
            F.coalesce(F.col(PROBLEM), first_problem(folded.overflows)).alias(PROBLEM),
            self._null_without_updates(text).alias(UPDATE),
            *([DEFAULT] if self.has_default else []),
            *([DELETE] if self.deletes else []),
            *([EXPIRY] if self.has_expiry else []),
        )

    def _list(self, rows: DataFrame) -> DataFrame:
        text = self._selection().json_array(F.col(UPDATE)).alias(UPDATE)
        grouped = rows.groupBy(*self._group()).agg(*self._key_aggregates(), text)
        return grouped.withColumn(UPDATE, self._null_without_updates(F.col(UPDATE))).drop(_UPDATES)

    def _key_aggregates(self) -> list[Column]:
        selection = self._selection()
        default = [selection.first(F.col(DEFAULT)).alias(DEFAULT)] if self.has_default else []
        deletes = (
            [F.bool_or(DELETE).alias(DELETE), F.count_if(self._selected()).alias(_UPDATES)] if self.deletes else []
        )
        expiry = [selection.last_given(EXPIRY).alias(EXPIRY)] if self.has_expiry else []
        return [F.count(F.lit(1)).alias(ROWS), *default, *deletes, *expiry]

    def _null_without_updates(self, update: Column) -> Column:
        return F.when(F.col(_UPDATES) > 0, update) if self.deletes else update

    @property
    def _marks_live(self) -> bool:
        """Whether some rows of a key may have no effect."""
        return self.deletes

    def _mark_live(self, rows: DataFrame) -> DataFrame:
        """Add `LIVE`: whether a row is after the last delete of its key."""
        is_delete = F.col(DELETE) & F.col(PROBLEM).isNull()
        last = F.max(F.when(is_delete, F.col(ORDER))).over(Window.partitionBy(*map(quoted, self.keys)))
        return rows.withColumn(LIVE, F.coalesce(F.col(ORDER) > last, F.lit(True)))


PART_ROWS_MAX = 2_048
"""The maximum number of a key's rows in one operation. It divides `PART_BYTES_MAX`, so that full parts reach it."""
PART_BYTES_MAX = 2**20
"""The size of the JSON texts of a part's rows, above which the next row begins another part."""

ELEMENT_BYTES = 42
"""An element of a row's JSON text, or a name in a path, counts as at least this many bytes.

A part therefore has at most 50,000 names in paths, the service's limit (`path_names_max`), even if its first row begins
in the part before. Commas, dots and brackets elsewhere count as well, which only makes parts smaller.
"""

_ELEMENT = r"[,.\[{]"
_COUNTED_BYTES_MIN = 64
"""Elements of shorter texts are not counted: `PART_ROWS_MAX` of them have fewer than the limit."""

_WEIGHT = internal("weight")


def add_later_parts(
    rows: DataFrame, keys: Sequence[str], text: str, order: Sequence[Column], counted: Column
) -> DataFrame:
    """Add `LATER_PARTS`, the number of parts of the key after the row's part, from the JSON `text` of the rows.

    The division depends only on the rows of the key and on the constants of this module. A repeated micro-batch
    therefore consists of the same parts, which their tokens require. `order` is descending, and then by `text`. Rows
    that are not `counted` have no size.
    """
    least = PART_BYTES_MAX // PART_ROWS_MAX
    elements = F.when(F.octet_length(text) >= _COUNTED_BYTES_MIN, F.regexp_count(text, F.lit(_ELEMENT))).otherwise(0)
    size = F.greatest(F.octet_length(text), elements * ELEMENT_BYTES, F.lit(least))
    size = F.least(size, F.lit(PART_BYTES_MAX))
    weight = F.when(counted, size).otherwise(0).cast("long").alias(_WEIGHT)
    of_key = Window.partitionBy(*map(quoted, keys)).orderBy(*order, F.desc(text))
    so_far = F.sum(_WEIGHT).over(of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    part = F.floor((F.greatest(so_far, F.lit(1)) - 1) / PART_BYTES_MAX).cast("int")
    return rows.select("*", weight).withColumn(LATER_PARTS, part).drop(_WEIGHT)
