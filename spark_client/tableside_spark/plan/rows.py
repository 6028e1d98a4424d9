"""A caller's frame as checked rows: key columns, order, a problem or none, JSON documents.

Everything here is expressions for the JVM over the caller's own frame, batch or streaming; nothing is sent, and
nothing runs yet. `grouping` makes operations of the rows.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import BooleanType, DataType, DecimalType, MapType, StringType, StructType

from tableside_spark.executor.operation_batch import DELETE, PROBLEM
from tableside_spark.plan import fold
from tableside_spark.plan.fold import RowLeaf
from tableside_spark.plan.frames import quoted, type_of
from tableside_spark.plan.grouping import (
    DEFAULT,
    ORDER,
    UPDATE,
    VALUE,
    EachRow,
    Grouping,
    LastRowPerKey,
    OnePerKey,
    UpdatePerKey,
)
from tableside_spark.plan.json_columns import (
    Decimals,
    Nulls,
    first_problem,
    is_not_finite,
    json_text,
    require_json_type,
    with_decimals,
)
from tableside_spark.plan.update_documents import Document, Leaf, read_update, value_column

OrderBy = str | Column | Sequence[str | Column] | None

_DIRECTED = re.compile(r" (ASC|DESC) NULLS (FIRST|LAST)'>$")

_Check = tuple[Column | None, str]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How rows become operations.

    `keys` are the key's columns, `apart` our own that tell operations on one key apart. What is done with nulls and
    with decimals; the rows' order; which of them are deletes.
    """

    keys: tuple[str, ...]
    nulls: Nulls = "write"
    decimals: Decimals = "number"
    order_by: OrderBy = None
    delete_when: Column | None = None
    partition_columns: tuple[str, ...] = ()

    @property
    def ordered(self) -> bool:
        """Whether the rows have an order."""
        return self.order_by is not None

    @property
    def deletes(self) -> bool:
        """Whether some rows are deletes."""
        return self.delete_when is not None

    @property
    def operation_keys(self) -> tuple[str, ...]:
        """The columns that tell operations apart."""
        return (*self.keys, *self.partition_columns)


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """The checked rows, and what makes operations of them."""

    rows: DataFrame
    grouping: Grouping


def puts(frame: DataFrame, value: Column, writing: WriteOptions, *, one_per_key: bool) -> PreparedRows:
    """One put per row; with an order, or where it is asked for, one per key, with the value of its last row."""
    rows = _select_inputs(frame, {VALUE: value}, writing)
    text, check = _document(rows, VALUE, "value", writing)
    missing = (quoted(VALUE).isNull(), "the value is null")
    ready = _check_rows(rows, [text.alias(VALUE)], [missing, *check], writing)
    if not (writing.ordered or one_per_key):
        return PreparedRows(ready, EachRow())
    return PreparedRows(ready, LastRowPerKey(writing.operation_keys, writing.ordered, writing.deletes))


def deletes(frame: DataFrame, writing: WriteOptions) -> PreparedRows:
    """One delete per key."""
    return PreparedRows(
        _check_rows(_select_inputs(frame, {}, writing), [], [], writing), OnePerKey(writing.operation_keys)
    )


def updates(frame: DataFrame, update: Any, default: Any, writing: WriteOptions, *, folding: bool) -> PreparedRows:
    """One update per key: its rows folded where that is exact and wanted, else a list of their updates."""
    documents = _documents(update)
    leaves = [leaf for document in documents for leaf in document.leaves]
    columns = {_leaf_name(position): leaf.column for position, leaf in enumerate(leaves)}
    if default is not None:
        columns[DEFAULT] = value_column(default)
    row_leaves, ready = _check_leaves(
        _select_inputs(frame, columns, writing), leaves, writing, has_default=default is not None
    )
    folds = folding and len(documents) == 1 and bool(documents[0].template) and all(map(fold.is_foldable, row_leaves))
    rows = ready if folds else ready.withColumn(UPDATE, _row_text(documents, row_leaves, writing))
    grouping = UpdatePerKey(
        writing.operation_keys,
        documents[0] if folds else None,
        tuple(row_leaves),
        writing.nulls,
        writing.ordered,
        writing.deletes,
        default is not None,
    )
    return PreparedRows(rows, grouping)


