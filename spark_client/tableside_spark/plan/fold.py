"""Rows with one key become one update: folded where that is exact, an ordered list where it is not.

Folded and listed updates leave equal records. A fold is an aggregate expression per leaf of the document:

    $inc                the sum, of integers; floating-point sums depend on their order, so they are listed
    $min $max           the least, the greatest, where Spark orders the values as their JSON is ordered
    $set, merge patch   the last row's values, all of one row
    $push $addToSet     the elements in order, the distinct elements

Where nulls are written, a null operand among the rows stays null, to be refused as it would be alone. Where
they are omitted, a row with a null does not take part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    LongType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from tableside_spark.plan.json_columns import INTEGERS, Nulls
from tableside_spark.plan.update_documents import MERGE, Leaf

_ORDERED_TYPES = (NumericType, StringType, DateType, TimestampType, TimestampNTZType)
_OPERAND_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "$inc": (NumericType,),
    "$min": _ORDERED_TYPES,
    "$max": _ORDERED_TYPES,
    "$each": (ArrayType, VariantType),
}
_LAST = "__last"
_SUM = "decimal(20,0)"  # holds any 64-bit integer, and its sums hold any number of them


@dataclass(frozen=True, slots=True)
class RowLeaf:
    """A leaf, the column of the prepared rows that has its values, and their type."""

    leaf: Leaf
    name: str
    kind: DataType


@dataclass(slots=True)
class Fold:
    """Aggregates by the name of the column they make; the leaves' values read from those; what overflowed."""

    aggregates: dict[str, Column] = field(default_factory=dict)
    values: list[Column] = field(default_factory=list)
    overflows: list[tuple[Column, str]] = field(default_factory=list)


def require_operand_type(row_leaf: RowLeaf) -> None:
    """Refuse an operand of a type that its operator never takes."""
    leaf, kind = row_leaf.leaf, row_leaf.kind
    takes = _OPERAND_TYPES.get("$each" if leaf.each else leaf.operator, (DataType,))
    if not isinstance(kind, takes):
        raise ValueError(f"{leaf.label} does not take {kind.simpleString()}")


def is_foldable(row_leaf: RowLeaf) -> bool:
    """Whether folding this leaf gives exactly what its rows would give one after the other."""
    leaf, kind = row_leaf.leaf, row_leaf.kind
    if " collate " in kind.simpleString():  # texts compare otherwise there than in a record
        return False
    if leaf.operator == "$inc":
        return isinstance(kind, INTEGERS)
    if leaf.each:
        return isinstance(kind, ArrayType)
    # Objects merge: two patches of one member are not the later one alone.
    return leaf.operator != MERGE or not isinstance(kind, StructType | MapType | VariantType)


def operand_in_row(leaf: Leaf, column: Column, nulls: Nulls) -> Column:
    """A leaf's operand as it stands in the document of a single row."""
    if not leaf.each:
        return column
    elements = F.struct(column.alias("$each"))
    return F.when(column.isNotNull(), elements) if nulls == "omit" else elements


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Which of a key's rows take part, and in which order: all of them, and any, where nothing else is said."""

    order: Column | None = None
    rows: Column | None = None

    def masked(self, column: Column) -> Column:
        """The column where the row takes part, else null, which aggregates pass over."""
        return column if self.rows is None else F.when(self.rows, column)

    def count(self) -> Column:
        """How many rows take part."""
        return F.count(F.lit(1)) if self.rows is None else F.count_if(self.rows)

    def first(self, column: Column) -> Column:
        """The column's value in the first row, or in any."""
        return F.first(column) if self.order is None else F.min_by(column, self.masked(self.order))

    def last(self, column: Column) -> Column:
        """The column's value in the last row, or in any."""
        return F.first(column) if self.order is None else F.max_by(column, self.masked(self.order))

    def json_array(self, text: Column) -> Column:
        """The JSON documents of the rows, in order, as one JSON array."""
        if self.order is None:
            return F.concat(F.lit("["), F.concat_ws(",", F.collect_list(text)), F.lit("]"))
        pairs = F.sort_array(F.collect_list(self.masked(F.struct(self.order.alias("order"), text.alias("text")))))
        return F.concat(F.lit("["), F.concat_ws(",", F.transform(pairs, lambda pair: pair["text"])), F.lit("]"))


