"""A caller's frame as a frame of operations: key columns, rows stood for, a problem or none, JSON documents.

Everything here is expressions for the JVM; nothing is sent, and nothing runs yet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import DataType, MapType, StringType, StructType

from tableside_spark import fold
from tableside_spark.documents import Document, Leaf, read_update, value_column
from tableside_spark.fold import RowLeaf
from tableside_spark.frames import quoted
from tableside_spark.json_columns import (
    Decimals,
    Nulls,
    json_text,
    not_finite,
    problem,
    refuse_type,
    with_decimals,
)
from tableside_spark.sending import PROBLEM, ROWS, internal

_VALUE, _UPDATE, _DEFAULT = map(internal, ("value", "update", "default"))
_ORDER = "__order"

OrderBy = str | Column | Sequence[str | Column] | None


@dataclass(frozen=True, slots=True)
class Writing:
    """How values become JSON: what is done with nulls, and with decimals."""

    nulls: Nulls = "write"
    decimals: Decimals = "number"


def puts(frame: DataFrame, keys: Sequence[str], value: Column, order_by: OrderBy, writing: Writing) -> DataFrame:
    """One put per row; with `order_by`, one per key, with the value of its last row."""
    rows = _named(frame, keys, {_VALUE: value}, order_by)
    text, check = _document(rows, _VALUE, "value", writing)
    checks = [*_null_keys(keys), (quoted(_VALUE).isNull(), "the value is null"), *check]
    ready = rows.select(
        *_key_columns(keys), *_order_columns(order_by), problem(checks).alias(PROBLEM), text.alias(_VALUE)
    )
    if order_by is None:
        return ready.withColumn(ROWS, F.lit(1).cast("long"))
    last = fold.last_of(F.col(_VALUE), F.col(_ORDER))
    return _per_key(ready, keys).agg(F.count(F.lit(1)).alias(ROWS), last.alias(_VALUE))


def deletes(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """One delete per key."""
    ready = frame.select(*_key_columns(keys), problem(_null_keys(keys)).alias(PROBLEM))
    return _per_key(ready, keys).agg(F.count(F.lit(1)).alias(ROWS))


def updates(
    frame: DataFrame,
    keys: Sequence[str],
    update: Any,
    default: Any,
    order_by: OrderBy,
    writing: Writing,
    *,
    folding: bool,
) -> DataFrame:
    """One update per key: its rows folded where that is exact and wanted, else a list of their updates."""
    documents = _documents(update)
    leaves = [leaf for document in documents for leaf in document.leaves]
    columns = {_leaf_name(position): leaf.column for position, leaf in enumerate(leaves)}
    if default is not None:
        columns[_DEFAULT] = value_column(default)
    rows = _named(frame, keys, columns, order_by)
    row_leaves, ready = _checked(rows, keys, leaves, order_by, writing, has_default=default is not None)
    folds = folding and len(documents) == 1 and bool(documents[0].template) and all(map(fold.foldable, row_leaves))
    if folds:
        return _folded(ready, keys, documents[0], row_leaves, order_by, writing, has_default=default is not None)
    return _listed(ready, keys, documents, row_leaves, order_by, writing, has_default=default is not None)


def row_value(frame: DataFrame, keys: Sequence[str], columns: Sequence[str] | None, value: str | None) -> Column:
    """The value of a put: one column where it is named, else a struct of `columns`, else of all but the key's."""
    if value is not None:
        if columns is not None:
            raise ValueError("value= names one column, columns= several: give one of them")
        return quoted(value)
    names = [name for name in frame.columns if name not in keys] if columns is None else list(columns)
    return F.struct(*[quoted(name).alias(name) for name in names])


def _documents(update: Any) -> list[Document]:
    """The parts of an update; one whose template is empty is a single leaf that is the whole document."""
    if isinstance(update, Column):
        return [Document({}, [Leaf("", "update", update)])]
    if isinstance(update, Mapping):
        return [read_update(update)]
    if isinstance(update, list | tuple) and all(isinstance(part, Mapping) for part in update):
        return [read_update(part) for part in update]
    raise ValueError(f"an update is a mapping, a list of mappings or a column, not {type(update).__name__}")


def _checked(
    rows: DataFrame,
    keys: Sequence[str],
    leaves: Sequence[Leaf],
    order_by: OrderBy,
    writing: Writing,
    *,
    has_default: bool,
) -> tuple[list[RowLeaf], DataFrame]:
    """The leaves with their types, and the rows with a problem or none, decimals and default as they are sent."""
    types = {member.name: member.dataType for member in rows.schema.fields}
    checks = _null_keys(keys)
    columns: list[Column] = []
    for position, leaf in enumerate(leaves):
        name = _leaf_name(position)
        refuse_type(leaf.label, types[name], writing.decimals)
        checks += _finite(F.col(name), types[name], leaf.label)
        if leaf.operator == "":
            checks.append((F.col(name).isNull(), "the update is null"))
        columns.append(with_decimals(F.col(name), types[name], writing.decimals).alias(name))
    if has_default:
        text, check = _document(rows, _DEFAULT, "default", writing)
        columns.append(text.alias(_DEFAULT))
        checks += check
    ready = rows.select(*_key_columns(keys), *_order_columns(order_by), *columns, problem(checks).alias(PROBLEM))
    sent = {member.name: member.dataType for member in ready.schema.fields}
    row_leaves = [RowLeaf(leaf, _leaf_name(at), sent[_leaf_name(at)]) for at, leaf in enumerate(leaves)]
    for row_leaf in row_leaves:
        fold.refuse_operand(row_leaf)
    return row_leaves, ready


