"""Fold the rows of a key into one update if that is exact: an aggregate for each leaf, by its operator's rule."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, functions as F
from pyspark.sql.types import ArrayType, ByteType, DataType, IntegerType, MapType, ShortType, StringType, StructType

from tableside_spark.plan.json_columns import Nulls, json_kind, scalar_types
from tableside_spark.plan.update_documents import Leaf
from tableside_spark.versions import VariantType

_LAST = "__last"
_SUM = "decimal(20,0)"  # fits any 64-bit integer, and its sums fit any number of rows


@dataclass(frozen=True, slots=True)
class RowLeaf:
    """A leaf, the name of its column in the prepared rows, and the type of its values."""

    leaf: Leaf
    name: str
    kind: DataType


@dataclass(slots=True)
class Fold:
    """Aggregates by column name, the leaves' values computed from them, and overflow checks."""

    aggregates: dict[str, Column] = field(default_factory=dict)
    values: list[Column] = field(default_factory=list)
    overflows: list[tuple[Column, str]] = field(default_factory=list)


def is_foldable(row_leaf: RowLeaf) -> bool:
    """Whether folding is exact. Only strings without a collation are compared as in the service."""
    texts = (kind for kind in scalar_types(row_leaf.kind) if isinstance(kind, StringType))
    return json_kind(row_leaf.kind) in row_leaf.leaf.folded and all(kind == StringType() for kind in texts)


def operand_in_row(leaf: Leaf, column: Column, nulls: Nulls) -> Column:
    """Return a leaf's operand for the document of a single row."""
    if not leaf.each:
        return column
    elements = leaf.with_elements(column)
    return F.when(column.isNotNull(), elements) if nulls == "omit" else elements


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The rows of a key to aggregate, and their order. Default: all rows, in any order."""

    order: Column | None = None
    rows: Column | None = None

    def masked(self, column: Column) -> Column:
        """Return the column for selected rows, and null for others, which aggregates ignore."""
        return column if self.rows is None else F.when(self.rows, column)

    def first(self, column: Column) -> Column:
        """Return the column's value in the first row, or in any row without an order."""
        return F.first(column) if self.order is None else F.min_by(column, self.masked(self.order))

    def last(self, column: Column) -> Column:
        """Return the column's value in the last row, or in any row without an order."""
        return F.first(column) if self.order is None else F.max_by(column, self.masked(self.order))

    def last_given(self, name: str) -> Column:
        """Return the column's value in the last row where it is not null, or in any such row without an order."""
        if self.order is None:
            return F.first(name, ignorenulls=True)
        return F.max_by(F.col(name), F.when(F.col(name).isNotNull(), self.masked(self.order)))

    def json_array(self, text: Column) -> Column:
        """Return the JSON documents of the rows, in order, as one JSON array."""
        if self.order is None:
            return F.concat(F.lit("["), F.concat_ws(",", F.collect_list(text)), F.lit("]"))
        pairs = F.sort_array(F.collect_list(self.masked(F.struct(self.order.alias("order"), text.alias("text")))))
        return F.concat(F.lit("["), F.concat_ws(",", F.transform(pairs, lambda pair: pair["text"])), F.lit("]"))


def fold(leaves: Sequence[RowLeaf], selection: RowSelection, nulls: Nulls) -> Fold:
    """Return the aggregates that fold the rows of a key. All leaves must be foldable."""
    result, last = Fold(), list[Column]()
    for row_leaf in leaves:
        values = selection.masked(F.col(row_leaf.name))
        match row_leaf.leaf.operator.fold:
            case "sum":
                _add_sum(result, row_leaf, values)
            case "least":
                _add(result, row_leaf, F.min(values))
            case "greatest":
                _add(result, row_leaf, F.max(values))
            case "append" | "union" as rule:
                _add_elements(result, row_leaf, selection, nulls, as_set=rule == "union")
            case "last" if nulls == "omit":
                _add(result, row_leaf, selection.last_given(row_leaf.name))
            case "last":
                last.append(F.col(row_leaf.name))
                result.values.append(F.col(_LAST).getField(row_leaf.name))
            case None:
                raise AssertionError(f"{row_leaf.leaf.label} cannot be folded")
    if last:
        result.aggregates[_LAST] = selection.last(F.struct(*last))
    return result


def _add(result: Fold, row_leaf: RowLeaf, aggregate: Column) -> None:
    result.aggregates[row_leaf.name] = aggregate
    result.values.append(F.col(row_leaf.name))


def _add_sum(result: Fold, row_leaf: RowLeaf, values: Column) -> None:
    if isinstance(row_leaf.kind, ByteType | ShortType | IntegerType):  # 2^31 rows of 32 bits fit in 64 bits
        _add(result, row_leaf, F.sum(values.cast("long")))
        return
    name = row_leaf.name
    result.aggregates[name] = F.sum(values.cast(_SUM))
    total = F.expr(f"try_cast({name} AS bigint)")
    result.values.append(total)
    overflow = F.col(name).isNotNull() & total.isNull()
    result.overflows.append((overflow, f"{row_leaf.leaf.label}: the sum of the rows exceeds 64 bits"))


def _add_elements(result: Fold, row_leaf: RowLeaf, selection: RowSelection, nulls: Nulls, *, as_set: bool) -> None:
    leaf, name = row_leaf.leaf, row_leaf.name
    comparable = _is_comparable(row_leaf.kind)
    as_set = as_set and comparable
    pairs, element = F.col(name), F.col(name).alias("element")  # in structs, because collecting drops nulls
    if selection.order is not None:
        ordered = F.struct(selection.order.alias("order"), element)
        result.aggregates[name] = F.collect_list(selection.masked(ordered))
    else:
        collect = F.collect_set if as_set else F.collect_list
        result.aggregates[name] = collect(selection.masked(F.struct(element)))
    if selection.order is not None:
        pairs = F.sort_array(pairs) if comparable else F.array_sort(pairs, _compared_by_order)
    elements = F.transform(pairs, lambda pair: pair["element"])
    if nulls == "omit":
        elements = F.filter(elements, lambda element: element.isNotNull())
    is_absent = F.size(elements) == 0  # an empty list counts: it creates an empty array
    elements = F.flatten(elements) if leaf.each else elements
    if as_set:
        elements = F.array_distinct(elements)
        elements = elements if selection.order is not None else F.sort_array(elements)
    document = leaf.with_elements(elements)
    result.values.append(F.when(~is_absent, document) if nulls == "omit" else document)


def _compared_by_order(left: Column, right: Column) -> Column:
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