def fold(leaves: Sequence[RowLeaf], taking: RowSelection, nulls: Nulls) -> Fold:
    """The aggregates that fold the rows of one key, all of whose leaves are `is_foldable`."""
    result = Fold()
    for row_leaf in leaves:
        match row_leaf.leaf.operator:
            case "$inc":
                _add_sum(result, row_leaf, taking, nulls)
            case "$min":
                _add(
                    result,
                    row_leaf,
                    _null_if_any_null(F.min(taking.masked(F.col(row_leaf.name))), row_leaf.name, taking, nulls),
                )
            case "$max":
                _add(
                    result,
                    row_leaf,
                    _null_if_any_null(F.max(taking.masked(F.col(row_leaf.name))), row_leaf.name, taking, nulls),
                )
            case "$push" | "$addToSet":
                _add_elements(result, row_leaf, taking, nulls)
            case _ if nulls == "omit":
                _add(result, row_leaf, _last_non_null(row_leaf.name, taking))
            case _:
                result.values.append(F.col(_LAST).getField(row_leaf.name))
    last = [row_leaf.name for row_leaf in leaves if row_leaf.leaf.operator in ("$set", MERGE)]
    if last and nulls == "write":
        result.aggregates[_LAST] = taking.last(F.struct(*[F.col(name) for name in last]))
    return result


def _add(result: Fold, row_leaf: RowLeaf, aggregate: Column) -> None:
    result.aggregates[row_leaf.name] = aggregate
    result.values.append(F.col(row_leaf.name))


def _null_if_any_null(aggregate: Column, name: str, taking: RowSelection, nulls: Nulls) -> Column:
    """Null if any operand is: aggregates skip nulls, and one would go unnoticed."""
    if nulls == "omit":
        return aggregate
    return F.when(F.count(taking.masked(F.col(name))) == taking.count(), aggregate)


def _add_sum(result: Fold, row_leaf: RowLeaf, taking: RowSelection, nulls: Nulls) -> None:
    name = row_leaf.name
    if not isinstance(row_leaf.kind, LongType):  # 2^31 rows of 32 bits fit into 64
        _add(result, row_leaf, _null_if_any_null(F.sum(taking.masked(F.col(name).cast("long"))), name, taking, nulls))
        return
    result.aggregates[name] = _null_if_any_null(F.sum(taking.masked(F.col(name).cast(_SUM))), name, taking, nulls)
    total = F.col(name).try_cast("long")
    result.values.append(total)
    overflow = F.col(name).isNotNull() & total.isNull()
    result.overflows.append((overflow, f"{row_leaf.leaf.label}: the rows' sum is beyond 64 bits"))


def _last_non_null(name: str, taking: RowSelection) -> Column:
    if taking.order is None:
        return F.first(name, ignorenulls=True)
    return F.max_by(F.col(name), F.when(F.col(name).isNotNull(), taking.masked(taking.order)))


def _add_elements(result: Fold, row_leaf: RowLeaf, taking: RowSelection, nulls: Nulls) -> None:
    leaf, name = row_leaf.leaf, row_leaf.name
    plain = _is_comparable(row_leaf.kind)
    as_set = leaf.operator == "$addToSet" and plain
    result.aggregates[name] = _collected(name, taking, as_set=as_set)
    pairs = F.col(name)
    if taking.order is not None:
        pairs = F.sort_array(pairs) if plain else F.array_sort(pairs, _by_order)
    elements = F.transform(pairs, lambda pair: pair["element"])
    if nulls == "omit":
        elements = F.filter(elements, lambda element: element.isNotNull())
    nothing = F.size(elements) == 0  # empty lists are something: they make an empty array
    elements = F.flatten(elements) if leaf.each else elements
    if as_set:
        elements = F.array_distinct(elements)
        elements = elements if taking.order is not None else F.sort_array(elements)
    document = F.struct(elements.alias("$each"))
    result.values.append(F.when(~nothing, document) if nulls == "omit" else document)


def _collected(name: str, taking: RowSelection, *, as_set: bool) -> Column:
    """Elements in structs, since collecting drops bare nulls."""
    if taking.order is not None:
        return F.collect_list(taking.masked(F.struct(taking.order.alias("order"), F.col(name).alias("element"))))
    element = taking.masked(F.struct(F.col(name).alias("element")))
    return F.collect_set(element) if as_set else F.collect_list(element)


def _by_order(left: Column, right: Column) -> Column:
    return F.when(left["order"] < right["order"], -1).when(left["order"] > right["order"], 1).otherwise(0)


def _is_comparable(kind: DataType) -> bool:
    match kind:
        case MapType() | VariantType():
            return False
        case ArrayType():
            return _is_comparable(kind.elementType)
        case StructType():
            return all(_is_comparable(member.dataType) for member in kind.fields)
    return True