def row_value(frame: DataFrame, keys: Sequence[str], columns: Sequence[str] | None, value: str | None) -> Column:
    """The value of a put: one column where it is named, else a struct of `columns`, else of all but the key's."""
    if value is not None:
        if columns is not None:
            raise ValueError("value= names one column, columns= several: give one of them")
        return quoted(value)
    names = [name for name in frame.columns if name not in keys] if columns is None else list(columns)
    return F.struct(*[quoted(name).alias(name) for name in names])


def delete_condition(delete_when: Column | str | None, order_by: OrderBy) -> Column | None:
    """The condition under which a row is a delete."""
    if delete_when is not None and order_by is None:
        raise ValueError("delete_when needs order_by: which of a key's rows is the last decides what is left of it")
    return quoted(delete_when) if isinstance(delete_when, str) else delete_when


def _documents(update: Any) -> list[Document]:
    """The parts of an update; one whose template is empty is a single leaf that is the whole document."""
    if isinstance(update, Column):
        return [Document({}, [Leaf("", "update", update)])]
    if isinstance(update, Mapping):
        return [read_update(update)]
    if isinstance(update, list | tuple) and all(isinstance(part, Mapping) for part in update):
        return [read_update(part) for part in update]
    raise ValueError(f"an update is a mapping, a list of mappings or a column, not {type(update).__name__}")


def _check_leaves(
    rows: DataFrame, leaves: Sequence[Leaf], writing: WriteOptions, *, has_default: bool
) -> tuple[list[RowLeaf], DataFrame]:
    """The leaves with their types, and the rows with a problem or none, decimals and default as they are sent."""
    types = {member.name: member.dataType for member in rows.schema.fields}
    checks: list[_Check] = []
    columns: list[Column] = []
    for position, leaf in enumerate(leaves):
        name = _leaf_name(position)
        require_json_type(leaf.label, types[name], writing.decimals)
        _require_numeric_order(leaf, types[name], writing.decimals)
        checks += _finite_checks(F.col(name), types[name], leaf.label)
        if leaf.operator == "":
            checks.append((F.col(name).isNull(), "the update is null"))
            # Between the brackets of a list, an empty text would be a list of nothing.
            if isinstance(types[name], StringType):
                checks.append((F.trim(name) == "", "the update is an empty text"))
        columns.append(with_decimals(F.col(name), types[name], writing.decimals).alias(name))
    if has_default:
        text, check = _document(rows, DEFAULT, "default", writing)
        columns.append(text.alias(DEFAULT))
        checks += check
    ready = _check_rows(rows, columns, checks, writing)
    sent = {member.name: member.dataType for member in ready.schema.fields}
    row_leaves = [RowLeaf(leaf, _leaf_name(at), sent[_leaf_name(at)]) for at, leaf in enumerate(leaves)]
    for row_leaf in row_leaves:
        fold.require_operand_type(row_leaf)
    return row_leaves, ready


def _require_numeric_order(leaf: Leaf, kind: DataType, decimals: Decimals) -> None:
    if decimals == "string" and leaf.operator in ("$min", "$max") and isinstance(kind, DecimalType):
        raise ValueError(f"{leaf.label} does not take {kind.simpleString()} as a string: 9 would be above 10")


def _row_text(documents: Sequence[Document], leaves: Sequence[RowLeaf], writing: WriteOptions) -> Column:
    """The update of one row, as the elements of a JSON array: documents with commas between."""
    texts: list[Column] = []
    start = 0
    for document in documents:
        own = leaves[start : start + len(document.leaves)]
        start += len(own)
        if document.template or not own:
            operands = [fold.operand_in_row(part.leaf, F.col(part.name), writing.nulls) for part in own]
            texts.append(json_text(document.struct(operands), writing.nulls))
        else:
            texts.append(_elements(_text(F.col(own[0].name), own[0].kind, "update", writing)))
    return F.nullif(F.concat_ws(",", *texts), F.lit(""))


def _elements(text: Column) -> Column:
    """The update, or, of an array of updates, what stands in it; null where that is nothing."""
    trimmed = F.trim(text)
    inner = F.nullif(F.trim(trimmed.substr(F.lit(2), F.length(trimmed) - 2)), F.lit(""))
    return F.when(F.startswith(trimmed, F.lit("[")), inner).otherwise(text)