def _folded(
    ready: DataFrame,
    keys: Sequence[str],
    document: Document,
    leaves: Sequence[RowLeaf],
    order_by: OrderBy,
    writing: Writing,
    *,
    has_default: bool,
) -> DataFrame:
    folded = fold.fold(leaves, _order(order_by), writing.nulls)
    aggregates = [aggregate.alias(name) for name, aggregate in folded.aggregates.items()]
    grouped = _per_key(ready, keys).agg(
        F.count(F.lit(1)).alias(ROWS), *aggregates, *_default_aggregate(order_by, has_default)
    )
    return grouped.select(
        *_key_columns(keys),
        ROWS,
        F.coalesce(F.col(PROBLEM), problem(folded.overflows)).alias(PROBLEM),
        json_text(document.struct(folded.values), writing.nulls).alias(_UPDATE),
        *([_DEFAULT] if has_default else []),
    )


def _listed(
    ready: DataFrame,
    keys: Sequence[str],
    documents: Sequence[Document],
    leaves: Sequence[RowLeaf],
    order_by: OrderBy,
    writing: Writing,
    *,
    has_default: bool,
) -> DataFrame:
    text = _row_text(documents, leaves, writing)
    rows = ready.withColumn(_UPDATE, text)
    return _per_key(rows, keys).agg(
        F.count(F.lit(1)).alias(ROWS),
        fold.listed(F.col(_UPDATE), _order(order_by)).alias(_UPDATE),
        *_default_aggregate(order_by, has_default),
    )


def _row_text(documents: Sequence[Document], leaves: Sequence[RowLeaf], writing: Writing) -> Column:
    """The update of one row, as the elements of a JSON array: documents with commas between."""
    texts: list[Column] = []
    start = 0
    for document in documents:
        own = leaves[start : start + len(document.leaves)]
        start += len(own)
        if document.template or not own:
            operands = [fold.in_row(part.leaf, F.col(part.name), writing.nulls) for part in own]
            texts.append(json_text(document.struct(operands), writing.nulls))
        else:
            texts.append(_text(F.col(own[0].name), own[0].kind, "update", writing))
    return F.concat_ws(",", *texts)


def _default_aggregate(order_by: OrderBy, has_default: bool) -> list[Column]:
    return [fold.first_of(F.col(_DEFAULT), _order(order_by)).alias(_DEFAULT)] if has_default else []


def _named(frame: DataFrame, keys: Sequence[str], columns: Mapping[str, Column], order_by: OrderBy) -> DataFrame:
    """The key columns, the given ones under their internal names, and the order as one struct."""
    given = [column.alias(name) for name, column in columns.items()]
    order = [_order_struct(order_by).alias(_ORDER)] if order_by is not None else []
    return frame.select(*_key_columns(keys), *given, *order)


def _document(
    rows: DataFrame, name: str, label: str, writing: Writing
) -> tuple[Column, list[tuple[Column | None, str]]]:
    """A document column as JSON text, and what may be wrong with it."""
    kind = rows.schema[name].dataType
    members = kind.fields if isinstance(kind, StructType) else []
    for member in members:
        refuse_type(member.name, member.dataType, writing.decimals)
    if not members:
        refuse_type(label, kind, writing.decimals)
    checks = [
        check
        for member in members
        for check in _finite(F.col(name).getField(member.name), member.dataType, member.name)
    ]
    checks = checks or _finite(F.col(name), kind, label)
    return _text(with_decimals(F.col(name), kind, writing.decimals), kind, label, writing), checks


def _text(column: Column, kind: DataType, label: str, writing: Writing) -> Column:
    if isinstance(kind, StringType):
        return column
    if isinstance(kind, StructType | MapType):
        return json_text(column, writing.nulls)
    raise ValueError(f"the {label} is {kind.simpleString()}: it has to be a struct, a map or JSON text")


def _finite(column: Column, kind: DataType, label: str) -> list[tuple[Column | None, str]]:
    return [(not_finite(column, kind), f"column {label} holds a NaN or an infinity")]


def _null_keys(keys: Sequence[str]) -> list[tuple[Column | None, str]]:
    return [(quoted(key).isNull(), f"key column {key} is null") for key in keys]


def _key_columns(keys: Sequence[str]) -> list[Column]:
    return [quoted(key) for key in keys]


def _per_key(rows: DataFrame, keys: Sequence[str]) -> GroupedData:
    """Rows of one key and one fate together: those with a problem do not spoil the others of their key."""
    return rows.groupBy(*_key_columns(keys), F.col(PROBLEM))


def _order_struct(order_by: OrderBy) -> Column:
    given = [order_by] if isinstance(order_by, str | Column) else list(order_by or [])
    columns = [quoted(part) if isinstance(part, str) else part for part in given]
    return F.struct(*[column.alias(f"by_{position}") for position, column in enumerate(columns)])


def _order_columns(order_by: OrderBy) -> list[Column]:
    return [] if order_by is None else [F.col(_ORDER)]


def _order(order_by: OrderBy) -> Column | None:
    return None if order_by is None else F.col(_ORDER)


def _leaf_name(position: int) -> str:
    return f"__leaf_{position}"
