"""Turn a DataFrame into checked rows, by JVM expressions: key, order, a problem or null, and JSON documents."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import BooleanType, DataType, DecimalType, MapType, StringType, StructType

from tableside_client.json_writer import DECIMAL_DIGITS_MAX, Decimals
from tableside_client.operators import WHOLE_UPDATE
from tableside_client.paths import names
from tableside_spark.executor.operation_batch import DELETE, EXPIRY, PROBLEM, SEQUENCE
from tableside_spark.plan import fold, json_columns
from tableside_spark.plan.expiry import ExpiresAt, TtlS, expiry_checks, expiry_columns
from tableside_spark.plan.fold import RowLeaf
from tableside_spark.plan.frames import quoted
from tableside_spark.plan.grouping import (
    DEFAULT,
    ORDER,
    UPDATE,
    VALUE,
    Grouping,
    LastRowPerKey,
    OnePerKey,
    UpdatePerKey,
)
from tableside_spark.plan.json_columns import Check, Nulls
from tableside_spark.plan.sequences import (
    SequenceBy,
    UpdatePerSequence,
    require_ordered_update,
    sequence_checks,
    sequence_column,
)
from tableside_spark.plan.update_documents import (
    Document,
    Leaf,
    elements,
    object_column,
    read_update,
    text_checks,
    value_column,
)

OrderBy = str | Column | Sequence[str | Column] | None

_DIRECTED = re.compile(r" (ASC|DESC) NULLS (FIRST|LAST)'>$")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options that determine how rows become operations, which the keys and `partition_columns` identify."""

    keys: tuple[str, ...]
    nulls: Nulls = "write"
    decimals: Decimals = "number"
    order_by: OrderBy = None
    sequence_by: SequenceBy = None
    delete_when: Column | None = None
    partition_columns: tuple[str, ...] = ()
    ttl_s: TtlS = None
    expires_at: ExpiresAt = None

    @property
    def ordered(self) -> bool:
        """Whether the rows of a key have an order."""
        return self.order_by is not None or self.sequence_by is not None

    @property
    def sequence(self) -> tuple[str, ...]:
        """The column with the sequence, for ordered writes."""
        return () if self.sequence_by is None else (SEQUENCE,)

    @property
    def expiry(self) -> tuple[str, ...]:
        """The column with the expiry, for writes that set it."""
        return () if self.ttl_s is None and self.expires_at is None else (EXPIRY,)

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns that are not members by default: those of the key, and one that is named as the expiry."""
        return (*self.keys, *[name for name in (self.ttl_s, self.expires_at) if isinstance(name, str)])

    @property
    def deletes(self) -> bool:
        """Whether some rows are deletes."""
        return self.delete_when is not None

    @property
    def operation_keys(self) -> tuple[str, ...]:
        """The columns that identify an operation."""
        return (*self.keys, *self.partition_columns)


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """The checked rows, the function that groups them into operations, and whether they are harmless to repeat."""

    rows: DataFrame
    grouping: Grouping
    harmless: bool = True


def puts(frame: DataFrame, value: Column, options: WriteOptions, *, one_per_key: bool) -> PreparedRows:
    """Prepare one put per row. With an order, or `one_per_key`, one put per key with the value of its last row."""
    rows = _select_inputs(frame, {VALUE: value}, options)
    text, check = _document(rows, VALUE, "value", options)
    missing = (quoted(VALUE).isNull(), "the value is null")
    ready = _check_rows(rows, [text.alias(VALUE)], [missing, *check], options)
    if not (options.ordered or one_per_key):
        return PreparedRows(ready, Grouping())
    columns = (VALUE, *([DELETE] if options.deletes else []), *options.sequence, *options.expiry)
    return PreparedRows(ready, LastRowPerKey(options.operation_keys, columns, options.ordered))


def deletes(frame: DataFrame, options: WriteOptions) -> PreparedRows:
    """Prepare one delete per key."""
    rows = _check_rows(_select_inputs(frame, {}, options), [], [], options)
    if options.ordered:
        return PreparedRows(rows, LastRowPerKey(options.operation_keys, options.sequence, options.ordered))
    return PreparedRows(rows, OnePerKey(options.operation_keys))


def updates(
    frame: DataFrame, update: Any, default: Any, options: WriteOptions, *, folding: bool | None
) -> PreparedRows:
    """Prepare one update per key (and sequence), folded if that is exact and allowed, otherwise as a list."""
    if options.sequence and default is not None:
        raise ValueError("default cannot be combined with sequence_by: an ordered update needs no record")
    if options.sequence and folding is not None:
        raise ValueError("fold cannot be combined with sequence_by: each member has its newest value either way")
    parts = update if isinstance(update, list | tuple) else [update]
    if not all(isinstance(part, Mapping) or (part is update and isinstance(part, Column)) for part in parts):
        raise ValueError(f"an update is a mapping, a list of mappings or a column, not {type(update).__name__}")
    documents = list(map(read_update, parts))
    leaves = [leaf for document in documents for leaf in document.leaves]
    columns = {_leaf_name(position): leaf.column for position, leaf in enumerate(leaves)}
    if default is not None:
        columns[DEFAULT] = value_column(default)
    row_leaves, ready = _check_leaves(_select_inputs(frame, columns, options), leaves, options)
    if options.sequence:
        require_ordered_update(documents, row_leaves)
    is_foldable = len(documents) == 1 and documents[0].is_foldable and all(map(fold.is_foldable, row_leaves))
    folds = is_foldable and folding is not False
    rows = ready if folds else ready.withColumn(UPDATE, _row_text(documents, row_leaves, options))
    document, has_default = documents[0] if folds else None, default is not None
    markers = (options.nulls, options.ordered, options.deletes, has_default, bool(options.expiry))
    kind = UpdatePerSequence if options.sequence else UpdatePerKey
    grouping = kind((*options.operation_keys, *options.sequence), document, tuple(row_leaves), *markers)
    return PreparedRows(rows, grouping, all(document.is_idempotent for document in documents))


def row_value(frame: DataFrame, own: Sequence[str], columns: Sequence[str] | None, value: str | None) -> Column:
    """Return the value of a put: the column `value`, or a struct of `columns`, or of all columns except its own."""
    if value is not None:
        if columns is not None:
            raise ValueError("value= and columns= cannot be combined")
        return quoted(value)
    members = [name for name in frame.columns if name not in own] if columns is None else names(columns, "columns")
    return object_column({name: quoted(name) for name in members})


def delete_condition(delete_when: Column | str | None, order_by: OrderBy, sequence_by: SequenceBy) -> Column | None:
    """Return the condition of deletes. Raises `ValueError` without an order."""
    if delete_when is not None and order_by is None and sequence_by is None:
        raise ValueError(
            "delete_when needs order_by or sequence_by: the result depends on which row of a key is the last"
        )
    return quoted(delete_when) if isinstance(delete_when, str) else delete_when


def set_update(update: Any, columns: Sequence[str] | None) -> Any:
    """Return the update, or the one that writes `columns` as members. Raises `ValueError` unless one is given."""
    if (update is None) == (columns is None):
        raise ValueError("give either update= or set=, the names of the columns to write as members")
    if columns is None:
        return update
    if not columns:
        raise ValueError("set= has no columns")
    if paths := [name for name in names(columns, "set") if "." in name]:
        raise ValueError(f"set= writes members, and {paths[0]!r} is a path in an update: rename the column")
    return {"$set": {name: quoted(name) for name in columns}}


def _check_leaves(rows: DataFrame, leaves: Sequence[Leaf], options: WriteOptions) -> tuple[list[RowLeaf], DataFrame]:
    types = {member.name: member.dataType for member in rows.schema.fields}
    checks: list[Check] = []
    columns: list[Column] = []
    names = [_leaf_name(position) for position in range(len(leaves))]
    for name, leaf in zip(names, leaves, strict=True):
        _require_number(leaf, types[name], options.decimals)
        json_columns.require_json_type(leaf.label, types[name], options.decimals)
        checks += json_columns.value_checks(F.col(name), types[name], leaf.label)
        if "null" not in leaf.operands and options.nulls == "write":
            why = f'{leaf.label}: the operand is null; filter such rows, or set nulls="omit"'
            checks.append((F.col(name).isNull(), why))
        if leaf.operator is WHOLE_UPDATE:
            checks.append((F.col(name).isNull(), "the update is null"))
            if isinstance(types[name], StringType):
                checks += text_checks(F.col(name))
        columns.append(json_columns.with_decimals(F.col(name), types[name], options.decimals).alias(name))
    if DEFAULT in types:
        text, check = _document(rows, DEFAULT, "default", options)
        columns.append(text.alias(DEFAULT))
        checks += check
    ready = _check_rows(rows, columns, checks, options)
    row_leaves = [RowLeaf(leaf, name, ready.schema[name].dataType) for name, leaf in zip(names, leaves, strict=True)]
    for part in row_leaves:
        if json_columns.json_kind(part.kind) not in part.leaf.operands:
            raise ValueError(f"{part.leaf.label} does not accept {part.kind.simpleString()}")
    return row_leaves, ready


def _require_number(leaf: Leaf, kind: DataType, decimals: Decimals) -> None:
    """Raise `ValueError` for a decimal operand that would be a string, or a number with fewer digits."""
    if (
        leaf.operator.computes
        and isinstance(kind, DecimalType)
        and (decimals == "string" or kind.precision > DECIMAL_DIGITS_MAX)
    ):
        raise ValueError(
            f"{leaf.label} does not accept {kind.simpleString()}{' as a string' if decimals == 'string' else ''}: "
            f"the service computes with numbers of {DECIMAL_DIGITS_MAX} digits; cast the operand to "
            'double or, for money, to an integer of the smallest unit: (column * 100).cast("long") for cents'
        )


def _row_text(documents: Sequence[Document], leaves: Sequence[RowLeaf], options: WriteOptions) -> Column:
    """Return the update of one row as the elements of a JSON array: documents separated by commas."""
    texts: list[Column] = []
    start = 0
    for document in documents:
        own = leaves[start : start + len(document.leaves)]
        start += len(own)
        if WHOLE_UPDATE in document.operators:
            texts.append(elements(_text(F.col(own[0].name), own[0].kind, "update", options)))
        else:
            operands = [fold.operand_in_row(part.leaf, F.col(part.name), options.nulls) for part in own]
            texts.append(json_columns.json_text(document.struct(operands), options.nulls))
    return F.nullif(F.concat_ws(",", *texts), F.lit(""))


def _select_inputs(frame: DataFrame, columns: Mapping[str, Column], options: WriteOptions) -> DataFrame:
    given = [column.alias(name) for name, column in columns.items()]
    deletes = _delete_column(frame, options)
    sequence = [] if options.sequence_by is None else [sequence_column(frame, options.sequence_by)]
    first = [*sequence, *deletes] if sequence else []  # of equal sequences, a delete is the last
    order = [F.struct(*first, *_order_columns(options.order_by)).alias(ORDER)] if options.ordered else []
    texts = [field.name for field in frame.schema.fields if isinstance(field.dataType, StringType)]
    identifying = [  # without their collation, which could make different keys equal
        quoted(name).cast("string").alias(name) if name in texts else quoted(name) for name in options.operation_keys
    ]
    expiry = expiry_columns(frame, options.ttl_s, options.expires_at)
    return frame.select(*identifying, *given, *order, *deletes, *sequence, *expiry)


def _delete_column(frame: DataFrame, options: WriteOptions) -> list[Column]:
    if options.delete_when is None:
        return []
    kind = frame.select(options.delete_when.alias(DELETE)).schema[DELETE].dataType
    if not isinstance(kind, BooleanType):
        raise ValueError(f"delete_when is {kind.simpleString()}: it must be a condition")
    return [F.coalesce(options.delete_when, F.lit(False)).alias(DELETE)]  # null is false


def _check_rows(
    rows: DataFrame, columns: Sequence[Column], checks: Sequence[Check], options: WriteOptions
) -> DataFrame:
    markers = [name for name in (ORDER, DELETE, SEQUENCE, EXPIRY) if name in rows.columns]
    keys: list[Check] = [(quoted(key).isNull(), f"key column {key} is null") for key in options.keys]
    checks = [*checks, *expiry_checks(rows)]
    if options.deletes:  # of deletes, only the key and the sequence are checked
        checks = [(None if condition is None else ~F.col(DELETE) & condition, text) for condition, text in checks]
    problem = json_columns.first_problem([*keys, *sequence_checks(rows, options.sequence_by), *checks]).alias(PROBLEM)
    return rows.select(*map(quoted, options.operation_keys), *markers, problem, *columns)


def _document(rows: DataFrame, name: str, label: str, options: WriteOptions) -> tuple[Column, list[Check]]:
    kind = rows.schema[name].dataType
    parts = [(F.col(name), kind, label)]
    if isinstance(kind, StructType):
        json_columns.require_distinct_members(label, kind)
        members = zip(json_columns.member_columns(F.col(name), kind), kind.fields, strict=True)
        parts = [(member, field.dataType, field.name) for member, field in members]
    for _, part_kind, part_label in parts:
        json_columns.require_json_type(part_label, part_kind, options.decimals)
    checks = [check for part in parts for check in json_columns.value_checks(*part)]
    return _text(json_columns.with_decimals(F.col(name), kind, options.decimals), kind, label, options), checks


def _text(column: Column, kind: DataType, label: str, options: WriteOptions) -> Column:
    if isinstance(kind, StringType):
        return column
    if isinstance(kind, StructType | MapType):
        return json_columns.json_text(column, options.nulls)
    raise ValueError(f"the {label} is {kind.simpleString()}: it must be a struct, a map or JSON text")


def _order_columns(order_by: OrderBy) -> list[Column]:
    given = [order_by] if isinstance(order_by, str | Column) else list(order_by or [])
    if any(_DIRECTED.search(str(part)) for part in given if isinstance(part, Column)):
        raise ValueError("order_by takes columns in ascending order: for descending order, negate the column")
    columns = [quoted(part) if isinstance(part, str) else part for part in given]
    return [column.alias(f"by_{position}") for position, column in enumerate(columns)]


def _leaf_name(position: int) -> str:
    return f"__leaf_{position}"