def _select_inputs(frame: DataFrame, columns: Mapping[str, Column], writing: WriteOptions) -> DataFrame:
    """The columns that tell operations apart, the given ones under their internal names, and the order in one."""
    given = [column.alias(name) for name, column in columns.items()]
    order = [_order_struct(writing.order_by).alias(ORDER)] if writing.ordered else []
    kept = [_without_collation(frame, name) for name in writing.operation_keys]
    return frame.select(*kept, *given, *order, *_delete_column(frame, writing))


def _without_collation(frame: DataFrame, name: str) -> Column:
    """The column; a text without its collation, under which different keys could be taken for one."""
    column = quoted(name)
    return column.cast("string").alias(name) if isinstance(type_of(frame, name), StringType) else column


def _delete_column(frame: DataFrame, writing: WriteOptions) -> list[Column]:
    """Whether a row is a delete; a condition that is null is not so."""
    if writing.delete_when is None:
        return []
    kind = frame.select(writing.delete_when.alias(DELETE)).schema[DELETE].dataType
    if not isinstance(kind, BooleanType):
        raise ValueError(f"delete_when is {kind.simpleString()}: it has to be a condition")
    return [F.coalesce(writing.delete_when, F.lit(False)).alias(DELETE)]


def _check_rows(
    rows: DataFrame, columns: Sequence[Column], checks: Sequence[_Check], writing: WriteOptions
) -> DataFrame:
    """The rows as they are grouped: checked, and with their documents."""
    kept = [name for name in (ORDER, DELETE) if name in rows.columns]
    wrong = first_problem(
        [*_null_key_checks(writing.keys), *[(_except_deletes(check, writing), text) for check, text in checks]]
    )
    return rows.select(*map(quoted, writing.operation_keys), *kept, wrong.alias(PROBLEM), *columns)


def _except_deletes(condition: Column | None, writing: WriteOptions) -> Column | None:
    """The condition, of rows that are no deletes: what else those hold is not looked at."""
    return condition if condition is None or not writing.deletes else ~F.col(DELETE) & condition


def _document(rows: DataFrame, name: str, label: str, writing: WriteOptions) -> tuple[Column, list[_Check]]:
    """A document column as JSON text, and what may be wrong with it."""
    kind = rows.schema[name].dataType
    members = kind.fields if isinstance(kind, StructType) else []
    for member in members:
        require_json_type(member.name, member.dataType, writing.decimals)
    if not members:
        require_json_type(label, kind, writing.decimals)
    checks = [
        check
        for member in members
        for check in _finite_checks(F.col(name).getField(member.name), member.dataType, member.name)
    ]
    checks = checks or _finite_checks(F.col(name), kind, label)
    return _text(with_decimals(F.col(name), kind, writing.decimals), kind, label, writing), checks


def _text(column: Column, kind: DataType, label: str, writing: WriteOptions) -> Column:
    if isinstance(kind, StringType):
        return column
    if isinstance(kind, StructType | MapType):
        return json_text(column, writing.nulls)
    raise ValueError(f"the {label} is {kind.simpleString()}: it has to be a struct, a map or JSON text")


def _finite_checks(column: Column, kind: DataType, label: str) -> list[_Check]:
    return [(is_not_finite(column, kind), f"column {label} holds a NaN or an infinity")]


def _null_key_checks(keys: Sequence[str]) -> list[_Check]:
    return [(quoted(key).isNull(), f"key column {key} is null") for key in keys]


def _order_struct(order_by: OrderBy) -> Column:
    given = [order_by] if isinstance(order_by, str | Column) else list(order_by or [])
    if any(_DIRECTED.search(str(part)) for part in given if isinstance(part, Column)):
        raise ValueError("order_by takes columns, ascending: order by the negative of one for its descending order")
    columns = [quoted(part) if isinstance(part, str) else part for part in given]
    return F.struct(*[column.alias(f"by_{position}") for position, column in enumerate(columns)])


def _leaf_name(position: int) -> str:
    return f"__leaf_{position}"
